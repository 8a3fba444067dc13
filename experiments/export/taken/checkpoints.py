"""Checkpoints: NumPy archives that are whole or not there.

Decides names, that the last two are kept, and that a damaged one is passed over.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

KEPT = 2

#: What a damaged archive raises.
DAMAGED = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a training goes on from.

    Attributes:
        step: how many were made.
        values: of the trainable variables, in the order of their creation.
        slots: what the optimizer keeps beside each of them.
        state: of the other variables: batch-norm statistics, seeds of dropout.
    """

    step: int
    values: Sequence[Array]
    slots: Sequence[Sequence[Array]]
    state: Sequence[Array]

    def arrays(self) -> dict[str, Array]:
        """All of it by name, in the same order for the same model."""
        return {
            "step": np.asarray(self.step, np.int64),
            **{f"value/{i:05d}": value for i, value in enumerate(self.values)},
            **{
                f"slot/{i:05d}/{kind}": slot
                for i, kept in enumerate(self.slots)
                for kind, slot in enumerate(kept)
            },
            **{f"state/{i:05d}": value for i, value in enumerate(self.state)},
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Checkpoint:
        """A checkpoint from what `arrays` gave."""
        values = [arrays[name] for name in sorted(arrays) if name.startswith("value/")]
        slots: list[list[Array]] = [[] for _ in values]
        for name in sorted(arrays):
            if name.startswith("slot/"):
                slots[int(name.split("/")[1])].append(arrays[name])
        state = [arrays[name] for name in sorted(arrays) if name.startswith("state/")]
        return cls(int(arrays["step"]), values, slots, state)

    def check_is_like(self, other: Checkpoint) -> None:
        """See that both are of one model and optimizer.

        Raises:
            SystemExit: they are not.
        """
        mine, theirs = (
            {name: array.shape for name, array in each.arrays().items()} for each in (self, other)
        )
        for name in mine.keys() | theirs.keys():
            if mine.get(name) != theirs.get(name):
                raise SystemExit(
                    f"The newest checkpoint is of another model or optimizer ({name} has the shape "
                    f"{mine.get(name)} there and {theirs.get(name)} here): move the checkpoints "
                    "away, or state another --folder."
                )


def means(by_worker: Sequence[Sequence[Array]]) -> list[Array]:
    """The mean of all workers' states, of whole numbers that of the first worker."""
    return [
        np.mean(held, axis=0).astype(held[0].dtype) if held[0].dtype.kind == "f" else held[0]
        for held in zip(*by_worker, strict=True)
    ]


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint so that it is there as a whole, and remove older ones."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{checkpoint.step:09d}.npz"
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **checkpoint.arrays())
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(path)
    for old in sorted(folder.glob("step-*.npz"))[:-KEPT]:
        old.unlink()
    return path


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there is none."""
    for path in sorted(folder.glob("step-*.npz"), reverse=True):
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                found = Checkpoint.of({name: archive[name] for name in archive.files})
        except DAMAGED as error:
            print(f"{path} is damaged and passed over ({error}).", flush=True)
        else:
            print(f"Going on from {path}.", flush=True)
            return found
    return None
