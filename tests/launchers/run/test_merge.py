"""What the drivers of a run left behind becomes one judged run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from launchers.run.conclude import MOMENTS, LaunchedRun, merge_results
from ps_allreduce.cluster import TaskId
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from ps_allreduce.record.files import save_raw
from ps_allreduce.record.records import Status
from ps_allreduce.record.step_table import concatenate
from ps_allreduce.record.variables import PlacementUsed
from ps_allreduce.runner.validity import DriverResult
from tests.fakes import make_experiment, make_steps, no_events
from tests.pretend import FIVE_STEPS, SHORT, driver_result, leave_results

REDUCED = make_experiment(AllReduce, measurement=SHORT)

#: Seconds since the epoch.
LAUNCHED_AT = 100.0


def merge(
    results: Mapping[TaskId, Path],
    experiment: Experiment = REDUCED,
    offset_of: Callable[[TaskId], float] = lambda _: 0.0,
) -> LaunchedRun:
    """A run of 20 seconds, with the launcher's time on all hosts."""
    run = LaunchedRun(status=Status.OK)
    return merge_results(run, experiment, results, LAUNCHED_AT, 120.0, offset_of)[0]


def test_drivers_become_one_run(tmp_path: Path) -> None:
    merged = merge(leave_results(tmp_path, driver_result(0), driver_result(1)))
    assert (merged.status, merged.reason) == (Status.OK, "")
    assert merged.steps is not None
    assert len(merged.steps) == 10
    assert merged.metrics is not None
    assert merged.metrics.examples_per_sec == pytest.approx(2 * 16)
    assert (merged.gradient_bytes, merged.num_messages) == (88, 4)


def test_each_phase_ends_with_its_last_driver_result(tmp_path: Path) -> None:
    drivers = [driver_result(0), driver_result(1, first_step_at=106.5, warm_at=109.0)]
    phases = merge(leave_results(tmp_path, *drivers)).phases
    assert (phases.bring_up_s, phases.build_s, phases.first_step_s) == (2.0, 1.0, 3.5)
    assert (phases.warmup_s, phases.measured_s, phases.total_s) == (3.5, 5.0, 20.0)


def shifted(result: DriverResult, offset: float) -> DriverResult:
    """The same result, noted on a host whose clock is ahead."""
    return replace(result, **{name: getattr(result, name) + offset for name in MOMENTS})


def test_clocks_of_hosts_are_put_on_the_launchers(tmp_path: Path) -> None:
    wrong = {"worker:0": -3.0, "worker:1": 1000.0}
    (tmp_path / "wrong").mkdir()
    paths = leave_results(tmp_path, driver_result(0), driver_result(1))
    wanted = merge(paths)
    drivers = [shifted(driver_result(index), wrong[f"worker:{index}"]) for index in (0, 1)]
    paths = leave_results(tmp_path / "wrong", *drivers)
    for index in (0, 1):
        late = wrong[f"worker:{index}"]
        steps = make_steps(index, [late + n for n in range(1, 6)], FIVE_STEPS, first_start=late)
        save_raw(tmp_path / "wrong" / f"{index}.npz", steps, no_events())
    merged, window = merge_results(
        wanted, REDUCED, paths, LAUNCHED_AT, 120.0, lambda task: wrong[str(task)]
    )
    assert window == (110.0, 115.0)
    assert (merged.phases, merged.metrics) == (wanted.phases, wanted.metrics)
    assert merged.status is Status.OK


def test_workers_of_a_chief_have_the_clock_of_their_own_host(tmp_path: Path) -> None:
    served = make_experiment(SynchronousServers, num_workers=2, measurement=SHORT)
    paths = leave_results(tmp_path, driver_result(0, task="chief:0"))
    both = [
        make_steps(0, [1, 2, 3, 4, 5], FIVE_STEPS),
        make_steps(1, [51, 52, 53, 54, 55], FIVE_STEPS, first_start=50),
    ]
    save_raw(tmp_path / "0.npz", concatenate(both), no_events())
    ahead = {"chief:0": 7.0, "worker:0": 0.0, "worker:1": 50.0}
    merged = merge(paths, served, lambda task: ahead[str(task)])
    assert merged.status is Status.OK
    assert merged.metrics is not None
    assert merged.metrics.steps_per_worker == (3, 3)
    assert merged.phases.bring_up_s == 101.0 - 7.0 - LAUNCHED_AT


def test_every_problem_makes_the_run_invalid_and_is_told(tmp_path: Path) -> None:
    drivers = [driver_result(0), driver_result(1, traces_after=2, checksums_after=(3, 5))]
    merged = merge(leave_results(tmp_path, *drivers))
    assert merged.status is Status.INVALID
    assert merged.reason == (
        "trainable weights of worker:1 differ from worker:0; "
        "a step function was traced again (worker:1)"
    )
    assert merged.metrics is not None


def test_a_run_without_a_common_window_is_invalid(tmp_path: Path) -> None:
    paths = leave_results(tmp_path, driver_result(0), driver_result(1))
    late = make_steps(1, [11, 12, 13, 14, 15], FIVE_STEPS, first_start=10)
    save_raw(tmp_path / "1.npz", late, no_events())
    merged = merge(paths)
    assert merged.status is Status.INVALID
    assert merged.metrics is None
    assert "no whole step" in merged.reason


def test_the_placement_is_that_of_whoever_knows_it(tmp_path: Path) -> None:
    used = PlacementUsed(shards=(), variables=(), bytes_per_server=(1, 1), max_over_mean=1.0)
    served = make_experiment(SynchronousServers, num_workers=1, measurement=SHORT)
    paths = leave_results(tmp_path, driver_result(0, task="chief:0", placement=used))
    merged = merge(paths, served)
    assert merged.status is Status.OK
    assert merged.placement == used


def test_equal_weights_have_equal_digests(tmp_path: Path) -> None:
    def digest(*checksums: int) -> str | None:
        result = driver_result(0, checksums_after=checksums)
        paths = leave_results(tmp_path, result, replace(result, task="worker:1"))
        return merge(paths).weights_digest

    assert digest(3, 4) == digest(3, 4) != digest(3, 5)


@pytest.mark.parametrize("name", ["1.json", "1.npz"])
@pytest.mark.parametrize("share", [0.0, 0.5, None])
def test_what_is_missing_or_cut_short_is_told(
    tmp_path: Path, name: str, share: float | None
) -> None:
    paths = leave_results(tmp_path, driver_result(0), driver_result(1))
    content = (tmp_path / name).read_bytes()
    if share is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content[: int(len(content) * share)])
    with pytest.raises((OSError, RecordFormatError), match=name):
        merge(paths)
