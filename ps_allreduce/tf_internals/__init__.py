"""Texts and variables that the suite relies on although TensorFlow does not publish them.

Needs no TensorFlow.  What needs it is in `exchange.private_api`.
"""
