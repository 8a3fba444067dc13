"""What is held against what: pairs of points, sides, rungs of a ladder, two results."""
