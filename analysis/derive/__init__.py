"""Figures that follow from the records: bounds, parts of a step, efficiency, placement."""
