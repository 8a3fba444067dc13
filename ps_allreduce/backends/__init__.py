"""How gradients are combined: one module per strategy behind one protocol (TensorFlow).

`make_backend` is the only place that knows all of them; it imports the chosen one alone.
"""

from __future__ import annotations

from importlib import import_module

from ps_allreduce.backends.protocol import Backend, Task
from ps_allreduce.point.strategies import Strategy

_CLASSES = {
    Strategy.SINGLE: ("ps_allreduce.backends.single", "Single"),
    Strategy.NO_COMMUNICATION: ("ps_allreduce.backends.no_communication", "NoCommunication"),
    Strategy.PS_ASYNC: ("ps_allreduce.backends.parameter_servers.ps_async", "AsynchronousServers"),
    Strategy.PS_SYNC: ("ps_allreduce.backends.parameter_servers.ps_sync", "SynchronousServers"),
    Strategy.ALLREDUCE: ("ps_allreduce.backends.allreduce", "AllReduce"),
}


def make_backend(task: Task) -> Backend:
    """The backend of the task's strategy, not yet connected."""
    module, name = _CLASSES[task.experiment.strategy]
    backend: Backend = getattr(import_module(module), name)(task)
    return backend
