"""What becomes of every question if a job hangs, its server is stopped, or its server dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from launchers.fork_servers import asking, host_servers
from launchers.fork_servers import client as client_module
from launchers.fork_servers.asking import ask_each, ask_hosts, measure_links
from launchers.fork_servers.host_servers import HostServers
from launchers.run import traffic
from launchers.run.state import RunMonitor
from launchers.run.traffic import start_traffic, streams_of
from launchers.sites.local import LocalSite
from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.messages import AskTime, TimeTold
from ps_allreduce.inspection.questions import (
    CountGpus,
    GpusCounted,
    ReceiveStream,
    ReceiveTraffic,
)
from ps_allreduce.point.network import EmulatedNetwork, Traffic
from ps_allreduce.point.strategies import AllReduce
from tests.cluster import ADDRESSES
from tests.fakes import make_experiment
from tests.pretend import FAKE_SERVER, fake_server
from tests.talk import serving

#: The host that is asked beside one that is well.
ILL = "n1"


@contextmanager
def _stopped(servers: HostServers) -> Iterator[None]:
    pid = servers.clients[ILL].ready.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _answer(servers: HostServers) -> object:
    return servers.clients[ILL].answer(AskTime(), TimeTold)


def _is_well(servers: HostServers) -> object:
    return servers.clients[ILL].is_well()


def _give_up_silent(servers: HostServers) -> object:
    return servers.give_up_silent(lambda _: None)


def _ask_hosts(servers: HostServers) -> object:
    answers = ask_hosts(servers, lambda _: CountGpus(visible=""), 0.5)
    return f"{sorted(answers.of(GpusCounted))}, {ILL}: {answers.troubles[ILL]}"


def _ask_each(servers: HostServers) -> object:
    one = servers.only([ILL])
    return ask_each(one, CountGpus(visible=""), GpusCounted, 0.5)


def _measure_links(servers: HostServers) -> object:
    links = [("n10", ILL), (ILL, "n10")]
    return measure_links(servers, links, ADDRESSES.__getitem__, seconds=0.05)


def _start_traffic(servers: HostServers) -> object:
    network = EmulatedNetwork(
        num_hosts=2, bits_per_s=1e9, traffic=(Traffic(bits_per_s=1e6, source=0, target=1),)
    )
    streams = streams_of(make_experiment(AllReduce, 2, network=network), ["n10", ILL])
    return start_traffic(servers, LocalSite(FAKE_SERVER), RunMonitor([], [], streams=streams))


GONE = "the fork server on n1, from which its tasks are forked, ended"

LATE = "CountGpus took longer than 0 s."

BESIDE = "['n10'], n1: "

#: The question, which of its jobs hangs or kills its server, and what it comes to if so; the last
#: column is of a server that is stopped.
TABLE: list[tuple[Callable[[HostServers], object], type | None, str, str, str]] = [
    (_answer, None, "", "", "the fork server on n1 does not answer within 0 s."),
    (_is_well, None, "", "", "False"),
    (_give_up_silent, None, "", "", "['n1']"),
    (_ask_hosts, CountGpus, BESIDE + LATE, BESIDE + GONE, BESIDE + LATE),
    (_ask_each, CountGpus, LATE, GONE, LATE),
    (
        _measure_links,
        ReceiveStream,
        "links cannot be measured: nothing more is heard from n1.",
        GONE,
        "links cannot be measured: nothing more is heard from n1.",
    ),
    (
        _start_traffic,
        ReceiveTraffic,
        "background traffic cannot be started: no traffic receiver n10-n1.",
        GONE,
        "background traffic cannot be started: no traffic receiver n10-n1.",
    ),
]

CASES = [
    pytest.param(asks, how, job, told, id=f"{asks.__name__[1:]}-{how}")
    for asks, job, *ends in TABLE
    for how, told in zip(("hang", "die", "stop"), ends, strict=True)
    if told
]


@pytest.mark.parametrize(("asks", "how", "job", "told"), CASES)
def test_a_question_ends_with_a_reason(
    asks: Callable[[HostServers], object],
    how: str,
    job: type | None,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_DEADLINE_S", 0.4)
    monkeypatch.setattr(client_module, "SILENT_S", 0.5)
    monkeypatch.setattr(host_servers, "SILENT_S", 0.5)
    monkeypatch.setattr(asking, "LINK_DEADLINE_S", 0.5)
    monkeypatch.setattr(asking, "END_DEADLINE_S", 0.5)
    monkeypatch.setattr(traffic, "START_DEADLINE_S", 0.5)
    ill = FAKE_SERVER if how == "stop" or job is None else fake_server("--job", job.__name__, how)
    with ExitStack() as stack:
        clients = {}
        for host, words in (("n10", FAKE_SERVER), (ILL, ill)):
            (tmp_path / host).mkdir()
            clients[host] = stack.enter_context(serving(tmp_path / host, host, words))
        for client in clients.values():
            client.wait_ready()
        servers = HostServers(clients)
        if how == "stop":
            stack.enter_context(_stopped(servers))
        try:
            end = str(asks(servers))
        except LaunchError as error:
            end = str(error).splitlines()[0]
        assert end.removesuffix(".") == told.removesuffix(".")
        assert clients[ILL].lost is (how == "die" or asks in (_answer, _give_up_silent))
        assert not clients["n10"].lost
        if how == "hang":  # what hung is ended, and its server lives
            assert clients[ILL].is_well()
