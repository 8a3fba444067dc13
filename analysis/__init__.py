"""From the records of a sweep to figures, tables and sentences; files in, files out.

Needs no TensorFlow and starts no process: it runs wherever the records are.
"""
