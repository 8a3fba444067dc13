"""Intervals, comparisons and choices over launches."""
