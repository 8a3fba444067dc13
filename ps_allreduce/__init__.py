"""The domain of the suite, and the program that is measured.

The modules directly in this package, and those of `point` and `record`, are the core: standard
library and numpy only.  `workloads`, `backends` and `runner` are the measured program and the only
places where TensorFlow is imported.  `docs/architecture.md` shows how they fit together.
"""
