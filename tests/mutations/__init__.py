"""Faults that are planted in a copy of the product, to see that tests die of each of them.

`python -m tests.mutations` plants those of `planted.txt` one by one; it is no part of CI.
"""
