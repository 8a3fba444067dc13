"""What a forked process can be asked to do.

Importing this module imports everything a task needs, TensorFlow included, and executes none of it.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from ps_allreduce.backends import allreduce, no_communication, single
from ps_allreduce.backends.devices import VISIBLE, gpu_environment, require_gpus
from ps_allreduce.backends.parameter_servers import ps_async, ps_sync
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import InputDataError, LaunchError
from ps_allreduce.fork_server.child import Reporter, essence
from ps_allreduce.fork_server.messages import (
    ConvertImages,
    DescribeModel,
    PrepareInput,
    ReceiveStream,
    SendStream,
    StartTask,
)
from ps_allreduce.fork_server.out_of_memory import explain_out_of_memory
from ps_allreduce.fork_server.streams import receive_stream, send_stream
from ps_allreduce.inspection.check_up import CHECK_UP_JOBS
from ps_allreduce.point.experiment import Device
from ps_allreduce.point.workload import DIGITS, SYNTHETIC
from ps_allreduce.runner.task import run_task
from ps_allreduce.workloads.data.tfrecords import (
    check_files,
    convert_images,
    record_files,
    write_digits,
)
from ps_allreduce.workloads.keras_models import build_network

#: Imported for their cost: the fork server pays it once instead of every task.
PRELOADED = (allreduce, no_communication, ps_async, ps_sync, single)


def start_task(request: StartTask, report: Reporter) -> None:
    """Be a task of a run."""
    os.environ.update(request.environment)
    uses_gpus = request.experiment.resources.device is Device.GPU
    if uses_gpus:
        os.environ.update(gpu_environment(os.environ))
    # TensorFlow leaves files of its own where temporary ones go; these go with the run.
    tempfile.tempdir = str(Path(request.log).parent)
    take_place(request, report)
    if uses_gpus:
        require_gpus(TaskId.parse(request.task).type, os.environ[VISIBLE])
    try:
        run_task(request, report)
    except tf.errors.DataLossError as error:
        source = request.experiment.workload.input
        raise InputDataError(
            f"a file of the input {source} is damaged: {essence(str(error))}. Write it again."
        ) from error
    except (tf.errors.OpError, MemoryError) as error:
        if reason := explain_out_of_memory(str(error), request.task):
            raise LaunchError(reason) from error
        raise


def take_place(request: StartTask, report: Reporter) -> None:
    """Pin this process, see that it is where the plan says, and report what it was given.

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
    report("placed", cores=cores, gpus=os.environ.get("CUDA_VISIBLE_DEVICES", "all"))


def describe_model(request: DescribeModel, report: Reporter) -> None:
    """Report a model's variables in creation order."""
    report("variables", variables=build_network(request.workload).variables)


def prepare_input(request: PrepareInput, report: Reporter) -> None:
    """Make the digits if they are asked for, and check that the files can be read."""
    name, data_dir = request.workload.input, Path(request.data_dir)
    if name == SYNTHETIC:
        report("input", counts={})
        return
    if name == DIGITS:
        write_digits(data_dir)
    report("input", counts={"records": check_files(record_files(name, data_dir))})


def convert(request: ConvertImages, report: Reporter) -> None:
    """Write a folder of images as TFRecord files."""
    source, target = Path(request.source), Path(request.target)
    counts = convert_images(source, target, lambda done, total: _tell(report, done, total))
    report("input", counts=counts)


def _tell(report: Reporter, done: int, total: int) -> None:
    if done % 100 == 0:
        report("progress", counts={"done": done, "total": total})


def take_in(request: ReceiveStream, report: Reporter) -> None:
    """Be the receiving end of a link that is measured."""
    receive_stream(request.address, report)


def send_out(request: SendStream, report: Reporter) -> None:
    """Be the sending end of a link that is measured."""
    send_stream(request.address, request.port, request.seconds, report)


JOBS: Mapping[type[Any], Callable[[Any, Reporter], None]] = {
    StartTask: start_task,
    DescribeModel: describe_model,
    PrepareInput: prepare_input,
    ConvertImages: convert,
    ReceiveStream: take_in,
    SendStream: send_out,
    **CHECK_UP_JOBS,
}
