"""What a forked process can be asked to do.

Importing this module imports all that a task needs, TensorFlow included, and executes none of it.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ps_allreduce.backends import allreduce, local_worker
from ps_allreduce.backends.devices import VISIBLE, gpu_environment, require_gpus
from ps_allreduce.backends.parameter_servers import ps_async, ps_sync
from ps_allreduce.backends.stock import stock_allreduce, stock_ps
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import InputDataError, LaunchError
from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.child import Reporter, explain_out_of_memory
from ps_allreduce.fork_server.datagrams import receive_traffic, send_traffic
from ps_allreduce.fork_server.streams import receive_stream, send_stream
from ps_allreduce.inspection import questions
from ps_allreduce.inspection.check_up import CHECK_UP_JOBS
from ps_allreduce.inspection.host_state import usable_memory
from ps_allreduce.point.inputs.data import Digits, OwnDataset, RecordFiles, Synthetic
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.resources import Device
from ps_allreduce.record.provenance import computing
from ps_allreduce.runner.own_models import MODEL_JOBS
from ps_allreduce.runner.task import run_task
from ps_allreduce.tf_internals.texts import essence
from ps_allreduce.workloads.image_lists import damage_in, existing_list, write_list
from ps_allreduce.workloads.keras_models import build_model
from ps_allreduce.workloads.record_files import (
    check_files,
    record_files,
    write_digits,
)

#: Imported here so that the fork server pays for it once, and not every task.
PRELOADED = (allreduce, local_worker, ps_async, ps_sync, stock_allreduce, stock_ps)


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
    report("placed", cores=cores, gpus=visible, settings=settings)


def describe_model(request: messages.DescribeModel, report: Reporter) -> None:
    """Report a model's variables in creation order, and what else `messages.Event` tells of it."""
    begin = time.monotonic_ns()
    model = build_model(request.workload, Path(request.data_dir))
    took = time.monotonic_ns() - begin
    counts = {"ns": took, "kept": model.kept_values(), "memory_bytes": usable_memory()}
    report("variables", variables=model.variables, counts=counts)


def prepare_input(request: messages.PrepareInput, report: Reporter) -> None:
    """Make the digits if they are the input, and check that the files can be read."""
    data, data_dir = request.workload.data, Path(request.data_dir)
    if isinstance(data, Synthetic | OwnDataset):
        report("input", counts={})
        return
    if isinstance(data, ImageFiles):
        report("input", counts={"images": write_list(data, data_dir)})
        return
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
    report("input", counts={"records": count})


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
    messages.PrepareInput: prepare_input,
    questions.ReceiveStream: receive_stream,
    questions.SendStream: send_stream,
    questions.ReceiveTraffic: receive_traffic,
    questions.SendTraffic: send_traffic,
    **MODEL_JOBS,
    **CHECK_UP_JOBS,
}
