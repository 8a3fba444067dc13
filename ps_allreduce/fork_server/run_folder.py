"""A run's folder on a host's own disk, and ports that nobody else can take.

A port is held by a socket that is bound but does not listen.  TensorFlow's server binds the same
port with SO_REUSEPORT (`TF_GRPC_REUSE_PORT`), and connections reach only the one that listens.
Files are removed when the run is over.  Copies of a user's own model arrive below the data folder;
the folder of a model gets its name when all of it is there and its digest is right.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.messages import (
    CopiesSeen,
    FileRead,
    PutFile,
    ReadFile,
    SeekCopies,
)
from ps_allreduce.model_files import DIGEST, give_name, is_inside, is_whole, models_in
from ps_allreduce.scratch import scratch_folder


@dataclass(slots=True)
class ArrivingCopies:
    """Serves what is asked and sent about copies; one folder arrives at a time.

    Attributes:
        target: the folder that is to appear; None while none arrives.
        arrived: takes the pieces until then.
        kept: removes it, unless it has got its name.
    """

    target: Path | None = None
    arrived: Path = Path()
    kept: ExitStack = field(default_factory=ExitStack)

    def serve(self, request: SeekCopies | PutFile) -> CopiesSeen:
        """Whether the copies are here, or what became of a piece of them."""
        models = models_in(Path(request.data_dir))
        if not models.is_absolute() or not DIGEST.fullmatch(request.digest):
            return CopiesSeen(problem=f"{models} / {request.digest!r} is no folder of a model")
        target = models / request.digest
        if isinstance(request, SeekCopies):
            return CopiesSeen(whole=is_whole(target, target.name))
        try:
            self._begin(target)
            self._write(request)
            return CopiesSeen(whole=request.last and self._complete(target))
        except (OSError, ValueError, HostFault) as error:
            self.give_up()
            return CopiesSeen(problem=str(error).rstrip("."))

    def _begin(self, target: Path) -> None:
        if self.target != target:
            self.give_up()
            target.parent.mkdir(parents=True, exist_ok=True)
            self.arrived = self.kept.enter_context(scratch_folder(target.parent))
            self.target = target

    def _write(self, request: PutFile) -> None:
        if not is_inside(request.path):
            raise ValueError(f"{request.path!r} is no file below the folder of a model")
        path = self.arrived / request.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            if stream.tell() != request.offset:
                raise ValueError(f"a piece of {request.path} is missing")
            stream.write(base64.b64decode(request.content, validate=True))

    def _complete(self, target: Path) -> bool:
        if not is_whole(self.arrived, target.name):
            raise ValueError(f"what arrived is not what the digest {target.name} says")
        give_name(self.arrived, target)
        self.give_up()
        return True

    def give_up(self) -> None:
        """Remove what has arrived without getting its name."""
        self.target = None
        self.kept.close()


@dataclass(slots=True)
class RunFolder:
    """Serves requests about the run's folder and ports, and for the time; these need no process.

    Attributes:
        scratch: where the folder is made.
        held: sockets that hold the run's ports.
        path: of the run's folder; None without a run.
        copies: of models that are being sent.
    """

    scratch: Path
    held: list[socket.socket] = field(default_factory=list)
    path: Path | None = None
    copies: ArrivingCopies = field(default_factory=ArrivingCopies)

    @property
    def is_there(self) -> bool:
        """Nobody has deleted the folders, as those do who tidy up `/tmp`."""
        return (self.path or self.scratch).is_dir()

    def serve(self, request: object) -> object | None:
        """The answer to a request; None where none is expected."""
        match request:
            case messages.PrepareRun(num_ports=count):
                return self._prepare_run(count)
            case ReadFile(path=path, offset=offset, length=length):
                return read_piece(Path(path), offset, length)
            case SeekCopies() | PutFile():
                return self.copies.serve(request)
            case messages.AskTime():
                return messages.TimeTold(time=time.time())
            case messages.FinishRun():
                self.finish_run()
        return None

    def _prepare_run(self, num_ports: int) -> messages.RunPrepared:
        self.finish_run()
        try:
            for _ in range(num_ports):
                self.held.append(hold_port())
            self.path = Path(tempfile.mkdtemp(prefix="run-", dir=self.scratch))
        except OSError as error:
            self.finish_run()
            return messages.RunPrepared(
                problem=f"no free port or no room in {self.scratch} ({error})"
            )
        ports = tuple(sock.getsockname()[1] for sock in self.held)
        return messages.RunPrepared(ports=ports, folder=str(self.path))

    def finish_run(self) -> None:
        """Let go of the ports and remove the files, and copies of which the rest did not come."""
        self.copies.give_up()
        for sock in self.held:
            sock.close()
        self.held.clear()
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path = None

    def close(self) -> None:
        """Remove everything that this server wrote, but whole copies of a model."""
        self.copies.give_up()
        shutil.rmtree(self.scratch, ignore_errors=True)


def hold_port() -> socket.socket:
    """Bind one free port at all addresses of both families, as TensorFlow's server will.

    Raises:
        OSError: there is none.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family is socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("", 0))
    except OSError:
        held.close()
        raise
    return held


def read_piece(path: Path, offset: int, length: int) -> FileRead:
    """A piece of a file; its size is None if the file cannot be read."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(offset)
            content = stream.read(length)
    except OSError:
        return FileRead()
    return FileRead(content=base64.b64encode(content).decode(), size=size)
