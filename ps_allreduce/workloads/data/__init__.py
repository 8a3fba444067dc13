"""Input files and the pipelines that read them (TensorFlow)."""
