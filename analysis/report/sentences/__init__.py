"""What is said in sentences: verdicts, doubts and the sizes of what is compared."""
