"""Tables on parameter servers, all else averaged among workers; a chief drives both."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ps_allreduce.backends.contract import recorded_buckets
from ps_allreduce.backends.parameter_servers import ServerBackend
from ps_allreduce.backends.worker_step import checksum
from ps_allreduce.errors import LaunchError
from ps_allreduce.exchange.hybrid_exchange import HybridExchange
from ps_allreduce.exchange.updates import UpdateRule
from ps_allreduce.record.variables import MessageRecord
from ps_allreduce.workloads.program import Program


class HybridBackend(ServerBackend):
    """The chief of servers that hold tables, and of workers that hold the rest."""

    def _make_exchange(self, program: Program, rule: UpdateRule) -> HybridExchange:
        assert self._tables is not None
        self._hybrid = HybridExchange(
            program.initial_values(),
            rule,
            self._wire.messages,
            self._experiment.num_workers,
            self._servers.num_ps,
            self._device,
            self._tables,
        )
        return self._hybrid

    def weight_checksums(self) -> list[int]:
        """Those of servers, then one of each variable of a worker, which all must agree on."""
        own = [
            [int(checksum(value)) for value in self._hybrid.read_own(worker)]
            for worker in range(self._experiment.num_workers)
        ]
        if any(sums != own[0] for sums in own):
            raise LaunchError("workers hold different values of variables that they average.")
        return [*super().weight_checksums(), *own[0]]

    def read_weights(self) -> list[npt.NDArray[np.float32]]:
        """The first worker's variables, and whole tables."""
        own = [value.numpy() for value in self._hybrid.read_own(0)]
        return self._in_order(own, self._read_tables())

    def messages(self) -> list[MessageRecord]:
        """Those of the ring, one per bucket."""
        names = [spec.name for spec in self._whole if spec.trainable]
        return recorded_buckets(self._hybrid.buckets, names)
