"""What a run leaves: records, raw timings, and what is derived from them.

Decides the format of the files in a results folder (`docs/results_format.md`).  No TensorFlow.
"""
