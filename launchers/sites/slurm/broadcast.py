"""A copy of Python's packages on the own disk of every node of a job.

Many nodes that import TensorFlow from one shared file system read the same thousands of files at
the same time.  Decides where the copy is kept, and that it goes when the job's work is over.
"""

from __future__ import annotations

import os
import secrets
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from launchers.processes import Answer, run_quietly
from launchers.sites.slurm.step import step_environment, step_words
from ps_allreduce.errors import LaunchError
from ps_allreduce.scratch import scratch_prefix

#: Packing and sending some 2 GB to many nodes.
SPREAD_S = 1800.0

REMOVE_S = 120.0


class NodeCopy:
    """The packages of one folder, on every node below `/tmp`.

    Args:
        packages: the folder that Python imports from.
    """

    def __init__(self, hosts: Sequence[str], packages: Path) -> None:
        self._hosts = hosts
        self._packages = packages
        # Nobody can guess the name and put packages of his own there first.
        self.folder = Path(f"/tmp/ps-allreduce-packages-{secrets.token_hex(8)}")
        self._archive = self.folder.with_suffix(".tar")

    def spread(self) -> None:
        """Pack, send and unpack; whatever goes wrong, nothing stays.

        Raises:
            LaunchError: Slurm cannot send it, or a node has no room.
        """
        try:
            self._send()
            self._on_every_node("mkdir", "-m", "700", str(self.folder))
            self._on_every_node("tar", "-xf", str(self._archive), "-C", str(self.folder))
        except BaseException:
            self.remove()
            raise

    def _send(self) -> None:
        with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as packing:
            archive = Path(packing) / "packages.tar"
            with tarfile.open(archive, "w") as pack:
                pack.add(self._packages, arcname=".")
            sent = run_quietly(["sbcast", str(archive), str(self._archive)], SPREAD_S)
            _expect(sent, "sbcast")

    def remove(self) -> None:
        """Remove the copy; a node that does not answer keeps it, as its /tmp is cleaned anyway."""
        words = ("rm", "-rf", str(self.folder), str(self._archive))
        run_quietly(self._words(words), REMOVE_S, step_environment(os.environ))

    def _on_every_node(self, *command: str) -> None:
        answer = run_quietly(self._words(command), SPREAD_S, step_environment(os.environ))
        _expect(answer, command[0])

    def _words(self, command: Sequence[str]) -> list[str]:
        return step_words(dict.fromkeys(self._hosts, 1), "/tmp", command)


def _expect(answer: Answer | None, what: str) -> None:
    if answer is None or answer.status != 0:
        said = "no answer" if answer is None else " ".join(answer.err.split())[-300:]
        raise LaunchError(f"the packages could not be copied to the nodes ({what}: {said}).")
