"""Print where stock TensorFlow puts a model's variables: `stock_devices.py MODEL SIZE NUM_PS`.

Servers and chief are one process, with real gRPC between them.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable

import tensorflow as tf

from ps_allreduce.point.architectures import ImageModel
from ps_allreduce.workloads.keras_models import _build


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(model: str, size: int, num_ps: int) -> None:
    """Build the model under the strategy's scope and print variable devices in creation order."""
    cluster = {
        "chief": [f"127.0.0.1:{free_port()}"],
        "worker": [f"127.0.0.1:{free_port()}"],
        "ps": [f"127.0.0.1:{free_port()}" for _ in range(num_ps)],
    }
    servers = [
        tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index)
        for job in ("worker", "ps")
        for index in range(len(cluster[job]))
    ]
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    created: list[tf.Variable] = []

    def capture(next_creator: Callable[..., tf.Variable], **arguments: object) -> tf.Variable:
        created.append(next_creator(**arguments))
        return created[-1]

    with strategy.scope(), tf.variable_creator_scope(capture):
        _build(ImageModel(name=model, image_size=size))
    devices = [[list(variable.shape), variable.device] for variable in created]
    sys.stdout.write(json.dumps(devices) + "\n")
    sys.stdout.flush()
    os._exit(0 if servers else 1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
