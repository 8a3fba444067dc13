"""The models that can be trained or sent, as far as it takes to check a request.

Building them is the business of `workloads`; nothing here needs TensorFlow.
"""
