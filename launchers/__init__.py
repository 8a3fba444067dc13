"""From an experiment to running tasks and back.

`LAUNCHERS` names every way of running; a launcher is a sibling behind the `Launcher` protocol.  Launchers
start the measured program as a program of its own and never import backends or TensorFlow.
"""
