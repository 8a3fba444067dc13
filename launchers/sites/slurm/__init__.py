"""Runs on hosts of a Slurm job: `slurm_site` inside an allocation, `submit` from a login node."""
