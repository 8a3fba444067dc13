"""What the functions `dataset` and `validation_dataset` of a user's module yield.

Each takes a shard and the number of shards, and where it has such an argument the seed of the run.

Decides which datasets the suite can send to workers: those whose graph is small, and needs nothing
of the process that traced it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.pure_model import wanted
from ps_allreduce.workloads.user_code import blaming

#: Bytes of arrays in a dataset's graph, which is sent to every worker.
MOST_ARRAY_BYTES = 100_000_000

#: Operations that call back into the process that traced them, and what the user wrote.  The first
#: one comes with some of the others.
CALLS_BACK = {
    "GeneratorDataset": "Dataset.from_generator",
    "PyFunc": "tf.numpy_function",
    "PyFuncStateless": "tf.numpy_function",
    "EagerPyFunc": "tf.py_function",
}

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class DatasetExamples:
    """Single examples from functions of the user's.

    Attributes:
        structure: `tf.TensorSpec`s of one.
        validation: gives those that are held out; None where the module has no such function.
    """

    structure: Any
    function: Function
    folder: Path
    validation: Function | None = None

    def of_worker(self, worker: int, num_workers: int, seed: int) -> tf.data.Dataset:
        """The examples of one worker, not repeated."""
        return _called(self.function, self.folder, worker, num_workers, seed)

    def held_out(self) -> DatasetExamples:
        """The examples that are held out."""
        assert self.validation is not None
        return replace(self, function=self.validation)


def dataset_examples(
    function: Function, folder: Path, model: keras.Model, validation: Function | None = None
) -> DatasetExamples:
    """See what a dataset yields, and that the suite can use it.

    Raises:
        UserError: it cannot; the sentence says why.
    """
    found: list[Any] = []

    def trace() -> tf.Tensor:
        dataset = _called(function, folder, 0, 1)
        found.append(dataset.element_spec)
        return tf.data.experimental.to_variant(dataset)

    graph = tf.function(trace, autograph=False).get_concrete_function().graph
    _check_graph(graph)
    structure = _checked_structure(found[-1])
    _check_inputs(structure[0], model)
    return DatasetExamples(structure, function, folder, validation)


def check_validation(function: Function, folder: Path) -> None:
    """See that a function gives validation data.

    Raises:
        UserError: it does not.
    """
    _called(function, folder, 0, 1)


def _called(
    function: Function, folder: Path, worker: int, num_workers: int, seed: int = 0
) -> tf.data.Dataset:
    name = getattr(function, "__name__", "dataset")
    with blaming(f"{name}({worker}, {num_workers})", folder):
        dataset = function(worker, num_workers, **wanted(function, seed=seed))
    if isinstance(dataset, tf.data.Dataset):
        return dataset
    raise UserError(
        f"{name}() returned a {type(dataset).__name__}: return a tf.data.Dataset of (inputs, "
        "targets) or (inputs, targets, weights)."
    )


def _checked_structure(structure: Any) -> Any:
    if not isinstance(structure, tuple) or not 2 <= len(structure) <= 3:
        raise UserError(
            "dataset() must yield tuples (inputs, targets) or (inputs, targets, weights)."
        )
    for spec in tf.nest.flatten(structure):
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None:
            raise UserError(
                f"dataset() yields {type(spec).__name__.removesuffix('Spec')}s, or tensors of any "
                "rank: yield dense tensors, for instance with padded sequences."
            )
    return structure


def _check_inputs(inputs: Any, model: keras.Model) -> None:
    """The suite makes the batches: their size is what an experiment states."""
    pairs = list(_by_input(inputs, getattr(model, "inputs", None) or []))
    if any(spec.shape.rank == len(tensor.shape) for spec, tensor in pairs):
        raise UserError(
            "dataset() yields batches: leave .batch out, the suite makes batches of "
            "--batch-per-worker examples."
        )
    for spec, tensor in pairs:
        # Keras adds or drops a last dimension of one by itself.
        wanted = tf.TensorShape(tensor.shape[1:])
        if spec.shape.rank == wanted.rank and not spec.shape.is_compatible_with(wanted):
            raise UserError(
                f"dataset() yields examples of the shape {spec.shape}, and the model's input "
                f"{tensor.name} takes {wanted}: make them alike."
            )


def _by_input(inputs: Any, taken: Sequence[Any]) -> Iterator[tuple[tf.TensorSpec, Any]]:
    """What is given to every input of the model; nothing where that is not clear."""
    given = tf.nest.flatten(inputs)
    if isinstance(inputs, Mapping):
        yield from ((inputs[each.name], each) for each in taken if each.name in inputs)
    elif len(given) == len(taken):
        yield from zip(given, taken, strict=True)


def _check_graph(graph: Any) -> None:
    """Refuse large arrays, and what only the tracing process has."""
    arrays = sum(tensor.nbytes for tensor, _ in graph.captures if hasattr(tensor, "nbytes"))
    for tensor, _ in graph.captures:
        if tensor.dtype in (tf.resource, tf.variant):
            raise UserError(
                "dataset() uses a table, a variable or a dataset that was made outside of it (such "
                "as a StringLookup layer), which workers do not have: prepare the data beforehand."
            )
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    called = {node.op for node in nodes}
    for operation, written in CALLS_BACK.items():
        if operation in called:
            raise UserError(
                f"dataset() uses {written}, which needs this very Python process: read files with "
                "tf.data, for instance TFRecord files."
            )
    arrays += sum(_array_bytes(nodes))
    if arrays > MOST_ARRAY_BYTES:
        raise UserError(
            f"dataset() holds {arrays / 1e6:.0f} MB of arrays in its graph, above "
            f"{MOST_ARRAY_BYTES / 1e6:.0f} MB: write them to files, for instance TFRecord, and "
            "read these."
        )


def _array_bytes(nodes: list[Any]) -> Iterator[int]:
    for node in nodes:
        if node.op == "Const":
            yield node.attr["value"].tensor.ByteSize()
