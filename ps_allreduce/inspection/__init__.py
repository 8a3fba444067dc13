"""What a host finds when it looks at itself: hardware, load, GPUs, and how it sees other hosts."""
