"""A point of a sweep: everything that is asked for, as values that check themselves.

Decides what an experiment consists of, where its variables and its tasks go, and its identity.
Standard library only; nothing is run here.
"""
