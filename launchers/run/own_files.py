"""Sends the copies of a user's own model to hosts that do not see the launcher's files.

Decides that a host which has them, whole, is sent nothing.  What the folder is called and when it
appears is decided in `ps_allreduce.model_files`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from launchers.fork_servers.client import ForkServerClient
from ps_allreduce.errors import HostFault, LaunchError
from ps_allreduce.fork_server.file_messages import CopiesSeen, PutFile, SeekCopies
from ps_allreduce.model_files import MANIFEST, names_in, pieces_of
from ps_allreduce.point.models.trained import OwnModel


def bring_copies(client: ForkServerClient, model: OwnModel, data_dir: Path) -> None:
    """See that a host has the copies of a model.

    Args:
        data_dir: the same folder here, where the copies are, and there.

    Raises:
        LaunchError: the copies here are gone or damaged.
        HostFault: the host refuses them.
    """
    asked = SeekCopies(data_dir=str(data_dir), digest=model.digest)
    if client.answer(asked, CopiesSeen).whole:
        return
    for piece in _pieces(model, data_dir):
        answer = client.answer(piece, CopiesSeen)
        if answer.problem:
            raise HostFault(
                f"the files of {model.name} cannot be written on {client.host}: {answer.problem}."
            )


def _pieces(model: OwnModel, data_dir: Path) -> Iterator[PutFile]:
    """Everything that is to be sent, the list of the files last."""
    folder = model.folder(data_dir)
    try:
        for name in (*names_in(folder), MANIFEST):
            offset = 0
            for content in chain(pieces_of(folder / name), [b""]):  # an empty file is one, too
                yield PutFile(
                    data_dir=str(data_dir),
                    digest=model.digest,
                    path=name,
                    offset=offset,
                    content=base64.b64encode(content).decode(),
                    last=name == MANIFEST and not content,
                )
                offset += len(content)
    except (OSError, ValueError) as error:
        raise LaunchError(
            f"the copies of {model.name} in {folder} are damaged ({error}): the same command makes "
            "them anew."
        ) from error
