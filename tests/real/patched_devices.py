"""A fork server whose tasks have other devices than this machine, for tests of device strings.

`python patched_devices.py PATCH --socket FD`
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from ps_allreduce.backends import devices
from ps_allreduce.fork_server import server
from ps_allreduce.point.resources import Device
from ps_allreduce.runner import forked_jobs, task
from tests.fake_nvml import FakeNvml, busy_gpu


def absent_gpu() -> None:
    """Graphs are made for GPUs; TensorFlow puts what asks for one on the processors."""
    forked_jobs.require_gpus = lambda kind, visible: None  # type: ignore[attr-defined]


def pretended_gpus() -> None:
    """The same, and a made-up driver tells of two small GPUs at work."""
    absent_gpu()
    memory = {"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=10**8, used=10**7)}
    two = [busy_gpu(f"GPU-{name}", values=memory) for name in ("aaaa", "bbbb")]
    sys.modules["pynvml"] = FakeNvml(*two)  # type: ignore[assignment]


def second_device() -> None:
    """Every task has two devices, of which workers compute on the second; logs tell placements."""
    devices.COMPUTE[Device.CPU] = "/device:CPU:1"
    own_proto = tf.compat.v1.ConfigProto
    tf.compat.v1.ConfigProto = functools.partial(own_proto, device_count={"CPU": 2})
    drive = task.drive

    def drive_with_two(*arguments: Any) -> None:
        (processors,) = tf.config.list_physical_devices("CPU")
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(processors, two)
        tf.debugging.set_log_device_placement(True)
        drive(*arguments)

    task.drive = drive_with_two  # type: ignore[assignment]


def out_of_memory() -> None:
    """A worker's step asks for a tensor that no machine has room for."""
    from ps_allreduce.workloads.keras_program import RealProgram

    batch = RealProgram.batch

    def greedy(self: RealProgram, *arguments: Any) -> Any:
        out = batch(self, *arguments)
        huge = tf.reduce_sum(tf.random.uniform([1_000_000, 1_000_000, 1_000]))
        out.gradients[0] += huge
        return out

    RealProgram.batch = greedy  # type: ignore[method-assign, assignment]


PATCHES: dict[str, Callable[[], None]] = {
    "no_patch": lambda: None,
    "absent_gpu": absent_gpu,
    "pretended_gpus": pretended_gpus,
    "second_device": second_device,
    "out_of_memory": out_of_memory,
}


if __name__ == "__main__":
    PATCHES[sys.argv.pop(1)]()
    server.main()
