"""One run, from an experiment and the hosts of a site to what became of it."""
