"""Which device a worker computes on.

Decides that a worker uses one device: its first GPU, or its processors.  A task refuses to start
when it finds another number of GPUs than it was given, because TensorFlow would go on without them
and tell only its log.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from ps_allreduce.cluster import TaskType
from ps_allreduce.errors import LaunchError
from ps_allreduce.point.resources import Device

COMPUTE = {Device.CPU: "/device:CPU:0", Device.GPU: "/device:GPU:0"}

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpu_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a task with GPUs, to be set before TensorFlow looks for them.

    The task sees one GPU: MultiWorkerMirroredStrategy would make a replica on each.  TensorFlow
    takes memory as it needs it, so that samples tell what the model takes, and a GPU that somebody
    else uses too is no failure at once.
    """
    return {
        VISIBLE: environment.get(VISIBLE, "").split(",")[0],
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def require_gpus(kind: TaskType, visible: str) -> None:
    """See that TensorFlow finds one GPU on a worker, and none on any other task.

    Args:
        visible: CUDA_VISIBLE_DEVICES, for the message.

    Raises:
        LaunchError: it finds more or fewer.
    """
    wanted = 1 if kind is TaskType.WORKER else 0
    visible_gpus = len(tf.config.list_physical_devices("GPU"))
    if visible_gpus == wanted:
        return
    if not tf.test.is_built_with_cuda():
        raise LaunchError(
            "this is a TensorFlow without CUDA, which cannot use GPUs: make setup TF=cuda."
        )
    raise LaunchError(
        f"TensorFlow finds {visible_gpus} GPUs where {wanted} was planned ({VISIBLE}={visible!r}): "
        "its log says why. Does nvidia-smi work on this host?"
    )
