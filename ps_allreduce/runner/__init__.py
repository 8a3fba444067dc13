"""The measured program's own process: timed loop, validity checks, task entry point."""
