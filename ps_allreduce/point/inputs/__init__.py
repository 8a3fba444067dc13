"""What a model is trained with: data sets, files of images, and how they become batches.

Reading them is the business of `workloads` and `exchange`; nothing here needs TensorFlow.
"""
