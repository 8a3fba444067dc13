"""What is found out about a user's own model, in a process of its own each (TensorFlow).

`find_model` imports the original files and tells which these are.  `try_model` builds the model
from copies of them, and trains with one worker.  Both refuse in a sentence what the suite cannot
train.  Nobody waits for them forever: who asks has a deadline.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.backends.contract import Task
from ps_allreduce.backends.local_worker import LocalWorker
from ps_allreduce.inspection.model_facts import FindModel, FoundModel, TriedModel, TryModel
from ps_allreduce.inspection.questions import Report
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.names import Unit
from ps_allreduce.point.strategies import Single
from ps_allreduce.workloads.compiled_optimizer import optimizer_of
from ps_allreduce.workloads.keras_program import RealProgram
from ps_allreduce.workloads.own_dataset import check_validation, dataset_examples
from ps_allreduce.workloads.own_model import UserModel, load_user_model

#: Steps before those that are timed: the first one traces.
UNTIMED_STEPS = 2

#: So many steps are timed, or as many as fit into so many seconds.
TIMED_STEPS, TIMED_S = 10, 5.0


def find_model(request: FindModel, report: Report) -> None:
    """Report the files, and what the examples are."""
    root = Path(request.root)
    user = load_user_model(root, request.module, request.function, request.arguments)
    if user.validation is not None:
        check_validation(user.validation, root)
    specs = _input_specs(user, root)
    unit = user.unit or (Unit.IMAGES if _is_image(specs) else Unit.ROWS)
    found = FoundModel(
        files=user.files,
        unit=unit,
        tokens_per_example=_length_of(specs) if unit is Unit.TOKENS else None,
        has_dataset=user.dataset is not None,
    )
    report("model", found=found)


def _input_specs(user: UserModel, root: Path) -> list[tf.TensorSpec]:
    """Of one example; none where neither the model nor a dataset tells."""
    if inputs := getattr(user.keras_model, "inputs", None):
        return [tf.TensorSpec(tensor.shape[1:], tensor.dtype) for tensor in inputs]
    if user.dataset is None:
        return []
    structure = dataset_examples(user.dataset, root, user.keras_model).structure
    return list(tf.nest.flatten(structure[0]))


def _is_image(specs: list[tf.TensorSpec]) -> bool:
    return len(specs) == 1 and specs[0].shape.rank == 3 and specs[0].shape[-1] in (1, 3)


def _length_of(specs: list[tf.TensorSpec]) -> int | None:
    """Tokens of an example: the length of the first input of integers; of the first, if none is."""
    sequences = [spec for spec in specs if spec.shape.rank]
    whole = [spec for spec in sequences if spec.dtype.is_integer]
    first = (whole or sequences)[:1]
    return int(first[0].shape[0]) if first and first[0].shape[0] else None


def try_model(request: TryModel, report: Report) -> None:
    """Train with one worker as the strategy `single` does, and report what showed."""
    program = RealProgram(request.workload, 1, Path(request.data_dir))
    optimizer, left_out = optimizer_of(program.keras_model.optimizer)
    workload = replace(request.workload, optimizer=optimizer)
    experiment = Experiment(strategy=Single(), num_workers=1, workload=workload)
    worker = LocalWorker(Task(experiment=experiment, tf_config=None))
    worker.connect()
    worker.build(program)
    step_s = _time_steps(worker)
    tried = TriedModel(
        optimizer=optimizer,
        precision=program.precision,
        notes=(*left_out, *_constraints(program.keras_model), *program.notes),
        variables=program.variables,
        step_s=step_s,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )
    report("model", tried=tried)


def _time_steps(worker: LocalWorker) -> float:
    """The median duration of a step, in seconds."""
    worker.run(UNTIMED_STEPS)
    taken: list[float] = []
    while len(taken) < TIMED_STEPS and sum(taken) < TIMED_S:
        begin = time.monotonic()
        worker.run(1)
        taken.append(time.monotonic() - begin)
    return median(taken)


def _constraints(model: keras.Model) -> list[str]:
    return [
        f"without your constraint of {variable.path}"
        for variable in model.trainable_variables
        if variable.constraint is not None
    ]


MODEL_JOBS: Mapping[type[Any], Callable[[Any, Report], None]] = {
    FindModel: find_model,
    TryModel: try_model,
}
