"""Two folders of made-up results are compared, or refused with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from analysis.__main__ import main
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Resources
from ps_allreduce.point.strategies import AllReduce, Single
from ps_allreduce.point.workload import Workload
from tests.analysis.builders import invoke, provenance, runs, save_all, times
from tests.fakes import make_experiment

SINGLE, RING, SYNC = make_experiment(Single), make_experiment(AllReduce), make_experiment()
LARGER = make_experiment(AllReduce, workload=Workload(batch_per_worker=64))
MORE = Resources(cores_per_worker=4, threads_per_worker=4)


def folders(
    tmp_path: Path, first: Mapping[Experiment, float], second: Mapping[Experiment, float]
) -> tuple[str, str]:
    """Two sweeps, the second of a newer version."""
    newer = provenance(fingerprint="bbbbbbbb", versions={"tensorflow": "2.22.0"})
    for own, factor in first.items():
        save_all(tmp_path / "a", runs(own, times(factor)))
    for own, factor in second.items():
        save_all(tmp_path / "b", runs(own, times(factor), provenance=newer))
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_two_versions_are_compared_point_by_point(tmp_path: Path) -> None:
    both = folders(tmp_path, {SINGLE: 1.0, RING: 2.0, SYNC: 1.5}, {SINGLE: 1.0, RING: 3.0})
    output = invoke("compare-results", *both)
    assert "versions.tensorflow: 2.22.0 (A: 2.21.0)" in output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if "[" in line}
    assert rows["allreduce"][1:5] == ["2", "200", "300", "1.50"]
    assert rows["allreduce"][-1] == "faster"
    # Launches of two folders are no pairs: equal rates still have an interval.
    assert rows["single"][4:6] != ["1.00", "[1.00,"]
    assert "Only in A, and not compared: ps_sync" in output
    assert "A says: All-reduce is 1.33x" in output
    assert "B says: No verdict: there are no runs of synchronous parameter servers." in output


def test_further_settings_in_one_folder_hide_no_common_point(tmp_path: Path) -> None:
    cut, finer = (
        make_experiment(placement=Policy.PARTITIONED, split_bytes=size) for size in (4096, 1024)
    )
    both = folders(tmp_path, {SYNC: 1.0, cut: 2.0}, {SYNC: 1.0, cut: 2.0, finer: 3.0})
    output = invoke("compare-results", *both)
    rows = [line for line in output.splitlines() if line.startswith(" ps_sync") and "[" in line]
    assert len(rows) == 2
    assert "Only in B, and not compared: ps_sync, SmallCNN" in output


def test_other_cores_are_told_and_no_other_setting(tmp_path: Path) -> None:
    other = make_experiment(AllReduce, resources=MORE)
    output = invoke("compare-results", *folders(tmp_path, {RING: 2.0}, {other: 1.0}))
    assert "cores_per_worker is 1 in A and 4 in B." in " ".join(output.split())
    assert "0.50" in output
    assert "slower" in output


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (RING, LARGER, "cannot be compared: batch_per_worker is 16 in A and 64 in B."),
        (RING, SYNC, "cannot be compared: they are of the same training, and have no point in "),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    first: Experiment,
    second: Experiment,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compare-results", *folders(tmp_path, {first: 1.0}, {second: 1.0})]) == 2
    assert told in capsys.readouterr().err


def test_each_folder_is_one_sweep_and_not_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, _ = folders(tmp_path, {RING: 1.0}, {RING: 1.0})
    assert main(["compare-results", a, a]) == 2
    assert "A and B are the same folder" in capsys.readouterr().err
    assert main(["compare-results", a, str(tmp_path)]) == 2
    assert "holds several sweeps, name one of them" in capsys.readouterr().err


def test_what_chose_beforehand_is_no_second_sweep_of_a_folder(tmp_path: Path) -> None:
    a, b = folders(tmp_path, {RING: 1.0}, {RING: 1.0})
    both = tmp_path / "results"
    shutil.copytree(b, both / "compare")
    shutil.copytree(b, both / "first-look")
    assert "B: " in invoke("compare-results", a, str(both))


def test_launches_that_chose_are_no_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (measured, chose) = folders(tmp_path, {RING: 2.0}, {RING: 1.0})
    for path in Path(chose).rglob("*.json"):
        path.write_text(path.read_text().replace('"sweep": "compare"', '"sweep": "tune"'))
    assert main(["compare-results", measured, chose]) == 2
    assert "these launches chose a setting" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["report", chose])
    assert "these launches chose a setting" in capsys.readouterr().out
    assert not list(Path(chose).rglob("report.html"))
