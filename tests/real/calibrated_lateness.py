"""Print what an emulated accelerator takes off for late ticks, for each limit in seconds."""

from __future__ import annotations

import json
import sys

import tensorflow as tf

from ps_allreduce.tf_internals.private_api import leave_unordered
from ps_allreduce.workloads import emulated_accelerator


def calibrated(limit_s: float) -> float:
    """Seconds that are taken off with that limit."""
    emulated_accelerator.MOST_LATENESS_S = limit_s
    handle = emulated_accelerator.LATENESS.handle

    def calibrate() -> tf.Tensor:
        with tf.control_dependencies(emulated_accelerator._calibrate(spacing_s=0.002, count=5)):
            return emulated_accelerator.LATENESS.read(handle())

    return float(tf.function(calibrate, autograph=False)())


if __name__ == "__main__":
    leave_unordered()
    print(json.dumps([calibrated(float(limit)) for limit in sys.argv[1:]]))
