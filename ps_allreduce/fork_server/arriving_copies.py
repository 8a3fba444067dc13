"""Copies of a user's own model that are being sent to this host.

Decides that they are written below the data folder and nowhere else, and that the folder of a model
appears under its name when all of it is there and its digest is right.
"""

from __future__ import annotations

import base64
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server.file_messages import CopiesSeen, PutFile, SeekCopies
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
