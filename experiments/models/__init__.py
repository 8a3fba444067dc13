"""Which model is trained: its name, or the user's own code; and the workload that was asked for."""
