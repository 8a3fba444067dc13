"""What every task did in the traced steps of a run."""
