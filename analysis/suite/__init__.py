"""What the sweeps that measure the suite itself say: bench and emulation check."""
