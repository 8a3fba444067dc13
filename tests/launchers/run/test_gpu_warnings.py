"""GPUs that were slowed down, and memory that was not there, are told of in a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launchers.run.conclude import conclude, failure_reason, throttling_warnings
from ps_allreduce.fork_server.messages import Event, Exited, Sampled
from ps_allreduce.record.gpu_samples import GpuSample
from ps_allreduce.record.records import Sample, Status
from tests.fakes import make_facts, make_host, make_sample
from tests.launchers.run.test_conclude import ONE, ZERO, complete, state

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


def test_what_happened_outside_of_the_window_does_not_count() -> None:
    assert warnings(look(9.9, "hw_slowdown"), look(15.0), look(20.1, "hw_slowdown")) == []


def test_a_sample_has_the_clock_of_its_host() -> None:
    assert warnings(look(15.0, "hw_slowdown"), ahead=100.0) == []
    assert len(warnings(look(115.0, "hw_slowdown"), ahead=100.0)) == 1


def test_gpus_that_no_task_used_do_not_count() -> None:
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
    run.monitor.take(Event(name="worker:1", event="placed", time=1.0, cores=(9,), gpus=A))
    sample = look(112.0 + ahead, "sw_thermal_slowdown", host="node1")
    run.monitor.take(Sampled(sample=sample))
    launched = conclude(run)
    assert launched.status is Status.OK
    assert launched.samples == (sample,)
    assert launched.warnings == (
        "1 of 1 GPUs were slowed down by its temperature while measuring "
        "(GPU-aaaa of node1 in 100% of the samples)",
    )


OOM = "out of memory on host n1: the kernel ended it; use a smaller --batch-per-worker"


def test_a_task_that_was_killed_for_want_of_memory_is_not_just_killed(tmp_path: Path) -> None:
    run = state(tmp_path, status=Status.FAILED)
    complaint = Event(name=str(ZERO), event="failed", time=1.0, text="UnavailableError: x")
    run.monitor.take(complaint)
    run.monitor.take(replace(complaint, name=str(ONE), time=2.0, text=OOM))
    run.monitor.take(Exited(name=str(ONE), pid=7, status=-9, cpu_s=1.0, peak_memory_bytes=9))
    assert failure_reason(run) == f"worker:1: {OOM}"


def test_a_task_that_was_killed_without_a_word_was_killed(tmp_path: Path) -> None:
    run = state(tmp_path, status=Status.FAILED)
    run.monitor.take(Exited(name=str(ONE), pid=7, status=-9, cpu_s=1.0, peak_memory_bytes=9))
    assert failure_reason(run) == "worker:1 was killed by SIGKILL"
