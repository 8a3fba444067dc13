"""One of the processes that average a tensor with Horovod; what it finds goes to standard output.

It shows what an installed Horovod can do.  Of the suite it takes only how processes meet.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.client import HTTPConnection

import horovod.tensorflow as hvd
import tensorflow as tf

from ps_allreduce.backends.horovod import meeting_place, serve_meeting
from ps_allreduce.cluster import ClusterSpec, TaskType
from ps_allreduce.exchange.listening import accepts

TOKEN = "0123456789abcdef"


@tf.function
def averages(tensor: tf.Tensor) -> list[tf.Tensor]:
    """The tensor and its tenfold, each averaged over all processes, in one exchange."""
    averaged: list[tf.Tensor] = hvd.grouped_allreduce([tensor, 10 * tensor], op=hvd.Average)
    return averaged


def answers_to_strangers(address: str) -> list[int]:
    """What those hear who do not know the token."""
    heard = []
    for method in ("GET", "PUT", "DELETE"):
        for path in ("/global_/0", "/wrong:1/global_/0", "/", "*"):
            connection = HTTPConnection(address, timeout=10)
            connection.request(method, path, body=b"x")
            heard.append(connection.getresponse().status)
            connection.close()
    return heard


def main() -> None:
    """Average what only this process has with what the others have."""
    address, is_first = sys.argv[1], os.environ["HOROVOD_RANK"] == "0"
    others = [f"127.0.0.1:{rank}" for rank in range(1, int(os.environ["HOROVOD_SIZE"]))]
    if is_first:
        serve_meeting(ClusterSpec({TaskType.WORKER: (address, *others)}), TOKEN)
    os.environ |= meeting_place(address, TOKEN)
    while not accepts(address):
        time.sleep(0.05)
    strangers = {"strangers": answers_to_strangers(address)} if is_first else {}
    hvd.init()
    own = tf.constant([1.0, 2.0]) * float(hvd.rank() + 1)
    found = {
        "gloo_built": hvd.gloo_built(),
        "mpi_built": hvd.mpi_built(),
        "size": hvd.size(),
        "sum": hvd.allreduce(own, op=hvd.Sum).numpy().tolist(),
        "averages": [tensor.numpy().tolist() for tensor in averages(own)],
    }
    print(json.dumps(found | strangers))
    hvd.shutdown()


main()
