"""How gradients are combined: a class for every strategy behind one base (TensorFlow).

`make_backend` is the only place that knows all of them; it imports only the chosen one.
"""

from __future__ import annotations

from importlib import import_module

from ps_allreduce.backends.contract import Backend, Task

#: Module in this package and class of every strategy, by the strategy's name.
BACKENDS = {
    "single": ("local_worker", "LocalWorker"),
    "no_communication": ("local_worker", "MirroredWorker"),
    "ps_async": ("parameter_servers", "AsynchronousBackend"),
    "ps_sync": ("parameter_servers", "SynchronousBackend"),
    "allreduce": ("local_worker", "AllReduceBackend"),
    "hybrid": ("parameter_servers", "HybridBackend"),
    "horovod": ("horovod", "HorovodBackend"),
    "stock_ps": ("stock.backends", "StockServersBackend"),
    "stock_allreduce": ("stock.backends", "StockAllReduceBackend"),
}

#: The same of plain TensorFlow with parts of the suite's.
ALTERED = {
    "stock_ps": ("altered_stock", "AlteredServersBackend"),
    "stock_allreduce": ("altered_stock", "AlteredAllReduceBackend"),
}


def make_backend(task: Task) -> Backend:
    """The backend of the task's strategy, not yet connected."""
    strategy = task.experiment.strategy
    module, name = (ALTERED if strategy.is_altered else BACKENDS)[strategy.kind]
    backend: Backend = getattr(import_module(f"{__name__}.{module}"), name)(task)
    return backend
