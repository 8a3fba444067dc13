"""What a host does when it is asked to look around, and what it is told about proxies."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from ps_allreduce.errors import LaunchError
from ps_allreduce.inspection import check_up, host_state, questions
from ps_allreduce.inspection.check_up import (
    BURST_BYTES,
    answer_calls,
    ask_cuda,
    check_host,
    count_gpus,
    multiply,
    send_bursts,
    share_file,
    take_bursts,
)
from ps_allreduce.inspection.host_state import call_peer
from ps_allreduce.inspection.questions import BurstsSent, Listening, SendBursts, TakeBursts
from tests.fakes import Ear

PATIENCE_S = 10.0


@pytest.fixture
def answering() -> int:
    """The port of a host that answers as n9, as long as the tests run."""
    ear = Ear()
    request = questions.AnswerCalls(address="127.0.0.9", name="n9")
    threading.Thread(target=answer_calls, args=(request, ear), daemon=True).start()
    return ear.expect(questions.Listening).port


def peer(port: int, name: str = "n9", address: str = "127.0.0.9") -> questions.Peer:
    return questions.Peer(host="n9", name=name, address=address, port=port)


def test_a_host_that_answers_is_reached_as_often_as_it_is_called(answering: int) -> None:
    assert [call_peer(peer(answering)) for _ in range(3)] == ["", "", ""]
    assert call_peer(peer(answering, name="n1")) == "n9 answers at 127.0.0.9"
    with socket.create_server(("127.0.0.9", 0)) as server:
        closed = server.getsockname()[1]
    assert call_peer(peer(closed)) == "Connection refused"


def test_a_call_that_nobody_takes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_state, "CALL_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.9", 0)) as server:  # listens, but never answers
        assert call_peer(peer(server.getsockname()[1])) == "timed out"


def test_an_address_of_another_host_cannot_be_listened_at() -> None:
    request = questions.AnswerCalls(address="192.0.2.77", name="n9")
    with pytest.raises(LaunchError, match=r"cannot listen at 192\.0\.2\.77 \(.+\)"):
        answer_calls(request, Ear())


def test_a_host_sees_itself_and_the_others(answering: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_state, "WATCH_S", 0.05)
    ear = Ear()
    known = questions.Peer(host="n9", name="n9", address="127.0.0.9", port=answering)
    unknown = questions.Peer(
        host="n1", name="no-such-name.invalid", address="127.0.0.9", port=answering
    )
    check_host(questions.CheckHost(peers=(known, unknown)), ear)
    state = ear.expect(questions.HostState)
    assert list(state.peers) == ["n9", "n1"]
    assert state.peers["n9"].unreached == ""
    assert (state.peers["n1"].resolved, state.peers["n1"].unreached) == (
        (),
        "n9 answers at 127.0.0.9",
    )
    assert 0.0 <= state.busy_share <= 1.0
    assert min(state.free_bytes, state.open_files, state.temporary.free_bytes) > 0
    assert state.temporary.problem == ""
    assert not any(address.startswith("127.") for address in state.addresses)


def share(
    folder: Path, own: str, others: tuple[str, ...], within_s: float = 1.0
) -> questions.ShareFile:
    return questions.ShareFile(folder=str(folder), own=own, others=others, within_s=within_s)


def test_hosts_see_each_others_files(tmp_path: Path) -> None:
    ears = {"n10": Ear(), "n9": Ear()}
    threads = [
        threading.Thread(target=share_file, args=(share(tmp_path, own, (other,), 10.0), ears[own]))
        for own, other in (("n10", "n9"), ("n9", "n10"))
    ]
    for thread in threads:
        thread.start()
    told = {host: ear.expect(questions.FilesShared) for host, ear in ears.items()}
    written = {host: each.written_ns or 0 for host, each in told.items()}
    seen = {host: each.seen for host, each in told.items()}
    for thread in threads:
        thread.join(PATIENCE_S)
    assert (list(seen["n10"]), list(seen["n9"])) == (["n9"], ["n10"])
    assert abs(seen["n10"]["n9"] - written["n9"]) < 5e9


def test_a_file_that_does_not_come_is_not_seen(tmp_path: Path) -> None:
    (tmp_path / "n1").write_text("half of it")
    ear = Ear()
    share_file(share(tmp_path, "n10", ("n1", "n9"), 0.3), ear)
    told = ear.expect(questions.FilesShared)
    assert told.written_ns is not None
    assert told.seen == {}


@pytest.mark.parametrize(
    ("folder", "problem"),
    [("elsewhere", "No such file or directory"), ("file", "Not a directory")],
)
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, folder: str, problem: str) -> None:
    (tmp_path / "file").touch()
    ear = Ear()
    share_file(share(tmp_path / folder, "n10", (), 0.3), ear)
    assert ear.expect(questions.FilesShared) == questions.FilesShared(problem=problem)


def test_a_folder_that_is_seen_late_is_awaited(tmp_path: Path) -> None:
    ear = Ear()
    folder = tmp_path / "late"
    timer = threading.Timer(0.5, folder.mkdir)
    timer.start()
    share_file(share(folder, "n10", (), 10.0), ear)
    timer.join(PATIENCE_S)
    assert ear.expect(questions.FilesShared).problem == ""


class Cuda:
    """A driver that shows what it is told to."""

    def __init__(self, shown: int, status: int = 0) -> None:
        self._shown = shown
        self._status = status

    def cuInit(self, flags: int) -> int:
        return self._status

    def cuDeviceGetCount(self, count: Any) -> int:
        ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = self._shown
        return 0


def missing(name: str) -> Cuda:
    raise OSError(f"{name}: cannot open shared object file")


def test_gpus_are_those_that_cuda_shows() -> None:
    assert ask_cuda(lambda _: Cuda(4)) == (4, "")
    assert ask_cuda(lambda _: Cuda(4, status=100)) == (0, "")  # none of them is visible
    assert ask_cuda(lambda _: Cuda(4, status=803)) == (0, "CUDA ends with error 803")
    assert ask_cuda(missing) == (0, "there is no CUDA driver")


def test_cuda_is_asked_with_what_a_task_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(
        check_up, "ask_cuda", lambda _: (len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")), "")
    )
    ear = Ear()
    count_gpus(questions.CountGpus(visible="2,3"), ear)
    assert ear.expect(questions.GpusCounted) == questions.GpusCounted(count=2, problem="")


def test_a_product_takes_time() -> None:
    ear = Ear()
    multiply(questions.MultiplyMatrices(size=64, seconds=0.0), ear)
    assert 0 < ear.expect(questions.MatricesMultiplied).ns < 5e9


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {}),
        ({"http_proxy": ""}, {}),
        ({"HTTP_PROXY": "proxy:1", "no_proxy": "*"}, {}),
        ({"http_proxy": "http://proxy.site:3128/"}, {"http_proxy": "proxy.site:3128"}),
        ({"https_proxy": "proxy:3128"}, {"https_proxy": "proxy:3128"}),
        ({"grpc_proxy": "http://me:secret@proxy:1"}, {"grpc_proxy": "proxy:1"}),
        ({"grpc_proxy": "me:p@ss@proxy:1/x"}, {"grpc_proxy": "proxy:1"}),
    ],
)
def test_proxies_are_told_without_passwords(
    environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert questions.grpc_proxies(environment) == expected


SENDERS = 3

TOKEN = "0123456789abcdef"


def exchange(seconds: float) -> list[BurstsSent]:
    """What every sender reports when all of them send to one."""
    taker, ears = Ear(), [Ear() for _ in range(SENDERS)]
    request = TakeBursts(address="127.0.0.1", token=TOKEN, senders=SENDERS, seconds=seconds)
    taking = threading.Thread(target=take_bursts, args=(request, taker))
    taking.start()
    port = taker.expect(Listening).port
    sending = SendBursts(address="127.0.0.1", port=port, token=TOKEN)
    senders = [threading.Thread(target=send_bursts, args=(sending, ear)) for ear in ears]
    for thread in senders:
        thread.start()
    for thread in [taking, *senders]:
        thread.join(timeout=20.0)
    return [ear.expect(BurstsSent) for ear in ears]


def test_all_send_until_the_time_is_over_and_tell_what_their_host_counted() -> None:
    short, long = exchange(0.01), exchange(0.5)
    for told in [*short, *long]:
        with socket.socket() as fresh:
            used = fresh.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert told.congestion == used.rstrip(b"\0").decode()
    # A segment over loopback holds 64 KB at most.
    few, many = ([each.tcp.sent for each in told if each.tcp] for told in (short, long))
    assert len(few) == len(many) == SENDERS
    assert min(few) > BURST_BYTES / 65536
    assert min(many) > max(few)


def test_a_kernel_that_counts_nothing_still_tells_the_congestion_control(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_up, "look_at_tcp", lambda: None)
    assert [told.tcp for told in exchange(0.01)] == [None] * SENDERS


def test_a_sender_that_hangs_up_ends_the_bursts() -> None:
    ear, failed = Ear(), []
    request = TakeBursts(address="127.0.0.1", token=TOKEN, senders=1, seconds=5.0)

    def take() -> None:
        with pytest.raises(ConnectionError):
            take_bursts(request, ear)
        failed.append(True)

    taking = threading.Thread(target=take)
    taking.start()
    place = ("127.0.0.1", ear.expect(Listening).port)
    with socket.create_connection(place) as connection:
        connection.sendall(TOKEN.encode())
    taking.join(timeout=10.0)
    assert failed == [True]
