"""Many senders to one port: buffers of switches, congestion control, placements, messages.

Axes: the buffer of a switch's port (32 KiB, 128 KiB, 4 MB), TCP's congestion control (CUBIC, Reno,
BBR), and what workers send: a ring, synchronous servers with partitioned variables or with whole
ones, and partitioned ones without a bound on messages in flight.

Method: every worker's host has a server as well.  In a ring one host sends to a port at a time, and
to a server all workers send together.  What cannot wait at a port is lost, and TCP sends it again;
if nothing follows that tells of the loss, after 200 ms.  Accelerators are emulated: a step computes
100 ms and moves 3.2 MB of gradients over links of 200 Mbit/s, so that the network decides the step
and cores do not.  Partitioned servers also have BBR and Reno, the ring BBR, behind the shallowest
and the deepest port; Reno differs from CUBIC after losses only, and a ring has none.  What this
machine's kernel lacks is left out, and the report says so.  4 steps of warm-up and 16 measured
ones, 3 launches.

Cost: 17 points, 51 launches, about 14 minutes on two cores.

It should show who suffers from a shallow buffer, how much of the rate with a deep one is left, and
whether another placement, fewer messages in flight or another congestion control help.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from experiments.studies.scope import Scope
from experiments.studies.study import SmallForm, Study, emulated, fixed_profiles
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import CONGESTION, PORT_BUFFER_BYTES
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.workload import Workload

#: Bytes that may wait at a port, from a shallow switch to a deep one.
BUFFERS = (32 << 10, 128 << 10, PORT_BUFFER_BYTES)
ENDS = (BUFFERS[0], BUFFERS[-1])

RENO, BBR = "reno", "bbr"

#: Of the small form.
WORKERS, BITS_PER_S, STEP_S, BATCH, DIVISOR = 4, 200e6, 0.1, 32, 32

#: What this kernel offers to every user.
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")

PROFILES = fixed_profiles(4, 16, launches=3)


def _points(scope: Scope) -> Iterator[Experiment]:
    for workload in scope.workloads:
        ring, cut, whole, unbounded = _sending(scope, workload)
        for point in (ring, cut, whole):
            yield from _behind_ports(point, CONGESTION, BUFFERS)
        yield from _behind_ports(unbounded, CONGESTION, ENDS)
        for point, control in ((ring, BBR), (cut, BBR), (cut, RENO)):
            if control in available():
                yield from _behind_ports(point, control, ENDS)


def _sending(scope: Scope, workload: Workload) -> Iterator[Experiment]:
    """A ring, and servers: of partitioned variables, of whole ones, without a bound in flight."""
    workers = scope.scale.workers[-1]
    servers = scope.servers_for(workers)
    yield scope.reduced(workload, workers)
    cut = scope.of_servers(workload, servers, Policy.PARTITIONED)
    whole = scope.of_servers(workload, servers, Policy.ROUND_ROBIN)
    for settings in (cut, whole, replace(cut, in_flight=0)):
        yield scope.point(workload, SynchronousServers, workers, settings)


def _behind_ports(
    point: Experiment, control: str, buffers: tuple[int, ...]
) -> Iterator[Experiment]:
    network = point.network
    if network is None:
        raise UserError("incast sets the buffers of emulated ports: use LAUNCHER=emulated.")
    for num_bytes in buffers:
        behind = replace(network, congestion=control, port_buffer_bytes=num_bytes)
        yield replace(point, network=behind)


def available() -> list[str]:
    """What this machine's kernel has."""
    return AVAILABLE.read_text(encoding="ascii").split() if AVAILABLE.is_file() else []


STUDY = Study(
    about=__doc__,
    points=_points,
    profiles=PROFILES,
    small=SmallForm(
        workloads=(emulated("ResNet50", divisor=DIVISOR, batch=BATCH, step_s=STEP_S),),
        workers=(WORKERS,),
        hosts=WORKERS,
        bandwidth=BITS_PER_S,
    ),
)
