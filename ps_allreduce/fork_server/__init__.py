"""The program that runs on every host: it imports TensorFlow once and forks every task.

`messages` are the words that it and the launchers exchange.
"""
