"""What a sweep asks of its data while it is made; see `docs/method.md`."""
