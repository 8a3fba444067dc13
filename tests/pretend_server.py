"""The real fork server with made-up jobs: `python -m tests.pretend_server --socket FD`.

Its tasks execute Python text: that of their `tf_config`, or with `--tasks` that of `task.py` in a
folder.  Other options make the host another one, or let a job of a request misbehave.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ps_allreduce.errors import LaunchError
from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.child import KernelWatch
from ps_allreduce.fork_server.guard import go_on_guarded
from ps_allreduce.fork_server.line import Line
from ps_allreduce.fork_server.run_folder import RunFolder
from ps_allreduce.fork_server.server import ForkServer
from ps_allreduce.fork_server.streams import receive_stream, send_stream
from ps_allreduce.inspection import host_state, questions
from ps_allreduce.inspection.check_up import CHECK_UP_JOBS
from ps_allreduce.inspection.facts import look_around
from ps_allreduce.inspection.gpu import GpuSampler
from ps_allreduce.inspection.model_facts import FindModel, FoundModel, TriedModel, TryModel
from ps_allreduce.model_files import names_in
from ps_allreduce.point.models.trained import OwnModel, Unit
from ps_allreduce.point.optimizers import Sgd
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Precision
from ps_allreduce.process import handle_ending
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.provenance import program_digest
from ps_allreduce.scratch import scratch_folder
from tests.fake_nvml import FakeNvml, busy_gpu

Job = Callable[[Any, Any], None]

parser = argparse.ArgumentParser()
parser.add_argument("--socket", type=int, required=True)
parser.add_argument("--tasks", type=Path, help="folder with task.py; the host has two cores")
parser.add_argument("--other-kind", action="store_true", help="the host is called elsewhere")
parser.add_argument("--version", type=int, default=messages.VERSION)
parser.add_argument("--program", default=program_digest())
parser.add_argument("--ahead", type=float, default=0.0, help="seconds of the host's clock")
parser.add_argument("--busy", action="store_true", help="every other time is told late")
parser.add_argument("--gpus", nargs="+", default=[], help="identities")
parser.add_argument("--kernel", type=Path, help="root of the files of a made-up kernel")
parser.add_argument("--slow-to-detach", action="store_true", help="as on a very busy machine")
parser.add_argument("--job", nargs=2, action="append", default=[], help="request and misbehaviour")
OPTIONS = parser.parse_args()

NVML = FakeNvml(*map(busy_gpu, OPTIONS.gpus))


def execute(request: Any, report: Any) -> None:
    known = {"report": report, "request": request, "nvml": NVML}
    if OPTIONS.tasks is None:
        exec(request.tf_config, known)
        return
    os.environ.update(request.environment)
    known |= {"name": request.task, "out": str(OPTIONS.tasks), "os": os}
    exec((OPTIONS.tasks / "task.py").read_text(), known)


def describe(request: Any, report: Any) -> None:
    model = request.workload.model
    if isinstance(model, OwnModel):
        size = len(names_in(model.folder(Path(request.data_dir))))
    else:
        size = model.image_size
    spec = VariableSpec(name="v", shape=(size,), dtype="float32", trainable=True)
    report(
        messages.ModelDescribed(
            variables=(spec,),
            build_ns=1_500_000_000,
            kept_values=1000 * size,
            memory_bytes=10**9,
        )
    )


def find(request: Any, report: Any) -> None:
    files = (f"{request.root}/{request.module}", request.function, *request.arguments)
    found = FoundModel(files=files, unit=Unit.ROWS, tokens_per_example=None, has_dataset=False)
    report(found)


def try_out(request: Any, report: Any) -> None:
    tried = TriedModel(
        optimizer=Sgd(),
        precision=Precision.FLOAT32,
        notes=(request.data_dir, request.workload.model.name),
        only_whole="",
        variables=(),
        step_s=0.5,
        peak_memory_bytes=10**9,
    )
    report(tried)


def prepare(request: Any, report: Any) -> None:
    Path(request.data_dir, f"prepared-{os.getppid()}").touch(exist_ok=False)
    report(messages.InputPrepared())


def do_nothing(request: Any, report: Any) -> None:
    pass


def hang(request: Any, report: Any) -> None:
    time.sleep(600)


def complain(request: Any, report: Any) -> None:
    raise LaunchError("out of luck.")


def no_route(request: Any, report: Any) -> None:
    raise OSError(113, "No route to host")


def die(request: Any, report: Any) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


MISBEHAVIOUR: dict[str, Job] = {
    job.__name__: job for job in (do_nothing, hang, complain, no_route, die)
}


def jobs() -> dict[type[Any], Job]:
    """What is done for each kind of request."""
    made: dict[type[Any], Job] = {
        **CHECK_UP_JOBS,
        messages.StartTask: execute,
        messages.DescribeModel: describe,
        FindModel: find,
        TryModel: try_out,
        messages.PrepareInput: prepare,
        questions.ReceiveStream: receive_stream,
        questions.SendStream: send_stream,
    }
    return made | {questions.MESSAGES[name]: MISBEHAVIOUR[job] for name, job in OPTIONS.job}


def facts() -> HostFacts:
    """What the host says of itself."""
    seen = look_around(os.environ)
    if OPTIONS.tasks is not None:
        seen = replace(seen, cores=(0, 1))
    if OPTIONS.other_kind:
        seen = replace(seen, cpu_model="Another", name="elsewhere")
    return seen


class BusyRunFolder(RunFolder):
    """Tells every other time late."""

    turns = itertools.cycle([0.5, 0.0])

    def serve(self, request: object) -> object | None:
        answer = super().serve(request)
        if isinstance(answer, messages.TimeTold):
            time.sleep(next(self.turns))
        return answer


def pretend_host() -> None:
    """Make this process see another clock, a shorter check-up, or a slow machine."""
    right, detach = time.time, os.setsid

    def detach_late() -> None:
        time.sleep(0.3)
        detach()

    host_state.WATCH_S = 0.05
    if OPTIONS.ahead:
        time.time = lambda: right() + OPTIONS.ahead
    if OPTIONS.slow_to_detach:
        os.setsid = detach_late


def main() -> None:
    pretend_host()
    line = Line(OPTIONS.socket, OPTIONS.socket)
    handle_ending(lambda *_: sys.exit(0))
    serving = go_on_guarded(line)
    with scratch_folder(Path(tempfile.gettempdir())) as scratch:
        ready = messages.Ready(
            version=OPTIONS.version,
            program=OPTIONS.program,
            import_s=0.0,
            pid=os.getpid(),
            scratch=str(scratch),
            facts=facts(),
        )
        os.close(serving)
        line.sendall(messages.encode(ready))
        run_folder = (BusyRunFolder if OPTIONS.busy else RunFolder)(scratch)
        server = ForkServer(line, jobs(), run_folder)
        if OPTIONS.gpus:
            server.gpus = GpuSampler(NVML, OPTIONS.gpus)
        if OPTIONS.kernel:
            server.kernel = KernelWatch(OPTIONS.kernel)
        server.serve()


if __name__ == "__main__":
    main()
