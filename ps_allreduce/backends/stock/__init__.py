"""Training as TensorFlow's own tutorials write it, with nothing of the suite's exchange."""
