"""Synchronous parameter servers, as `exchange.synchronous` trains with them."""

from __future__ import annotations

from ps_allreduce.backends.parameter_servers.server_backend import ServerBackend
from ps_allreduce.exchange.aggregation import join_cluster, workers_by_host
from ps_allreduce.exchange.buckets import Messages
from ps_allreduce.exchange.served import ServedVariables
from ps_allreduce.exchange.synchronous import SynchronousExchange


class SynchronousBackend(ServerBackend):
    """Every update is the mean over all workers' gradients."""

    def connect(self) -> None:
        """Wait until all tasks listen, then connect to them."""
        if not self._experiment.strategy.host_aggregation:
            super().connect()
            return
        self._wait_for_servers()
        join_cluster(self._tf_config.cluster.as_dict())

    def _make_exchange(self, served: ServedVariables, messages: Messages) -> SynchronousExchange:
        aggregates = self._experiment.strategy.host_aggregation
        hosts = workers_by_host(self._tf_config.cluster.as_dict()) if aggregates else ()
        return SynchronousExchange(
            served,
            messages,
            self._experiment.num_workers,
            self._servers.num_ps,
            self._device,
            hosts,
        )
