"""Print what TensorFlow does to workloads: late ticks taken off, stock placement of variables.

`python -m tests.real.provoked_workloads`; one process, because an import takes seconds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import tensorflow as tf

from ps_allreduce.exchange.private_api import leave_unordered
from ps_allreduce.fork_server.run_folder import hold_port
from ps_allreduce.point.architectures import ImageModel
from ps_allreduce.point.jitter import Distribution, Jitter
from ps_allreduce.tf_internals.texts import TASK_ENVIRONMENT
from ps_allreduce.workloads import emulated_accelerator
from ps_allreduce.workloads.keras_models import make_image_model

#: What stock TensorFlow places, and on how many servers.
MODEL = ImageModel(name="MobileNetV2", image_size=32)
NUM_PS = 3

#: For late ticks, in seconds.
LIMITS_S = (1e-6, 1e-3)

#: What is drawn, and for how many steps.
JITTER = Jitter(distribution=Distribution.LOGNORMAL, variation=0.2, seed=2**31 - 1)
STEPS = 50


def calibrated(limit_s: float) -> float:
    """Seconds that an emulated accelerator takes off for late ticks, with a limit."""
    emulated_accelerator.MOST_LATENESS_S = limit_s
    handle = emulated_accelerator.LATENESS.handle

    def calibrate() -> tf.Tensor:
        with tf.control_dependencies(emulated_accelerator._calibrate(spacing_s=0.002, count=5)):
            return emulated_accelerator.LATENESS.read(handle())

    return float(tf.function(calibrate, autograph=False)())


def drawn() -> list[float]:
    """The factors of worker 1's first steps, as its timer draws them."""

    def draw(step: tf.Tensor) -> tf.Tensor:
        return emulated_accelerator.draws(JITTER, 2, tf.constant(1, tf.int64))(step)

    return [float(each) for each in tf.data.Dataset.range(STEPS).map(draw).as_numpy_iterator()]


def created_by_stock() -> list[tf.Variable]:
    """The model's variables; servers and chief are this process, with real gRPC between them."""
    with ExitStack() as stack:
        ports = [stack.enter_context(hold_port()) for _ in range(2 + NUM_PS)]
        chief, *others = (f"127.0.0.1:{port.getsockname()[1]}" for port in ports)
        cluster = {"chief": [chief], "worker": others[:1], "ps": others[1:]}
        for job in ("worker", "ps"):
            for index in range(len(cluster[job])):
                SERVERS.append(tf.distribute.Server(cluster, job_name=job, task_index=index))
        task = {"type": "chief", "index": 0}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
    created: list[tf.Variable] = []

    def capture(next_creator: Callable[..., tf.Variable], **arguments: object) -> tf.Variable:
        created.append(next_creator(**arguments))
        return created[-1]

    with strategy.scope(), tf.variable_creator_scope(capture):
        make_image_model(MODEL)
    return created


#: Kept, because a server that nobody holds ends.
SERVERS: list[Any] = []


if __name__ == "__main__":
    os.environ.update(TASK_ENVIRONMENT)  # servers share ports that are held
    leave_unordered()
    lateness = [calibrated(limit_s) for limit_s in LIMITS_S]
    devices = [[list(variable.shape), variable.device] for variable in created_by_stock()]
    told = {"lateness": lateness, "devices": devices, "drawn": drawn()}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)  # servers have no clean end
