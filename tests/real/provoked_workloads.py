"""Print what TensorFlow does to workloads: late ticks, stock placement, layers that draw.

`python -m tests.real.provoked_workloads`; one process, because an import takes seconds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.private_api import leave_unordered
from ps_allreduce.fork_server.run_folder import hold_port
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.tf_texts import TASK_ENVIRONMENT
from ps_allreduce.workloads import emulated_accelerator
from ps_allreduce.workloads.keras_models import make_image_model, name_seeds, switch_off_randomness

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


class Noisy(keras.layers.Layer):
    """Draws, and has no argument by which it could be told not to."""

    def __init__(self) -> None:
        super().__init__(name="noisy")
        self.generator = keras.random.SeedGenerator(1)

    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal([3], seed=self.generator)


def drawing_model() -> keras.Model:
    """Draws in a layer, in a layer of a layer, and in the cell of a recurrent one."""
    layers = keras.layers
    nested = keras.Sequential([layers.Dropout(0.5, name="inner")], name="nested")
    given = keras.Input((4, 3))
    drawn = layers.LSTM(3, dropout=0.5, recurrent_dropout=0.5)(layers.GaussianNoise(1.0)(given))
    return keras.Model(given, nested(layers.BatchNormalization()(drawn)))


def kept_from_drawing() -> dict[str, Any]:
    """How often two calls differ before and after, what batch norm learns, and who is named."""
    model, images = drawing_model(), tf.ones([8, 4, 3]) * tf.range(8.0)[:, None, None]

    def differ() -> bool:
        first, second = (model(images, training=True).numpy() for _ in range(2))
        return bool((first != second).any())

    before = differ()
    switch_off_randomness(model)
    (norm,) = (each for each in model.layers if isinstance(each, keras.layers.BatchNormalization))
    learnt = norm.moving_mean.numpy()
    found = {"differs": [before, differ()], "seeds": sorted(name_seeds(model).values())}
    found["batch_norm_learns"] = bool((norm.moving_mean.numpy() != learnt).any())
    try:
        switch_off_randomness(keras.Sequential([keras.Input((3,)), Noisy()]))
    except UserError as error:
        found["refused"] = str(error)
    return found


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
    told["calm"] = kept_from_drawing()
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)  # servers have no clean end
