"""What is found out about a user's own model before any host is touched.

A forked process imports the original files, and tells which ones these are (`FoundModel`).  Another
one builds the model from copies of these files alone, traces a step and makes some (`TriedModel`).
No TensorFlow here: `runner.forked_jobs` finds the answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ps_allreduce.inspection.questions import Answer, Message
from ps_allreduce.point.measurement import Learning
from ps_allreduce.point.models.trained import Unit
from ps_allreduce.point.optimizers import Optimizer
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Precision, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class FindModel(Message):
    """Fork a process that imports a user's module, calls the function and reports a `FoundModel`.

    Attributes:
        root: folder that is searched first for modules; of a saved model, the file's.
        module: its name below `root`, `mine` or `package.module`; of a saved model, the file's.
        function: that returns the compiled model; empty for a saved model.
        arguments: `name=value` each; a value is read as a Python literal, else as text.
    """

    root: str
    module: str
    function: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel(Answer):
    """What the module is.

    Attributes:
        files: below `root`, that were imported, relative to it, sorted; nothing of site-packages,
            of the standard library or of this suite.
    """

    files: tuple[str, ...]
    unit: Unit
    tokens_per_example: int | None
    has_dataset: bool
    learning: Learning | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TryModel(Message):
    """Fork a process that builds an own model from its copies, and makes steps with one worker."""

    workload: Workload
    data_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedModel(Answer):
    """What a step showed.

    Attributes:
        optimizer: what the suite trains with.
        precision: what the model computes in.
        notes: what is not done as the model asks for: phrases without capital and full stop.
        only_whole: why rows of its tables cannot be exchanged alone, a phrase; empty if they can.
        variables: in creation order.
        step_s: median duration of a step on this machine, with one worker.
        peak_memory_bytes: that this worker took, with all that it has loaded.
    """

    optimizer: Optimizer
    precision: Precision
    notes: tuple[str, ...]
    only_whole: str
    variables: tuple[VariableSpec, ...]
    step_s: float
    peak_memory_bytes: int


def trainable_parameters(variables: Iterable[VariableSpec]) -> int:
    """How many numbers of a model are trained."""
    return sum(math.prod(spec.shape) for spec in variables if spec.trainable)
