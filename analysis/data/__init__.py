"""From the files of a sweep to the table of its runs, and to what may be compared."""
