"""Runs on the hosts of a Slurm job: `site` inside an allocation, `submit` from a login node."""
