"""The best setting of each side for equal node minutes, by successive halving."""
