"""What a worker computes: networks, input pipelines and the emulated accelerator (TensorFlow).

A `Program` computes gradients from parameter values; where the values live and how gradients are
combined is the business of `backends`.
"""
