"""What a forked process can be asked to do.

Importing this module imports all that a task needs, TensorFlow included, and executes none of it.

What is found out about a user's own model is found in a process of its own each.  `find_model`
imports the original files and tells which these are.  `try_model` builds the model from copies of
them, and trains with one worker.  Both refuse in a sentence what the suite cannot train.  Nobody
waits for them forever: who asks has a deadline.
"""

from __future__ import annotations

import os
import resource
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.backends import local_worker, parameter_servers
from ps_allreduce.backends.contract import VISIBLE, Task, gpu_environment, require_gpus
from ps_allreduce.backends.local_worker import LocalWorker
from ps_allreduce.backends.stock import backends
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import InputDataError, LaunchError
from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.child import Reporter, explain_out_of_memory
from ps_allreduce.fork_server.streams import (
    receive_stream,
    receive_traffic,
    send_stream,
    send_traffic,
)
from ps_allreduce.inspection import questions
from ps_allreduce.inspection.check_up import CHECK_UP_JOBS
from ps_allreduce.inspection.host_state import usable_memory
from ps_allreduce.inspection.model_facts import FindModel, FoundModel, TriedModel, TryModel
from ps_allreduce.inspection.questions import Report
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, OwnDataset, RecordFiles, Synthetic
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models.trained import Unit
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import Single
from ps_allreduce.record.provenance import computing
from ps_allreduce.runner.task import run_task
from ps_allreduce.tf_texts import essence
from ps_allreduce.workloads.inputs import (
    check_files,
    damage_in,
    existing_list,
    record_files,
    write_digits,
    write_list,
)
from ps_allreduce.workloads.keras_models import build_model
from ps_allreduce.workloads.keras_program import RealProgram
from ps_allreduce.workloads.own_dataset import check_validation, dataset_examples
from ps_allreduce.workloads.own_model import UserModel, load_user_model, optimizer_of

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
        learning=user.learning,
    )
    report(found)


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
        notes=(*left_out, *_left_out(program.keras_model), *program.notes),
        only_whole=program.only_whole(),
        variables=program.variables,
        step_s=step_s,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )
    report(tried)


def _time_steps(worker: LocalWorker) -> float:
    """The median duration of a step, in seconds."""
    worker.run(UNTIMED_STEPS)
    taken: list[float] = []
    while len(taken) < TIMED_STEPS and sum(taken) < TIMED_S:
        begin = time.monotonic()
        worker.run(1)
        taken.append(time.monotonic() - begin)
    return median(taken)


def _left_out(model: keras.Model) -> list[str]:
    """What is not done as `fit` would do it, beside what the optimizer asks for."""
    constraints = [
        f"without your constraint of {variable.path}"
        for variable in model.trainable_variables
        if variable.constraint is not None
    ]
    return [*constraints, *["without XLA, with which fit would compile it"] * model.jit_compile]


#: Imported here so that the fork server pays for it once, and not every task.
PRELOADED = (local_worker, parameter_servers, backends)


def start_task(request: messages.StartTask, report: Reporter) -> None:
    """Be a task of a run."""
    os.environ.update(request.environment)
    uses_gpus = request.experiment.resources.device is Device.GPU
    if uses_gpus:
        os.environ.update(gpu_environment(os.environ))
    # TensorFlow leaves temporary files; in the run's folder they are removed with the run.
    tempfile.tempdir = str(Path(request.log).parent)
    take_place(request, report)
    if uses_gpus:
        require_gpus(TaskId.parse(request.task).type, os.environ[VISIBLE])
    try:
        run_task(request, report)
    except tf.errors.DataLossError as error:
        source = request.experiment.workload.data.name
        raise InputDataError(
            f"a file of the input {source} is damaged: {essence(str(error))}. The command that "
            "converted it names the file if you give it again."
        ) from error
    except (tf.errors.OpError, MemoryError) as error:
        _look_at_input(request, error)
        if reason := explain_out_of_memory(str(error), request.task):
            raise LaunchError(reason) from error
        raise


def _look_at_input(request: messages.StartTask, error: Exception) -> None:
    """What the suite has made may have been deleted meanwhile, and images may be damaged."""
    data, data_dir = request.experiment.workload.data, Path(request.data_dir)
    if isinstance(data, Digits):
        record_files(data, data_dir)
    if isinstance(data, ImageFiles):
        existing_list(data, data_dir)
        if "DecodeImage" in str(error) and (damage := damage_in(data)):
            raise InputDataError(damage) from error


def take_place(request: messages.StartTask, report: Reporter) -> None:
    """Pin this process, check that it is where the plan says, and report what it was given.

    Raises:
        LaunchError: it is on another host, or may not use the cores.
    """
    host = socket.gethostname()
    if host != request.host:
        raise LaunchError(f"planned on host {request.host} but started on {host}.")
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, request.cores)
    except OSError:
        raise LaunchError(
            f"cannot be pinned to cores {list(request.cores)} of {host}: this process may use "
            f"{allowed}."
        ) from None
    cores = tuple(sorted(os.sched_getaffinity(0)))
    settings = computing(os.environ) | {"data_layout": keras.config.image_data_format()}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    report(messages.TaskPlaced(cores=cores, gpus=visible, settings=settings))


def describe_model(request: messages.DescribeModel, report: Reporter) -> None:
    """Report a model's variables in creation order, and what else is asked of it."""
    begin = time.monotonic_ns()
    model = build_model(request.workload, Path(request.data_dir))
    took = time.monotonic_ns() - begin
    report(
        messages.ModelDescribed(
            variables=model.variables,
            build_ns=took,
            kept_values=model.kept_values(),
            memory_bytes=usable_memory(),
        )
    )


def count_rows(request: messages.CountRows, report: Reporter) -> None:
    """Report the rows that a worker asks each server for, with every way to place them."""
    program = RealProgram(request.workload, 1, Path(request.data_dir))
    program.look_up_rows()
    counted = []
    for servers in request.ways:
        if (stack := servers.stack(program.variables)) is not None:
            program.look_up_in(stack, lambda numbers: numbers)  # nothing is fetched
            counted.append(program.rows_asked(servers.num_ps))
    report(messages.RowsCounted(asked=tuple(filter(None, counted))))


def prepare_input(request: messages.PrepareInput, report: Reporter) -> None:
    """Make the digits if they are the input, and check that the files can be read."""
    data, data_dir = request.workload.data, Path(request.data_dir)
    if isinstance(data, ImageFiles):
        write_list(data, data_dir)
    elif not isinstance(data, Synthetic | OwnDataset):
        _check_records(data, data_dir)
    report(messages.InputPrepared())


def _check_records(data: Digits | RecordFiles, data_dir: Path) -> None:
    if isinstance(data, Digits):
        write_digits(data_dir)
    else:
        _see_unchanged(data)
    count = check_files(record_files(data, data_dir))
    if isinstance(data, RecordFiles) and data.num_records not in (None, count):
        raise InputDataError(
            f"the files in {data.path} hold {count} records, and data_set.json beside them tells "
            f"of {data.num_records}: convert the data again."
        )


def _see_unchanged(data: RecordFiles) -> None:
    """Other files would be measured under the name of those that were asked for."""
    if RecordFiles.found_in(Path(data.path)) != replace(data, place=None):
        raise InputDataError(
            f"the files in {data.path} on {socket.gethostname()} are not those that the sweep was "
            "planned with: copy the same files there, or begin again with these."
        )


JOBS: Mapping[type[Any], Callable[[Any, Reporter], None]] = {
    messages.StartTask: start_task,
    messages.DescribeModel: describe_model,
    messages.CountRows: count_rows,
    messages.PrepareInput: prepare_input,
    questions.ReceiveStream: receive_stream,
    questions.SendStream: send_stream,
    questions.ReceiveTraffic: receive_traffic,
    questions.SendTraffic: send_traffic,
    FindModel: find_model,
    TryModel: try_model,
    **CHECK_UP_JOBS,
}
