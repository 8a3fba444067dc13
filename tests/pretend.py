"""The real fork server with tasks that only pretend to train, and what they leave behind."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from ps_allreduce.cluster import TaskId
from ps_allreduce.fork_server.messages import StartTask
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.record.raw_timings import save_raw
from ps_allreduce.record.steps import Phase
from ps_allreduce.runner.results import ClockPair, DriverResult
from ps_allreduce.serialization import to_json
from tests.fakes import make_experiment, make_steps, no_events

#: The real fork server, but for its jobs: a task executes the Python text in its `tf_config`.
FORK_SERVER_SCRIPT = """
import os, socket, sys, tempfile
from dataclasses import replace
from pathlib import Path
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.server import ForkServer
from ps_allreduce.inspection.facts import look_around
from ps_allreduce.fork_server.run_folder import Desk
from ps_allreduce.fork_server.streams import receive_stream, send_stream
from ps_allreduce.scratch import Scratch

def execute(request, report):
    exec(request.tf_config, {"report": report, "request": request})

def describe(request, report):
    shape = (request.workload.image_size,)
    spec = VariableSpec(name="v", shape=shape, dtype="float32", trainable=True)
    report("variables", variables=(spec,))

def prepare(request, report):
    Path(request.data_dir, f"prepared-{os.getppid()}").touch(exist_ok=False)
    report("input", counts={"records": 1})

def convert(request, report):
    report("progress", counts={"done": 100, "total": 150})
    report("input", counts={request.source: 100, request.target: 50})

def take_in(request, report):
    receive_stream(request.address, report)

def send_out(request, report):
    send_stream(request.address, request.port, request.seconds, report)

jobs = {
    messages.StartTask: execute,
    messages.DescribeModel: describe,
    messages.PrepareInput: prepare,
    messages.ConvertImages: convert,
    messages.ReceiveStream: take_in,
    messages.SendStream: send_out,
}
connection = socket.socket(fileno=int(sys.argv[-1]))
with Scratch(Path(tempfile.gettempdir())) as scratch:
    ready = messages.Ready(
        version=messages.VERSION,
        import_s=0.0,
        pid=os.getpid(),
        scratch=str(scratch),
        facts=look_around(os.environ),
    )
    connection.sendall(messages.encode(ready))
    ForkServer(connection, jobs, Desk(scratch)).serve()
"""

#: The command of such a server.
FAKE_SERVER = (sys.executable, "-c", FORK_SERVER_SCRIPT)


def pretending_server(folder: Path) -> tuple[str, ...]:
    """A fork server with two cores whose tasks execute `task.py` in a folder.

    The text knows `name` (the task's own), `out` (the folder), `report`, `request` and `os`.
    """
    two_cores = "facts=replace(look_around(os.environ), cores=(0, 1))"
    script = FORK_SERVER_SCRIPT.replace("facts=look_around(os.environ)", two_cores).replace(
        "exec(request.tf_config, {",
        "os.environ.update(request.environment)\n"
        f"    out = {str(folder)!r}\n"
        "    exec(open(out + '/task.py').read(), {'name': request.task, 'out': out, 'os': os, ",
    )
    return (sys.executable, "-c", script)


#: A task that did its part: it leaves what `leave_results` put into the folder.
GOOD = """
import shutil
print('trained')
report('placed', cores=request.cores, gpus=os.environ['CUDA_VISIBLE_DEVICES'])
report('connected')
index = name[-1]
for ending in ('json', 'npz'):
    shutil.copy(f'{out}/{index}.{ending}', f'{request.result}.{ending}')
report('done')
"""

#: A task that connects and leaves its process identifier; `WAIT` goes on for ever.
FOREVER = """
import time
report('connected')
open(f'{out}/{name}.new', 'w').write(str(os.getpid()))
os.rename(f'{out}/{name}.new', f'{out}/{name}.pid')
"""

WAIT = "\ntime.sleep(600)\n"


def fake_task(name: str, code: str, log: Path) -> StartTask:
    """A request to the fake fork server: execute some Python text."""
    return StartTask(
        task=name,
        host="here",
        tf_config=code,
        experiment=make_experiment(Strategy.SINGLE),
        cores=(0,),
        threads=1,
        environment={},
        data_dir="",
        log=str(log),
        result="",
    )


FIVE_STEPS = (Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 3)


def driver_result(index: int, **changes: object) -> DriverResult:
    """What a driver leaves after `FIVE_STEPS`, launched at second 100."""
    good = DriverResult(
        task=f"worker:{index}",
        connected_at=101.0 + index,
        built_at=103.0,
        first_step_at=106.0,
        warm_at=110.0,
        measured_at=115.0,
        checksums_before=(1, 2),
        checksums_after=(3, 4),
        traces_before=1,
        traces_after=1,
        requested_steps=5,
        clock_start=ClockPair(wall=0.0, monotonic=0.0),
        clock_end=ClockPair(wall=1.0, monotonic=1.0),
        gradient_bytes=88,
        num_messages=4,
    )
    return replace(good, **changes)  # type: ignore[arg-type]


def leave_results(folder: Path, *drivers: DriverResult) -> dict[TaskId, Path]:
    """Write what drivers write; the paths of their results."""
    for index, result in enumerate(drivers):
        (folder / f"{index}.json").write_text(json.dumps(to_json(result)))
        steps = make_steps(index, [1, 2, 3, 4, 5], FIVE_STEPS)
        save_raw(folder / f"{index}.npz", steps, no_events())
    return {TaskId.parse(d.task): folder / str(index) for index, d in enumerate(drivers)}
