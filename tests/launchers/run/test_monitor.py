"""From the messages of a run: is it over, is it well, and who is to blame."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from launchers.run.state import RunMonitor
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.fork_server.messages import Event, Exited, Sampled, Started, TaskPlaced
from ps_allreduce.inspection.questions import StreamReceived
from tests.fakes import make_sample

WORKERS = [TaskId(TaskType.WORKER, 0), TaskId(TaskType.WORKER, 1)]

CHIEF = [TaskId(TaskType.CHIEF, 0)]


def exited(name: str, status: int = 0) -> Exited:
    return Exited(name=name, pid=1, status=status, cpu_s=1.0, peak_memory_bytes=1)


def event(name: str, what: str, time: float = 1.0, **more: Any) -> Event:
    return Event(name=name, event=what, time=time, **more)


def failed(name: str, text: str, time: float = 1.0, **more: Any) -> Event:
    return event(name, "failed", time, text=text, **more)


SERVERS = [TaskId(TaskType.PS, 0), TaskId(TaskType.PS, 1)]


def monitor(drivers: list[TaskId], *messages: object) -> RunMonitor:
    made = RunMonitor([*SERVERS, *WORKERS, *CHIEF], drivers)
    for message in messages:
        made.take(message)
    return made


@pytest.mark.parametrize("well", [exited, partial(event, what="done")])
def test_a_run_is_complete_when_all_drivers_are_done(well: Callable[[str], object]) -> None:
    run = monitor(WORKERS, well("worker:0"))
    assert not run.is_complete
    run.take(well("worker:1"))
    assert run.is_complete
    assert not run.has_failed


def test_a_driver_that_was_killed_after_its_part_is_to_blame_while_others_go_on() -> None:
    run = monitor(WORKERS, event("worker:0", "done"), exited("worker:0", -9))
    assert not run.is_complete
    assert run.has_failed


def test_servers_go_on_while_a_run_is_complete() -> None:
    run = monitor(CHIEF, Started(name="ps:0", pid=1), Started(name="chief:0", pid=2))
    run.take(exited("chief:0"))
    assert run.is_complete
    assert not run.has_failed
    assert run.alive == {"ps:0"}


def test_a_driver_that_ends_badly_completes_nothing() -> None:
    run = monitor(WORKERS, exited("worker:0"), exited("worker:1", 1))
    assert not run.is_complete
    assert run.has_failed
    assert run.culprit() == ("worker:1", "worker:1 ended with status 1")


@pytest.mark.parametrize("status", [0, 1])
def test_a_server_that_ends_is_a_failure_whatever_its_status(status: int) -> None:
    run = monitor(CHIEF, exited("ps:0", status))
    assert run.has_failed
    assert run.culprit() == ("ps:0", f"ps:0 ended with status {status}")


def test_a_reported_failure_is_quoted() -> None:
    run = monitor(WORKERS, failed("worker:1", "ValueError: x"), exited("worker:1", 1))
    assert run.culprit() == ("worker:1", "worker:1: ValueError: x")


def test_of_complaints_the_earliest_counts() -> None:
    run = monitor(
        WORKERS,
        failed("worker:1", "UnavailableError: lost worker:0", 9.0),
        failed("worker:0", "InternalError: no memory", 8.0),
        exited("worker:1", 1),
        exited("worker:0", 1),
    )
    assert run.culprit() == ("worker:0", "worker:0: InternalError: no memory")


def test_a_killed_task_comes_before_those_that_complain_about_it() -> None:
    run = monitor(
        CHIEF,
        failed("chief:0", "UnavailableError: connection reset", 1.0),
        exited("chief:0", 1),
        exited("ps:1", -9),
    )
    assert run.culprit() == ("ps:1", "ps:1 was killed by SIGKILL")
    assert monitor(WORKERS, exited("worker:0", -11)).culprit()[1].endswith("SIGSEGV")


def test_what_the_launcher_killed_is_not_to_blame() -> None:
    run = monitor(CHIEF, exited("chief:0"), exited("ps:0", -9), exited("worker:0", -9))
    run.ended_by_us.update({"ps:0", "worker:0"})
    assert not run.has_failed
    assert run.is_complete


def test_a_stage_is_reached_when_the_last_driver_reaches_it() -> None:
    run = monitor(WORKERS, event("worker:0", "connected", 3.0))
    assert run.moment("connected") is None
    run.take(event("worker:1", "connected", 7.0))
    run.take(event("worker:0", "built", 8.0))
    assert run.moment("connected") == 7.0
    assert run.moment("built") is None


def test_the_stage_is_told_in_the_users_words() -> None:
    run = monitor(WORKERS)
    assert run.stage == "starting"
    run.take(event("worker:0", "connected"))
    assert run.stage == "connected"
    run.take(event("worker:0", "phase:warmup"))
    assert run.stage == "warmup"
    # What a task was given is no stage.
    placed = TaskPlaced(name="worker:0", cores=(0, 1))
    run.take(placed)
    assert (run.placed, run.stage) == ({"worker:0": placed}, "warmup")


def test_what_else_is_forked_is_not_the_runs_business() -> None:
    run = monitor(
        WORKERS,
        Started(name="SendStream", pid=7),
        StreamReceived(name="ReceiveStream", num_bytes=1, ns=1),
        failed("ReceiveStream", "the other end hung up"),
        exited("SendStream", -9),
    )
    assert (run.has_failed, run.stage, run.alive) == (False, "starting", set())


def test_processes_and_samples_are_noted() -> None:
    sample = make_sample()
    run = monitor(WORKERS, Started(name="worker:0", pid=41), Sampled(sample=sample), None)
    assert run.pids == {"worker:0": 41}
    assert run.samples == [sample]
    assert run.alive == {"worker:0"}
    run.take(exited("worker:0"))
    assert run.alive == set()
