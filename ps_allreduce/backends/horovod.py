"""Horovod: every worker keeps a replica, Horovod averages gradients among the workers over Gloo.

Decides how gradients are handed over; which of them travel together, Horovod decides at run time.
Ranks find each other by a server of keys and values.  worker:0 has it, at its own address of
TF_CONFIG, where TensorFlow would serve with any other strategy, and it serves who knows the token
of the run.
"""

from __future__ import annotations

import hmac
import os
import socket
import socketserver
import threading
import time
from dataclasses import asdict
from http import HTTPStatus

import horovod.tensorflow as hvd
import psutil
import tensorflow as tf
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from ps_allreduce.backends.contract import COMPUTE, Task
from ps_allreduce.backends.local_worker import LocalWorker
from ps_allreduce.cluster import MEETING_TOKEN, ClusterSpec, Place, TaskType
from ps_allreduce.errors import LaunchError
from ps_allreduce.exchange.listening import accepts
from ps_allreduce.exchange.replica import Alone
from ps_allreduce.exchange.steps import Exchanged
from ps_allreduce.point.strategies import Horovod
from ps_allreduce.record.variables import MessageRecord

#: A worker that is slower than this is lost; Horovod's own 30 s are shorter than some steps.
PATIENCE_S = 600


class Ranked(Alone):
    """A worker among the ranks of Horovod."""

    def largest(self, value: float) -> float:
        """The largest value of all workers."""
        given = hvd.allgather(tf.constant([value], tf.float64), name="agreement")
        return float(tf.reduce_max(given).numpy())


class HorovodBackend(LocalWorker):
    """Averages gradients by Horovod."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        strategy = task.experiment.strategy
        assert isinstance(strategy, Horovod)
        self._settings = strategy

    def connect(self) -> None:
        """Return once all ranks have met."""
        config = self._task.tf_config
        assert config is not None
        workers = config.cluster.addresses[TaskType.WORKER]
        hosts = [address.rpartition(":")[0] for address in workers]
        place = Place.of(hosts, config.task.index)
        os.environ |= place.environment() | {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            **meeting_place(workers[0], os.environ[MEETING_TOKEN]),
            "HOROVOD_GLOO_IFACE": interface_of(hosts[place.rank]),
            "HOROVOD_HOSTNAME": hosts[place.rank],
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(PATIENCE_S),
            "HOROVOD_FUSION_THRESHOLD": str(self._settings.fusion_bytes),
            "HOROVOD_CYCLE_TIME": str(self._settings.cycle_ms),
        }
        if place.rank == 0:
            self._meeting = serve_meeting(config.cluster, os.environ[MEETING_TOKEN])
        while not accepts(workers[0]):  # Horovod itself gives up after some seconds
            time.sleep(0.05)
        hvd.init()
        self._workers = Ranked(COMPUTE[self._experiment.resources.device])

    def exchange(
        self, gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
    ) -> Exchanged:
        """Apply the mean over all workers."""
        means = [
            hvd.allreduce(gradient, op=hvd.Average, name=f"gradient_{number}")
            for number, gradient in enumerate(gradients)
        ]
        return self.apply(gradients, means, means)

    def messages(self) -> list[MessageRecord]:
        """One per variable, as before fusion."""
        return self.message_per_variable()


def interface_of(host: str) -> str:
    """The interface of this machine that has the address of a host.

    Raises:
        LaunchError: none has it.
    """
    address = socket.gethostbyname(host)
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return name
    raise LaunchError(f"no network interface here has the address {address} of {host}.")


def meeting_place(address: str, token: str) -> dict[str, str]:
    """What tells Horovod where ranks meet.

    It asks for `http://ADDR:PORT/scope/key` and has no place for a token: ours begins the path.
    """
    host, _, port = address.rpartition(":")
    return {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": f"{socket.gethostbyname(host)}:{port}/{token}",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
    }


class _Handler(RendezvousHandler):
    """Serves who knows the token."""

    server: _Meeting
    path: str

    def parse_request(self) -> bool:
        """Take the token off the path, and send away who does not know it."""
        if not super().parse_request():
            return False
        token, slash, asked = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.send_status_code(HTTPStatus.FORBIDDEN)
            return False
        self.path = slash + asked
        return True


class _Meeting(RendezvousHTTPServer):
    """Shares the port with the fork server, which holds it until the run is over.

    Attributes:
        token: how the path of every request begins.
    """

    allow_reuse_port = True
    token = ""

    def server_bind(self) -> None:
        """Bind, and ask no name server who we are."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


def serve_meeting(cluster: ClusterSpec, token: str) -> _Meeting:
    """Serve the keys and values by which ranks find each other, until this process ends.

    A key may go when all ranks that share its scope have met, so the server knows their places.
    """
    workers = cluster.addresses[TaskType.WORKER]
    hosts = [address.rpartition(":")[0] for address in workers]
    port = workers[0].rpartition(":")[2]
    server = _Meeting((hosts[0], int(port)), _Handler, False)
    server.token = f"{token}:{port}"  # so Horovod puts them together
    places = [Place.of(hosts, rank) for rank in range(len(hosts))]
    server.init([SlotInfo(hosts[place.rank], **asdict(place)) for place in places])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
