"""Studies from the literature, one module each, with their forms for one machine."""
