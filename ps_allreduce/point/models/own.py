"""A model that users bring, as far as it takes to check a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ps_allreduce.model_files import models_in
from ps_allreduce.point.models.names import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A model that the user's own code builds, or that a `.keras` file holds.

    Building it is the business of `workloads.own_model`.

    Attributes:
        name: as the user wrote it: `mine.py:build`, `package.module:build`, `saved.keras`.
        module: its name below the folder of the files; of a saved model, the file's.
        function: that returns the compiled model; empty for a saved model.
        arguments: `name=value` each, in the order of their names.
        digest: of the names and contents of all files.
        unit: what the model's examples are.
        tokens_per_example: of text; None for everything else.
        has_dataset: the module has a function `dataset(shard, num_shards)`.
        notes: what is not done as the model asks for: phrases without capital and full stop.
    """

    kind: ClassVar[str] = "own_model"
    computes: ClassVar[bool] = True

    name: str = field(compare=False)
    module: str
    function: str
    arguments: tuple[str, ...] = ()
    digest: str
    unit: Unit = Unit.ROWS
    tokens_per_example: int | None = None
    has_dataset: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)

    def folder(self, data_dir: Path) -> Path:
        """Where the copies of its files lie on a host."""
        return models_in(data_dir) / self.digest

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        return {
            "model": self.name,
            "model_digest": self.digest,
            "model_arguments": ", ".join(self.arguments) or None,
        }
