"""What is said in tables, and in lists of names and values, as text."""
