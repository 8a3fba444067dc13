"""Which device a worker computes on.

Decides that a worker uses one device, its first GPU or its processors; that its step is traced for
that device whoever executes it; and that a task refuses to start with another number of GPUs than
it was given, because TensorFlow would go on without them and say so in its log only.

A worker's functions name the device in part, `/device:GPU:0`: TensorFlow then takes that of the
worker that executes them.  What stays on the worker's host is said where it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ps_allreduce.cluster import TaskType
from ps_allreduce.errors import LaunchError
from ps_allreduce.point.experiment import Device

COMPUTE = {Device.CPU: "/device:CPU:0", Device.GPU: "/device:GPU:0"}

VISIBLE = "CUDA_VISIBLE_DEVICES"


def on_device(device: Device, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its operations on the executing worker's device."""

    def placed(*arguments: Any) -> Any:
        with tf.device(COMPUTE[device]):
            return function(*arguments)

    return placed


def gpu_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a task with GPUs must know before TensorFlow looks around.

    One GPU, even where there are more than workers: MultiWorkerMirroredStrategy would make a
    replica on each.  Memory is taken as it is needed, so that samples tell what the model takes,
    and a GPU that somebody else uses too is no failure at once.
    """
    return {
        VISIBLE: environment.get(VISIBLE, "").split(",")[0],
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def require_gpus(kind: TaskType, visible: str) -> None:
    """See that TensorFlow finds a worker's GPU, and none on any other task.

    Args:
        visible: CUDA_VISIBLE_DEVICES, for the message.

    Raises:
        LaunchError: it finds more or fewer.
    """
    wanted = 1 if kind is TaskType.WORKER else 0
    found = len(tf.config.list_physical_devices("GPU"))
    if found == wanted:
        return
    if not tf.test.is_built_with_cuda():
        raise LaunchError(
            "this is a TensorFlow without CUDA, which cannot use GPUs: make setup TF=cuda."
        )
    raise LaunchError(
        f"TensorFlow finds {found} GPUs where {wanted} was planned ({VISIBLE}={visible!r}): its "
        "log says why. Does nvidia-smi work on this host?"
    )
