"""Texts that the suite makes, held by files: what changes one of them shows where, and renews it.

`PS_ALLREDUCE_RENEW_GOLDENS=1 python -m pytest tests/goldens` writes the files.
"""
