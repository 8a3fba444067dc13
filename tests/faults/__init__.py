"""Faults at random moments of real sweeps: `python -m tests.faults --faults 20`, or `make faults`.

`plan` says which faults there are and draws them from a seed, `strike` carries one out, `damage`
spoils files between two calls, `calls` runs one call of the suite under faults, `checks` says what
must hold afterwards, `one_sweep` puts these together, and `tally` counts over the days.
"""
