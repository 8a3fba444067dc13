"""What hosts try out: computing, their links, bursts, files that they share, building a model.

Decides what is measured, that a host or link that seems slow is measured again (where others
compute as well, one slow moment says nothing), and that no trace is left of the files.  All hosts
build a model at once, from what they have; the files of a user's own model are sent to those that
do not see the ones here, as before a run.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from launchers.doctor.check_findings import Building, Bursts, Sharing
from launchers.doctor.checks.speed import slow_links, slower_than_others
from launchers.fork_servers.asking import Answers, ask_hosts, measure_links
from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers, bring_copies
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import DescribeModel, EndAll, ModelDescribed
from ps_allreduce.inspection.model_facts import trainable_parameters
from ps_allreduce.inspection.questions import (
    BurstsSent,
    FilesShared,
    Listening,
    MatricesMultiplied,
    MultiplyMatrices,
    SendBursts,
    ShareFile,
    TakeBursts,
)
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import TcpCounters
from ps_allreduce.record.records import LinkRecord

#: Large enough for the library to use all cores, small enough for many products in a second.
SIZE = 1024

SECONDS = 1.0

#: How often a host or link that seems slow is measured, the first time included; the best counts.
ATTEMPTS = 3

#: A loaded machine may take long over what should take a second.
DEADLINE_S = 60.0

#: Two multiplications and additions per element and term.
OPERATIONS = 2 * SIZE**3

#: NFS may remember for so long that a file is not there.  Source: nfs(5), acdirmin.
WITHIN_S = 35.0

ANSWER_S = 15.0

#: Models that people train are built in seconds; hosts of one machine share its cores.
BUILD_S = 300.0

LOOK_S = 3.0

POLL_S = 0.05

PREFIX = "ps-allreduce-doctor-"

Pair = tuple[str, str]


def measure_computing(servers: HostServers) -> dict[str, float]:
    """Floating-point operations per second of every host, while all of them compute."""
    best: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        best |= {host: max(rate, best.get(host, 0.0)) for host, rate in _multiply(servers).items()}
        if not slower_than_others(best):
            break
    return best


def _multiply(servers: HostServers) -> dict[str, float]:
    request = MultiplyMatrices(size=SIZE, seconds=SECONDS)
    multiplied = ask_hosts(servers, lambda _: request, DEADLINE_S).of(MatricesMultiplied)
    return {host: OPERATIONS * 1e9 / each.ns for host, each in multiplied.items()}


def measure_all_links(
    servers: HostServers,
    pairs: Sequence[Pair],
    address_of: Callable[[str], str],
    tell: Callable[[str], None],
) -> tuple[tuple[LinkRecord, ...], str]:
    """Measure the links of all pairs, and those that are slow again.

    Args:
        pairs: those that can reach each other.
        tell: told before every round.

    Returns:
        What was measured, and why that came to an end; empty if it did not.
    """
    best: dict[Pair, LinkRecord] = {}
    rounds = _rounds(servers, pairs)
    suspects = {link for links in rounds for link in links}
    try:
        for again in ["", *[", slow ones again"] * (ATTEMPTS - 1)]:
            for number, links in enumerate(rounds, start=1):
                if wanted := [link for link in links if link in suspects]:
                    tell(f"links, round {number} of {len(rounds)}{again}")
                    _measure(servers, wanted, address_of, best)
            suspects = {(link.source, link.target) for link in slow_links(list(best.values()))}
    except LaunchError as error:
        return tuple(best.values()), str(error).splitlines()[0]
    return tuple(best.values()), ""


def _rounds(servers: HostServers, pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The links of the pairs, from and to."""
    wanted = {*pairs, *((b, a) for a, b in pairs)}
    rounds = [
        [link for a, b in together for link in ((a, b), (b, a)) if link in wanted]
        for together in rounds_of_pairs(list(servers.clients))
    ]
    return [links for links in rounds if links]


def rounds_of_pairs(hosts: Sequence[str]) -> list[list[Pair]]:
    """Every pair once, in as few rounds as possible, in each of which a host is in one pair.

    Source: the circle method of round-robin tournaments: one host stays, the others go round.
    """
    places: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    half = len(places) // 2
    rounds = []
    for _ in range(len(places) - 1):
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        rounds.append([(a, b) for a, b in facing if a is not None and b is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return [pairs for pairs in rounds if pairs]


def _measure(
    servers: HostServers,
    links: Sequence[Pair],
    address_of: Callable[[str], str],
    best: dict[Pair, LinkRecord],
) -> None:
    for link in measure_links(servers, links, address_of):
        key = (link.source, link.target)
        if key not in best or link.bits_per_s > best[key].bits_per_s:
            best[key] = link


def try_bursts(
    servers: HostServers, target: str, senders: Sequence[str], address: str
) -> Bursts | None:
    """Have some hosts send to one at the same moments; None if one of them could not.

    Args:
        address: of the target.
    """
    token = secrets.token_hex(16)
    take = TakeBursts(address=address, token=token, senders=len(senders), seconds=SECONDS)
    taking = ask_hosts(servers.only([target]), lambda _: take, DEADLINE_S, until=Listening)
    listening = taking.of(Listening).get(target)
    if listening is None:
        return None
    send = SendBursts(address=address, port=listening.port, token=token)
    answers = ask_hosts(servers.only(senders), lambda _: send, DEADLINE_S)
    with suppress(LaunchError):
        servers.clients[target].send(EndAll())
    return _bursts(target, answers.of(BurstsSent)) if not answers.troubles else None


def _bursts(target: str, sent: Mapping[str, BurstsSent]) -> Bursts:
    counters = [each.tcp for each in sent.values() if each.tcp is not None]
    return Bursts(
        target=target,
        congestion={host: each.congestion for host, each in sent.items()},
        tcp=TcpCounters.together(counters) if len(counters) == len(sent) else None,
    )


def try_sharing(
    servers: HostServers, results: Path, offsets: Mapping[str, float], *, shared: bool
) -> Sharing:
    """Have every host write a file, and see that all others get to see it.

    Args:
        offsets: seconds by which the hosts' clocks are ahead of this one.
        shared: hosts are expected to share files; else only this process writes one.
    """
    try:
        with _folder_below(results) as folder:
            if not shared:
                return Sharing()
            answers = _share(servers, folder)
            told = answers.of(FilesShared)
            written = [host for host, each in told.items() if each.written_ns is not None]
            unseen = [host for host in written if not _is_there(folder / host)]
    except OSError as error:
        return Sharing(refused=error.strerror or str(error))
    return Sharing(
        unwritable=answers.troubles | {h: e.problem for h, e in told.items() if e.problem},
        delays_s=_delays(told, offsets),
        unseen_here=tuple(unseen),
    )


@contextmanager
def _folder_below(results: Path) -> Iterator[Path]:
    """A folder in the results folder; what had to be made for it is removed again.

    Raises:
        OSError: it cannot be made.
    """
    made = [path for path in (results, *results.parents) if not path.exists()]
    results.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory("", PREFIX, results, ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    finally:
        for path in made:
            with suppress(OSError):
                path.rmdir()


def _share(servers: HostServers, folder: Path) -> Answers:
    hosts = servers.reachable.clients

    def share_with_others(client: ForkServerClient) -> ShareFile:
        return ShareFile(
            folder=str(folder),
            own=client.host,
            others=tuple(other for other in hosts if other != client.host),
            within_s=WITHIN_S,
        )

    return ask_hosts(servers, share_with_others, WITHIN_S + ANSWER_S)


def _is_there(path: Path) -> bool:
    deadline = time.monotonic() + LOOK_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return path.exists()


def _delays(
    told: Mapping[str, FilesShared], offsets: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """On one clock; what was seen at once took no time."""
    written = {
        host: each.written_ns / 1e9 - offsets.get(host, 0.0)
        for host, each in told.items()
        if each.written_ns is not None
    }
    return {
        reader: {
            writer: max(0.0, ns / 1e9 - offsets.get(reader, 0.0) - written[writer])
            for writer, ns in each.seen.items()
            if writer in written
        }
        for reader, each in told.items()
    }


def build_everywhere(
    servers: HostServers, workload: Workload, data_dir: Path, *, shares_files: bool
) -> Building:
    """Build a model on every host that still answers.

    Args:
        data_dir: the same folder here and there.
        shares_files: hosts see the files that are here.
    """
    refused = {} if shares_files else _bring(servers, workload, data_dir)
    request = DescribeModel(workload=workload, data_dir=str(data_dir))
    able = servers.only(host for host in servers.clients if host not in refused)
    answers = ask_hosts(able, lambda _: request, BUILD_S)
    built = answers.of(ModelDescribed)
    return Building(
        model=workload.model.name,
        refused=refused | answers.troubles,
        built_s={host: each.build_ns / 1e9 for host, each in built.items()},
        parameters={host: trainable_parameters(each.variables) for host, each in built.items()},
    )


def _bring(servers: HostServers, workload: Workload, data_dir: Path) -> dict[str, str]:
    """Send the files of a user's own model; why some hosts did not take them."""
    if not isinstance(workload.model, OwnModel):
        return {}
    refused = {}
    for host, client in servers.reachable.clients.items():
        try:
            bring_copies(client, workload.model, data_dir)
        except LaunchError as error:
            refused[host] = str(error).splitlines()[0]
    return refused
