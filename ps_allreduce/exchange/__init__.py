"""Training without measuring: where values live, how gradients travel, what optimizers do.

Imports nothing of this suite but itself, and that by relative names, so that exported trainings can
take its modules along as they are.
"""
