"""Whether all strategies end with the same trained weights."""
