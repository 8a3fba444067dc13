"""Collective all-reduce: every worker keeps a replica, gradients are averaged among the workers.

Decides how gradients are handed to TensorFlow's collectives.  If the experiment states bytes per
pack, TensorFlow packs them itself.  Without, gradients go through RING in buckets, several of them
under way at once (decision 0010).
"""

from __future__ import annotations

import tensorflow as tf

from ps_allreduce.backends.contract import Task
from ps_allreduce.backends.exchange_settings import messages_of, recorded_buckets
from ps_allreduce.backends.local_worker import MirroredWorker
from ps_allreduce.exchange.all_reduce import PackedMeans, RingMeans
from ps_allreduce.exchange.steps import Exchanged
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.message_records import MessageRecord
from ps_allreduce.workloads.program import Program


class AllReduceBackend(MirroredWorker):
    """Averages gradients by TensorFlow's collectives."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        strategy = task.experiment.strategy
        assert isinstance(strategy, AllReduce)
        #: How gradients travel in buckets; None for TensorFlow's packs.
        self._wire = strategy.wire
        if strategy.bytes_per_pack is not None:
            packs = PackedMeans(strategy.bytes_per_pack, strategy.collective)
            self._means: PackedMeans | RingMeans = packs
            self._options = packs.options

    def build(self, program: Program) -> None:
        """Decide which gradients travel together."""
        super().build(program)
        if self._wire is not None:
            shapes = [tuple(variable.shape) for variable in self._replica.variables]
            messages = messages_of(self._wire)
            self._means = RingMeans(shapes, messages, self._experiment.num_workers)

    def exchange(self, gradients: list[tf.Tensor]) -> Exchanged:
        """Apply the mean over all workers."""
        combined = self._means.combine(gradients)
        return self.apply(combined.units, combined.ready, combined.gradients)

    def messages(self) -> list[MessageRecord]:
        """One per bucket; with TensorFlow's packs one per variable, as before packing."""
        if isinstance(self._means, PackedMeans):
            return self.message_per_variable()
        names = [spec.name for spec in self.variables if spec.trainable]
        return recorded_buckets(self._means.buckets, names)
