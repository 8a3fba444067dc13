"""A port that is held belongs to the run, and to nobody else."""

from __future__ import annotations

import errno
import socket
from typing import NoReturn

import pytest

from launchers import ports
from launchers.ports import HeldPorts
from ps_allreduce.errors import LaunchError


def bind(port: int, host: str = "127.0.0.1", reuse: bool = False) -> None:
    with socket.socket() as other:
        if reuse:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((host, port))


def test_every_task_gets_a_port_of_its_own() -> None:
    with HeldPorts(5) as held:
        assert len(set(held.numbers)) == 5
        assert held.numbers == held.numbers


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_nobody_else_can_take_a_held_port(host: str) -> None:
    with HeldPorts(1) as held, pytest.raises(OSError, match="in use") as caught:
        bind(held.numbers[0], host)
    assert caught.value.errno == errno.EADDRINUSE


def test_a_task_that_shares_ports_can_take_it_and_is_the_one_reached() -> None:
    with HeldPorts(1) as held, socket.socket() as task:
        task.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        task.bind(("127.0.0.1", held.numbers[0]))
        task.listen()
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", held.numbers[0]), timeout=5):
                connection, _ = task.accept()
                connection.close()


def test_ports_are_released() -> None:
    with HeldPorts(2) as held:
        numbers = held.numbers
    for number in numbers:
        bind(number)


def test_ports_are_released_after_a_failure() -> None:
    numbers = []

    def fail() -> NoReturn:
        with HeldPorts(1) as held:
            numbers.extend(held.numbers)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    bind(numbers[0])


def test_a_machine_without_free_ports_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[socket.socket] = []
    hold = ports._hold

    def exhausted() -> socket.socket:
        if taken:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        taken.append(hold())
        return taken[0]

    monkeypatch.setattr(ports, "_hold", exhausted)
    with pytest.raises(LaunchError, match="no free port on this machine"):
        HeldPorts(2).__enter__()
    assert taken[0].fileno() == -1
