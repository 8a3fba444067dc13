"""Means of gradients, and workers of one host that reach the servers as one.

The first worker of a host is its leader.  The others add their gradients to accumulators on the
leader.  The leader sends their mean to the servers and passes the new values on, so that both cross
the host's link once.  Every host has equally many workers: otherwise the mean over hosts would not
be the mean over workers.

Decides which of TensorFlow's operations add gradients up, who leads whom, and what is exchanged
inside a host.  The strategy decides how a leader's gradients reach the servers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import tensorflow as tf

from .private_api import CALLS_WITHOUT_STREAM
from .servers import Cluster, Send, Sent
from .steps import hold, worker_device
from .worker_local import HOST

#: No gradient is refused as stale: workers wait for the values that their gradients lead to.
ALWAYS_FRESH = 1 << 40


def make_accumulator(size: int, name: str) -> tf.Tensor:
    """An accumulator of flat gradients, on the present device."""
    return tf.raw_ops.ResourceConditionalAccumulator(
        dtype=tf.float32, shape=[size], shared_name=name, reduction_type="MEAN"
    )


def add_gradient(accumulator: tf.Tensor, gradient: tf.Tensor) -> tf.Operation:
    """Add one gradient."""
    return tf.raw_ops.ResourceAccumulatorApplyGradient(
        handle=accumulator, local_step=tf.constant(ALWAYS_FRESH, tf.int64), gradient=gradient
    )


def take_mean(accumulator: tf.Tensor, count: int, size: int) -> tf.Tensor:
    """The mean of `count` gradients, once they are there; empties the accumulator."""
    mean = tf.raw_ops.ResourceAccumulatorTakeGradient(
        handle=accumulator, num_required=tf.constant(count), dtype=tf.float32
    )
    return tf.ensure_shape(mean, [size])


def workers_by_host(cluster: Cluster) -> list[list[int]]:
    """The workers of every host; hosts and workers in the order of the cluster specification."""
    by_host: dict[str, list[int]] = {}
    for worker, address in enumerate(cluster["worker"]):
        by_host.setdefault(address.rpartition(":")[0], []).append(worker)
    return list(by_host.values())


def join_cluster(cluster: Cluster) -> None:
    """Connect the chief, and let the workers of a host reach one another.

    ParameterServerStrategy would let them reach only servers and the chief.
    """
    filters = tf.config.experimental.ClusterDeviceFilters()
    for workers in workers_by_host(cluster):
        peers = [f"/job:worker/task:{worker}" for worker in workers]
        for worker in workers:
            filters.set_device_filters("worker", worker, ["/job:ps", "/job:chief", *peers])
    for server in range(len(cluster["ps"])):
        filters.set_device_filters("ps", server, ["/job:worker", "/job:chief"])
    os.environ.update(CALLS_WITHOUT_STREAM)
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(dict(cluster)),
        job_name="chief",
        protocol="grpc",
        cluster_device_filters=filters,
    )


class HostGroup:
    """The workers of one host, with accumulators and queues of new values on the leader.

    There is one accumulator per bucket, and one queue per bucket and follower, so that nobody takes
    the value of another.

    Attributes:
        workers: of the host, in order.
        leader: the first of them, which sends.
        values: for every other worker, the queues from which it takes new values, by bucket.
    """

    def __init__(self, workers: Sequence[int], sizes: Sequence[int]) -> None:
        """Create the leader's resources; `sizes` are elements of each bucket."""
        self.workers = tuple(workers)
        self.leader, *followers = workers
        self._sizes = sizes
        with tf.device(worker_device(self.leader)):
            self._accumulators = [
                make_accumulator(size, f"host_accumulator/{number}")
                for number, size in enumerate(sizes)
            ]
            self.values = {
                follower: [
                    _make_value_queue(size, f"values/{number}/{follower}")
                    for number, size in enumerate(sizes)
                ]
                for follower in followers
            }

    def lead(self, units: Sequence[tf.Tensor], send: Send) -> Sent:
        """Send the means of the host, and hand every new value to all followers."""
        with tf.device(HOST):  # where the accumulators are, even if the worker computes on a GPU
            means = [self._mean_with(number, unit) for number, unit in enumerate(units)]
            sent = send(means)
            for queues in self.values.values():
                for queue, value in zip(queues, sent.arrived, strict=True):
                    tf.raw_ops.QueueEnqueueV2(handle=queue, components=[value])
        return sent

    def _mean_with(self, number: int, unit: tf.Tensor) -> tf.Tensor:
        """The host's mean of a bucket, once the others have added theirs to the leader's."""
        accumulator = self._accumulators[number]
        with tf.control_dependencies([add_gradient(accumulator, unit)]):
            return take_mean(accumulator, len(self.workers), self._sizes[number])

    def follow(
        self, units: Sequence[tf.Tensor], queues: Sequence[tf.Tensor], in_flight: int
    ) -> Sent:
        """Give the gradients to the leader, and take the new values from it."""
        pushed: list[tf.Operation] = []
        arrived = []
        for number, (unit, queue) in enumerate(zip(units, queues, strict=True)):
            held = hold(unit, pushed, in_flight)
            with tf.device(worker_device(self.leader)):
                pushed.append(add_gradient(self._accumulators[number], held))
                # After the push: a step that was asked for early must not take this one's value.
                with tf.control_dependencies(pushed[-1:]):
                    (value,) = tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.float32])
            arrived.append(tf.ensure_shape(value, [self._sizes[number]]))
        return Sent(pushed=pushed, arrived=arrived)


def _make_value_queue(size: int, name: str) -> tf.Tensor:
    return tf.raw_ops.FIFOQueueV2(
        component_types=[tf.float32], shapes=[[size]], capacity=1, shared_name=name
    )
