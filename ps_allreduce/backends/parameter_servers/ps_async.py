"""Asynchronous parameter servers, as `exchange.asynchronous` trains with them."""

from __future__ import annotations

from ps_allreduce.backends.parameter_servers.server_backend import ServerBackend
from ps_allreduce.exchange.asynchronous import AsynchronousExchange
from ps_allreduce.exchange.buckets import Messages
from ps_allreduce.exchange.served import ServedVariables
from ps_allreduce.point.strategies import AsynchronousServers


class AsynchronousBackend(ServerBackend):
    """Each worker computes and applies without waiting for the others."""

    def _make_exchange(self, served: ServedVariables, messages: Messages) -> AsynchronousExchange:
        strategy = self._experiment.strategy
        assert isinstance(strategy, AsynchronousServers)
        return AsynchronousExchange(
            served,
            messages,
            self._experiment.num_workers,
            self._device,
            self._coordinator,
            strategy.staleness,
            strategy.steps_per_dispatch,
        )
