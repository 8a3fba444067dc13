"""How a fork server gets its line to the launcher."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server.line import Line, connect_to
from ps_allreduce.record.provenance import ROOT


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_first_address_that_answers_is_taken() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        line = connect_to(f"127.0.0.1:{closed_port()},127.0.0.2:{port}")
        connection, _ = server.accept()
        with connection:
            line.sendall(b"x")
            assert connection.recv(1) == b"x"
            line.close()
            assert connection.recv(1) == b""


def test_a_line_outlives_silence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = connect_to(f"127.0.0.1:{server.getsockname()[1]}")
        assert os.get_blocking(line.source)
        with socket.socket(fileno=line.source) as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_addresses_that_do_not_answer_are_all_told() -> None:
    one, other = closed_port(), closed_port()
    with pytest.raises(LaunchError, match="the launcher cannot be reached from here") as caught:
        connect_to(f"127.0.0.1:{one},127.0.0.1:{other}")
    assert f"127.0.0.1:{one}: " in str(caught.value)
    assert f"127.0.0.1:{other}: " in str(caught.value)


def test_standard_streams_send_everything() -> None:
    source, sink = os.pipe()
    line = Line(source, sink)
    content = os.urandom(1 << 15)
    line.sendall(content)
    assert line.recv(1 << 16) == content
    assert line.fileno() == source
    line.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(source, 1)


CHATTY = """
import sys
from ps_allreduce.fork_server.line import standard_streams
line = standard_streams()
print("a warning that some module prints")
line.sendall(line.recv(100).upper())
assert sys.stdin.read() == ""
"""


def test_standard_output_belongs_to_the_line_and_prints_go_to_the_log() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHATTY],
        cwd=ROOT,
        input=b"hello",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"HELLO"), done.stderr
    assert done.stderr == b"a warning that some module prints\n"
