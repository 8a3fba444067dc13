"""First checks of what a user has: a cluster of hosts, or GPUs."""
