"""From the files of a sweep to what may be compared."""
