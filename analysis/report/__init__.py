"""What is said about a sweep: sentences, tables, the page and `summary.csv`."""
