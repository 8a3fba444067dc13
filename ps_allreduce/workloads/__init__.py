"""What a worker computes: models, input pipelines and the emulated accelerator (TensorFlow).

A `Program` computes gradients from parameter values.  `backends` decides where the values live and
how gradients are combined.
"""
