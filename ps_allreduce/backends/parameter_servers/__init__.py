"""Training with parameter servers: variables live on servers, a chief drives the workers."""
