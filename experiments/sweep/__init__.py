"""Sweeps: which runs there are, in which order, and how they are made, resumed and recorded."""
