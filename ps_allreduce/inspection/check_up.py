"""What a forked process does when its host is checked up before a run.

Decides how each request is answered, and how bytes are sent from many hosts to one at the same
moments, as workers send to a server.  The launchers decide what of an answer is good or bad.
TensorFlow is not used.
"""

from __future__ import annotations

import ctypes
import os
import socket
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ps_allreduce.entrance import accept_known
from ps_allreduce.errors import LaunchError
from ps_allreduce.inspection import questions
from ps_allreduce.inspection.facts import look_at_tcp
from ps_allreduce.inspection.host_state import find_state
from ps_allreduce.inspection.questions import BurstsSent, Listening, Report, SendBursts, TakeBursts

#: Between a first look for the files of others, and writing one's own.
PAUSE_S = 0.2

POLL_S = 0.02

#: CUDA's error for a process that sees no GPU.
NO_DEVICE = 100


def answer_calls(request: questions.AnswerCalls, report: questions.Report) -> None:
    """Tell every caller the name of this host, until this process is ended.

    Raises:
        LaunchError: the address is none of this host.
    """
    try:
        server = socket.create_server((request.address, 0), backlog=1024)
    except OSError as error:
        raise LaunchError(f"cannot listen at {request.address} ({error.strerror}).") from error
    with server:
        report(questions.Listening(port=server.getsockname()[1]))
        while True:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(request.name.encode())


def check_host(request: questions.CheckHost, report: questions.Report) -> None:
    """Look at this host, and from here at the others."""
    report(find_state(request.peers))


def share_file(request: questions.ShareFile, report: questions.Report) -> None:
    """Write a file into a folder, and note when the other hosts' files are seen there."""
    deadline = time.monotonic() + request.within_s
    folder = Path(request.folder)
    for other in request.others:  # asked once before: file systems remember what was not there
        _holds(folder / other, other)
    time.sleep(PAUSE_S)
    problem = _write(folder / request.own, request.own, deadline)
    written_ns = None if problem else time.time_ns()
    seen: dict[str, int] = {}
    while (missing := set(request.others) - seen.keys()) and time.monotonic() < deadline:
        seen |= {other: time.time_ns() for other in missing if _holds(folder / other, other)}
        time.sleep(POLL_S)
    report(questions.FilesShared(written_ns=written_ns, problem=problem, seen=seen))


def _write(path: Path, content: str, deadline: float) -> str:
    """Why a file cannot be written; empty if it was.  A folder that is not seen yet is awaited."""
    while True:
        try:
            path.write_text(content, encoding="utf-8")
            return ""
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or time.monotonic() > deadline:
                return error.strerror or str(error)
        time.sleep(POLL_S)


def _holds(path: Path, content: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == content
    except OSError:
        return False


def count_gpus(request: questions.CountGpus, report: questions.Report) -> None:
    """Count the GPUs that CUDA shows a process with such an environment."""
    os.environ["CUDA_VISIBLE_DEVICES"] = request.visible
    count, problem = ask_cuda(ctypes.CDLL)
    report(questions.GpusCounted(count=count, problem=problem))


def ask_cuda(load: Callable[[str], Any]) -> tuple[int, str]:
    """How many GPUs CUDA shows this process, and what is wrong, which is empty if nothing is."""
    try:
        cuda = load("libcuda.so.1")
    except OSError:
        return 0, "there is no CUDA driver"
    count = ctypes.c_int()
    status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if status not in (0, NO_DEVICE):
        return 0, f"CUDA ends with error {status}"
    return count.value, ""


def multiply(request: questions.MultiplyMatrices, report: questions.Report) -> None:
    """Multiply matrices for some seconds; report the median time of one product."""
    random = np.random.default_rng(0)
    matrix = random.random((request.size, request.size), dtype=np.float32)
    product = matrix @ matrix  # the library starts its threads
    durations: list[int] = []
    end = time.monotonic() + request.seconds
    while not durations or time.monotonic() < end:
        begin = time.perf_counter_ns()
        np.matmul(matrix, matrix, out=product)
        durations.append(time.perf_counter_ns() - begin)
    report(questions.MatricesMultiplied(ns=int(statistics.median(durations))))


#: What a host sends at once: two messages of the size in which gradients travel by default.
BURST_BYTES = 1_000_000

CHUNK = 1 << 16

#: At 10 Mbit/s a burst of 20 hosts takes so long.
PATIENCE_S = 20.0

CONNECT_TIMEOUT_S = 10.0

#: Room for the kernel's name of a congestion control (TCP_CA_NAME_MAX in linux/tcp.h).
NAME_BYTES = 16


def take_bursts(request: TakeBursts, report: Report) -> None:
    """Report the port; then have all senders send at once, again and again."""
    with ExitStack() as stack:
        server = stack.enter_context(
            socket.create_server((request.address, 0), backlog=request.senders)
        )
        report(Listening(port=server.getsockname()[1]))
        senders = accept_known(server, request.senders, request.token, CONNECT_TIMEOUT_S)
        for sender in senders:
            stack.enter_context(sender)
        pool = stack.enter_context(ThreadPoolExecutor(len(senders)))
        end = time.monotonic() + request.seconds
        while time.monotonic() < end:
            list(pool.map(_take_burst, senders))


def _take_burst(connection: socket.socket) -> None:
    """Ask for one burst and take it in, while other threads take in those of others."""
    connection.settimeout(PATIENCE_S)
    connection.sendall(b"?")
    left = BURST_BYTES
    while left:
        count = len(connection.recv(min(left, CHUNK)))
        if not count:
            raise ConnectionError("the other end hung up")
        left -= count


def send_bursts(request: SendBursts, report: Report) -> None:
    """Send a burst for every byte that comes; report what this host's TCP counted."""
    before, place = look_at_tcp(), (request.address, request.port)
    with socket.create_connection(place, timeout=CONNECT_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE_S)
        connection.sendall(request.token.encode())
        content = bytes(BURST_BYTES)
        while connection.recv(1):
            connection.sendall(content)
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES)
    after = look_at_tcp()
    sent = after.since(before) if after and before else None
    report(BurstsSent(congestion=name.rstrip(b"\0").decode(), tcp=sent))


#: What is done, by the kind of request.
CHECK_UP_JOBS: Mapping[type[Any], Callable[[Any, questions.Report], None]] = {
    questions.AnswerCalls: answer_calls,
    questions.CheckHost: check_host,
    questions.ShareFile: share_file,
    questions.CountGpus: count_gpus,
    questions.MultiplyMatrices: multiply,
    questions.TakeBursts: take_bursts,
    questions.SendBursts: send_bursts,
}
