"""How tasks find out that others listen, and that a chief is gone."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from ps_allreduce.exchange import listening


def test_a_chief_that_had_nothing_to_do_is_seen_to_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "LOOKS", 1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    waiting = threading.Thread(
        target=listening.wait_until_gone, args=(f"127.0.0.1:{port}",), daemon=True
    )
    waiting.start()
    time.sleep(0.3)
    with socket.create_server(("127.0.0.1", port)) as chief:
        chief.settimeout(10.0)
        chief.accept()[0].close()
    waiting.join(10.0)
    assert not waiting.is_alive()
