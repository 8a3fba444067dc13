"""How ranks of Horovod find each other: by a server of keys and values.

Decides that worker:0 has it, at its own address of TF_CONFIG, where TensorFlow would serve with any
other strategy, and that it serves who knows the token of the run.
"""

from __future__ import annotations

import hmac
import socket
import socketserver
import threading
from dataclasses import asdict
from http import HTTPStatus

from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from ps_allreduce.cluster import ClusterSpec, TaskType
from ps_allreduce.ranks import Place


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
