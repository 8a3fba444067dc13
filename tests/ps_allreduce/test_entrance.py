"""An entrance where no more connections can be had; the rest of it is tested where it is used."""

from __future__ import annotations

import errno
import os
import selectors
import socket
from typing import Any

import pytest

from ps_allreduce.entrance import Entrance
from ps_allreduce.errors import HostFault


class Listener(socket.socket):
    is_full = False

    def accept(self) -> tuple[socket.socket, Any]:
        if self.is_full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_the_stranger_who_has_waited_longest_makes_room() -> None:
    with Listener() as listener, selectors.DefaultSelector() as selector:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        entrance = Entrance(listener, b"word", selector, 5.0)
        at_listener = selector.get_key(listener)
        with socket.create_connection(listener.getsockname()) as caller:
            entrance.serve(at_listener)
            (stranger,) = entrance.strangers
            said = selector.get_key(stranger.connection)
            listener.is_full = True
            entrance.serve(at_listener)
            assert caller.recv(1) == b""
            # What the selector told of it in the same moment is heard no more.
            assert entrance.serve(said) is None
        with pytest.raises(HostFault, match="no caller can be let in"):
            entrance.serve(at_listener)
