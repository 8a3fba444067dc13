"""Real TensorFlow processes over real sockets."""
