"""What is kept of a run however it ended: who is to blame, what was used, what was the limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchers.run.conclude import conclude, failure_reason
from launchers.run.samples import machine_busy, throttling_warnings
from launchers.run.state import LaunchRequest, RunMonitor, RunState, log_path, result_path
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.fork_server.messages import Event, Exited, Sampled, Started, StartTask, TaskPlaced
from ps_allreduce.point.cores import CorePlan
from ps_allreduce.point.layout import drivers_of, place_tasks
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.hosts import GpuSample, TcpCounters
from ps_allreduce.record.records import Sample, Status
from tests.fakes import make_experiment, make_facts, make_host, make_sample
from tests.pretend import SHORT, driver_result, fake_task, leave_results

REDUCED = make_experiment(AllReduce, measurement=SHORT, spread=Spread())

ZERO, ONE = TaskId(TaskType.WORKER, 0), TaskId(TaskType.WORKER, 1)


def start_request(task: TaskId) -> StartTask:
    return replace(fake_task(str(task), "", Path()), cores=(task.index,))


def state(folder: Path, **changes: Any) -> RunState:
    """A run on two hosts that has been started."""
    placed = place_tasks(REDUCED, ["n10", "n1"])
    settings: dict[str, Any] = {
        "request": LaunchRequest(
            experiment=REDUCED, deadline_s=20.0, limit_s=20.0, data_dir=folder
        ),
        "one_machine": False,
        "job_id": None,
        "launched_at": 100.0,
        "ended_at": 120.0,
        "hosts": (make_host("n10"), make_host("n1")),
        "cores": CorePlan({}, 2, False),
        "addresses": {ZERO: "10.0.0.10:1", ONE: "10.0.0.1:1"},
        "tasks": {ZERO: start_request(ZERO), ONE: start_request(ONE)},
    }
    monitor = RunMonitor(list(placed), drivers_of(REDUCED))
    return RunState(placed=placed, folder=folder, monitor=monitor, **(settings | changes))


def complete(folder: Path, **changes: Any) -> RunState:
    """The same when it has come to its end."""
    paths = leave_results(folder, driver_result(0), driver_result(1))
    for task, path in paths.items():
        for ending in ("json", "npz"):
            Path(f"{path}.{ending}").rename(f"{result_path(folder, task)}.{ending}")
    return state(folder, status=Status.OK, **changes)


def exited(task: TaskId, status: int) -> Exited:
    return Exited(name=str(task), pid=7, status=status, cpu_s=1.5, peak_memory_bytes=9)


def test_a_run_that_went_well_has_its_hosts_and_its_tasks(tmp_path: Path) -> None:
    run = complete(tmp_path)
    for task in (ZERO, ONE):
        run.monitor.take(Started(name=str(task), pid=7))
        run.monitor.take(exited(task, 0))
    launched = conclude(run)
    assert (launched.status, launched.reason) == (Status.OK, "")
    assert [host.name for host in launched.hosts] == ["n10", "n1"]
    assert [(t.task, t.host, t.address) for t in launched.tasks] == [
        ("worker:0", "n10", "10.0.0.10:1"),
        ("worker:1", "n1", "10.0.0.1:1"),
    ]
    assert [(t.pid, t.exit, t.cpu_s) for t in launched.tasks] == [(7, 0, 1.5)] * 2


def test_a_task_has_the_clock_of_its_host(tmp_path: Path) -> None:
    run = state(tmp_path, hosts=(make_host("n10"), make_host("n1", clock_offset_s=-2.5)))
    assert (run.offset_of(ZERO), run.offset_of(ONE)) == (0.0, -2.5)
    assert state(tmp_path, hosts=()).offset_of(ONE) == 0.0
    ahead = (make_host("n10"), make_host("n1", clock_offset_s=1.0))
    # The second worker connected at 102 on a clock that was a second ahead.
    assert conclude(complete(tmp_path, hosts=ahead)).phases.bring_up_s == 1.0


def test_a_task_is_recorded_with_the_cores_that_it_found(tmp_path: Path) -> None:
    run = state(tmp_path, status=Status.TIMED_OUT)
    run.monitor.take(TaskPlaced(name="worker:1", cores=(9,), gpus="GPU-1", settings={"A": "b"}))
    tasks = conclude(run).tasks
    assert [task.settings for task in tasks] == [{}, {"A": "b"}]
    assert [(task.cores, task.gpus) for task in tasks] == [((0,), None), ((9,), "GPU-1")]


def test_results_that_are_missing_fail_the_run(tmp_path: Path) -> None:
    launched = conclude(state(tmp_path, status=Status.OK))
    assert launched.status is Status.FAILED
    assert launched.reason.startswith("results are missing: ")


def test_what_the_launcher_killed_has_no_exit_status(tmp_path: Path) -> None:
    run = state(tmp_path, status=Status.TIMED_OUT)
    run.monitor.take(exited(ZERO, -9))
    run.monitor.ended_by_us.add("worker:0")
    (zero, one) = conclude(run).tasks
    assert (zero.exit, zero.cpu_s) == (None, 1.5)
    assert (one.exit, one.cpu_s, one.pid) == (None, None, 0)


def test_a_run_that_never_began_is_recorded_without_tasks(tmp_path: Path) -> None:
    run = state(tmp_path, status=Status.FAILED, tasks={}, hosts=(), addresses={})
    run.monitor.lost_contact = "no fork server came up on n1"
    launched = conclude(run)
    assert launched.reason == "no fork server came up on n1"
    assert (launched.tasks, launched.hosts) == ((), ())
    assert launched.phases.total_s == 20.0
    assert launched.phases.bring_up_s is None


@pytest.mark.parametrize(
    ("status", "post_mortem", "reason"),
    [
        (Status.TIMED_OUT, "", "not finished after 20 s; last heard of: starting"),
        (Status.FAILED, "", "the line is cut"),
        (Status.FAILED, "job 7 lost a node", "the line is cut; job 7 lost a node"),
        (Status.INTERRUPTED, "job 7 lost a node", "the line is cut; job 7 lost a node"),
    ],
)
def test_a_run_that_did_not_come_to_its_end_says_why(
    tmp_path: Path, status: Status, post_mortem: str, reason: str
) -> None:
    run = state(tmp_path, status=status, post_mortem=post_mortem)
    run.monitor.lost_contact = "the line is cut"
    assert failure_reason(run) == reason


@pytest.mark.parametrize(
    ("post_mortem", "reason"),
    [
        ("", "interrupted by the operator"),
        ("job 7 reached its time limit", "job 7 reached its time limit"),
    ],
)
def test_an_interruption_is_the_operators_unless_the_scheduler_says_otherwise(
    tmp_path: Path, post_mortem: str, reason: str
) -> None:
    run = state(tmp_path, status=Status.INTERRUPTED, post_mortem=post_mortem)
    assert failure_reason(run) == reason


def test_the_log_of_the_culprit_is_quoted(tmp_path: Path) -> None:
    log_path(tmp_path, ZERO).write_text("fine\n")
    log_path(tmp_path, ONE).write_text("Traceback\nno luck\n")
    run = state(tmp_path, status=Status.FAILED)
    run.monitor.take(exited(ONE, 1))
    launched = conclude(run)
    assert launched.reason == "worker:1 ended with status 1"
    assert launched.log_tail == "Traceback\nno luck"
    assert launched.log == "==> worker:0 <==\nfine\n\n==> worker:1 <==\nTraceback\nno luck\n"


def test_a_crash_that_the_fork_server_explains_shows_no_stack(tmp_path: Path) -> None:
    log_path(tmp_path, ONE).write_text("*** SIGSEGV received\n@ 0x7f 0 (unknown)\n")
    run = state(tmp_path, status=Status.FAILED)
    run.monitor.take(Event(name=str(ONE), event="failed", time=1.0, text="it crashed: ulimit -v"))
    run.monitor.take(exited(ONE, -11))
    launched = conclude(run)
    assert launched.reason == "worker:1: it crashed: ulimit -v"
    assert launched.log_tail == ""
    assert "SIGSEGV received" in launched.log


def looks(*usage: tuple[float, float, float], host: str = "n10") -> list[Sample]:
    """Looks at a machine: time, busy and idle seconds since it started."""
    return [make_sample(time, host, busy_s=busy, idle_s=idle) for time, busy, idle in usage]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param(looks((111.0, 10.0, 0.0), (114.0, 13.0, 1.0)), 0.75, id="inside"),
        pytest.param(
            looks((1.0, 0.0, 0.0), (109.0, 1.0, 0.0), (111.0, 2.0, 7.0), (114.0, 3.0, 8.0)),
            0.2,
            id="from the last before",
        ),
        pytest.param(
            looks((112.0, 0.0, 0.0), (115.0, 1.0, 3.0), (116.0, 99.0, 99.0)),
            0.25,
            id="to the first after",
        ),
        pytest.param(looks((109.0, 0.0, 0.0), (116.0, 1.0, 1.0)), 0.5, id="none inside"),
    ],
)
def test_a_machine_is_as_busy_as_its_processors_were_around_the_window(
    samples: list[Sample], expected: float
) -> None:
    assert machine_busy(samples, (110.0, 115.0)) == pytest.approx(expected)


def test_of_hosts_that_share_a_machine_the_first_one_is_looked_at() -> None:
    first = looks((110.0, 10.0, 0.0), (112.0, 13.0, 1.0))
    other = looks((110.5, 11.0, 0.0), (114.0, 50.0, 1.0), host="n1")
    mixed = sorted([*first, *other], key=lambda sample: sample.time)
    assert machine_busy(mixed, (110.0, 115.0)) == pytest.approx(0.75)


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="none"),
        pytest.param(looks((111.0, 1.0, 1.0)), id="one"),
        pytest.param(looks((1.0, 1.0, 1.0), (2.0, 2.0, 2.0)), id="before the window"),
        pytest.param(looks((120.0, 1.0, 1.0), (121.0, 2.0, 2.0)), id="after the window"),
        pytest.param(looks((111.0, 1.0, 1.0), (112.0, 1.0, 1.0)), id="a counter that stands still"),
    ],
)
def test_too_few_looks_are_no_claim(samples: list[Sample]) -> None:
    assert machine_busy(samples, (110.0, 115.0)) is None


def test_a_host_tells_the_load_that_its_first_look_found(tmp_path: Path) -> None:
    run = complete(tmp_path)
    looks = [("n10", 9.0), ("n10", 11.0), ("elsewhere", 1.0)]
    run.monitor.samples = [make_sample(1.0, host, load_average=load) for host, load in looks]
    assert [host.load_average for host in conclude(run).hosts] == [9.0, None]


@pytest.mark.parametrize(
    ("one_machine", "busy_s", "expected", "warned"),
    [
        (True, 1.9, 0.95, True),
        (True, 1.0, 0.5, False),
        (False, 1.9, None, False),
    ],
)
def test_a_busy_machine_is_a_warning_where_hosts_are_emulated_on_it(
    tmp_path: Path, one_machine: bool, busy_s: float, expected: float | None, warned: bool
) -> None:
    run = complete(tmp_path, one_machine=one_machine)
    run.monitor.samples = looks((111.0, 0.0, 0.0), (113.0, busy_s, 2.0 - busy_s))
    launched = conclude(run)
    assert launched.machine_busy == pytest.approx(expected)
    told = "this machine's processors were 95% busy: it may have been the limit"
    assert [told in warning for warning in launched.warnings] == [True] * warned
    alone = conclude(replace(run, hosts=run.hosts[:1]))
    assert (alone.machine_busy, alone.warnings) == (launched.machine_busy, ())


def test_hosts_tell_what_tcp_sent_around_the_window(tmp_path: Path) -> None:
    run = complete(tmp_path)
    run.monitor.samples = [
        make_sample(time, "n10", tcp=TcpCounters(sent=sent, sent_again=2, probes=1, timeouts=0))
        for time, sent in ((100.0, 30), (130.0, 50))
    ]
    sent = TcpCounters(sent=20, sent_again=0, probes=0, timeouts=0)
    assert [host.tcp for host in conclude(run).hosts] == [sent, None]


def test_hosts_tell_what_others_used_and_a_run_warns_of_it(tmp_path: Path) -> None:
    run = complete(tmp_path)
    used = {"n10": 1.0, "n1": 3.9}
    run.monitor.samples = [
        make_sample(time, host, idle_s=0.0, suite_s=seconds * time)
        for time in (100.0, 130.0)
        for host, seconds in used.items()
    ]
    launched = conclude(run)
    assert [host.foreign_load for host in launched.hosts] == pytest.approx([0.75, 0.025])
    assert "other programs took 75% of the processor time of n10 while measuring" in str(
        launched.warnings
    )


A, B = "GPU-aaaa", "GPU-bbbb"


def look(time: float, *reasons: str, host: str = "n1", identity: str = A) -> Sample:
    return make_sample(time, host, gpus=(GpuSample(identity=identity, reasons=reasons),))


def warnings(*samples: Sample, used: tuple[str, ...] = (A, B), ahead: float = 0.0) -> list[str]:
    return list(throttling_warnings(samples, (10.0, 20.0), {"n1": ahead}, frozenset(used)))


def test_gpus_at_their_clocks_are_not_mentioned() -> None:
    idle = look(12.0, "gpu_idle", "applications_clocks_setting", "sync_boost")
    assert warnings(idle, look(13.0)) == []
    assert warnings() == []


def test_a_gpu_that_was_slowed_down_is_named_with_its_share_of_the_samples() -> None:
    samples = [look(11.0, "sw_power_cap"), look(12.0), look(13.0, "sw_power_cap"), look(14.0)]
    assert warnings(*samples, look(14.0, identity=B)) == [
        "1 of 2 GPUs were slowed down by its power cap while measuring "
        "(GPU-aaaa of n1 in 50% of the samples)"
    ]


def test_every_reason_has_a_sentence() -> None:
    told = warnings(look(11.0, "hw_slowdown", "hw_thermal_slowdown"))
    assert ["hardware's slowdown" in told[0], "temperature (hardware)" in told[1]] == [True, True]


def test_other_times_and_gpus_that_no_task_used_do_not_count() -> None:
    assert warnings(look(9.9, "hw_slowdown"), look(15.0), look(20.1, "hw_slowdown")) == []
    # A sample has the clock of its host.
    assert warnings(look(15.0, "hw_slowdown"), ahead=100.0) == []
    assert len(warnings(look(115.0, "hw_slowdown"), ahead=100.0)) == 1
    assert warnings(look(15.0, "hw_slowdown"), used=(B,)) == []


def test_of_many_gpus_the_worst_are_named() -> None:
    samples = [look(11.0, "hw_slowdown", identity=f"GPU-{i}") for i in range(5)]
    samples += [look(12.0, identity="GPU-0"), look(12.0, "hw_slowdown", identity="GPU-4")]
    (told,) = warnings(*samples, used=tuple(f"GPU-{i}" for i in range(5)))
    assert told.startswith("5 of 5 GPUs were slowed down")
    assert told.endswith("2 more of the samples)")
    assert "GPU-0" not in told


@pytest.mark.parametrize("ahead", [0.0, -2.0])
def test_a_run_is_warned_of(tmp_path: Path, ahead: float) -> None:
    host = make_host("n1", facts=make_facts("node1"), clock_offset_s=ahead)
    run = complete(tmp_path, hosts=(make_host("n10"), host))
    run.monitor.take(TaskPlaced(name="worker:1", cores=(9,), gpus=A))
    sample = look(112.0 + ahead, "sw_thermal_slowdown", host="n1")
    run.monitor.take(Sampled(sample=sample))
    launched = conclude(run)
    assert launched.status is Status.OK
    assert launched.samples == (sample,)
    assert launched.warnings == (
        "1 of 1 GPUs were slowed down by its temperature while measuring "
        "(GPU-aaaa of n1 in 100% of the samples)",
    )


OOM = "out of memory on host n1: the kernel ended it; use a smaller --batch-per-worker"


def test_a_task_that_was_killed_for_want_of_memory_is_not_just_killed(tmp_path: Path) -> None:
    run = state(tmp_path, status=Status.FAILED)
    complaint = Event(name=str(ZERO), event="failed", time=1.0, text="UnavailableError: x")
    run.monitor.take(complaint)
    run.monitor.take(replace(complaint, name=str(ONE), time=2.0, text=OOM))
    run.monitor.take(Exited(name=str(ONE), pid=7, status=-9, cpu_s=1.0, peak_memory_bytes=9))
    assert failure_reason(run) == f"worker:1: {OOM}"
