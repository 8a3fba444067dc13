"""What is printed: the table of a sweep, its verdicts, and two results beside each other."""
