"""What is said about a sweep: sentences, tables and the page."""
