"""The commands that need more than a line each: a sweep, a single run, placements, the doctor."""
