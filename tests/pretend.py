"""The real fork server with tasks that only pretend to train, and what they leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ps_allreduce.cluster import TaskId
from ps_allreduce.fork_server.messages import StartTask
from ps_allreduce.point.measurement import FixedWarmup, Measurement, WarmupEnd
from ps_allreduce.point.strategies import Single
from ps_allreduce.record.files import save_raw
from ps_allreduce.record.step_table import Phase
from ps_allreduce.runner.validity import ClockPair, DriverResult
from ps_allreduce.serialization import to_json
from tests.fakes import make_experiment, make_steps, no_events


def fake_server(*options: str) -> tuple[str, ...]:
    """The command of the real fork server with made-up jobs (`tests.pretend_server`)."""
    return (sys.executable, "-m", "tests.pretend_server", *options)


#: One whose tasks execute the Python text in their `tf_config`.
FAKE_SERVER = fake_server()


def pretending_server(folder: Path, *options: str) -> tuple[str, ...]:
    """A fork server with two cores whose tasks execute `task.py` in a folder.

    The text knows `name` (the task's own), `out` (the folder), `report`, `request` and `os`.
    """
    return fake_server("--tasks", str(folder), *options)


#: A task that did its part: it leaves what `leave_results` put into the folder.
GOOD = """
import shutil
print('trained')
from ps_allreduce.fork_server.messages import TaskPlaced
report(TaskPlaced(cores=request.cores, gpus=os.environ['CUDA_VISIBLE_DEVICES']))
report('connected')
index = name[-1]
for ending in ('json', 'npz'):
    shutil.copy(f'{out}/{index}.{ending}', f'{request.result}.{ending}')
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
        experiment=make_experiment(Single),
        cores=(0,),
        threads=1,
        environment={},
        data_dir="",
        log=str(log),
        result="",
    )


#: What drivers that leave `FIVE_STEPS` were asked for.
SHORT = Measurement(warmup=FixedWarmup(least_steps=2, least_s=1.0), measured_steps=3)

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
        warmup_end=WarmupEnd.FIXED,
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


@contextmanager
def idle_process(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own that is seen to have its environment.

    It ends when this end of its pipe is closed.  Linux closes descriptors, which lets `Popen`
    return, before it shows the new environment; so the process answers first.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["cat"], env=environment, stdin=pipe, stdout=pipe, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"started\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"started\n"
        yield process
