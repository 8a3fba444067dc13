"""What is asked of data to decide what is done next; see `docs/method.md`."""
