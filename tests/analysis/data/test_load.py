from __future__ import annotations

import json
from pathlib import Path

import pytest

import analysis
from analysis.data.blocks import SweepResults, analysed
from analysis.data.load import DamagedFiles, find_sweeps, read_sweep
from ps_allreduce.errors import UserError
from ps_allreduce.point.strategies import Single
from tests.analysis.builders import provenance, run, save
from tests.fakes import make_experiment

SINGLE = make_experiment(Single)


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_sweep_is_found_as_itself_and_below_a_folder(tmp_path: Path) -> None:
    for name in ("b", "a"):
        save(tmp_path / name, run(SINGLE, 100.0))
    assert find_sweeps(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert find_sweeps(tmp_path / "a") == [tmp_path / "a"]


def test_no_folder_and_no_sweep_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        find_sweeps(tmp_path / "missing")
    with pytest.raises(UserError, match="holds no sweep"):
        find_sweeps(tmp_path)


def test_records_come_with_their_paths_and_missing_raw_files(tmp_path: Path) -> None:
    save(tmp_path, run(SINGLE, 100.0, 0))
    save(tmp_path, run(SINGLE, 100.0, 1), raw=False)
    save(tmp_path, run(SINGLE, None, 2), raw=False)
    table = analysis.load(tmp_path)
    assert list(table["record_path"]) == [
        f"runs/{SINGLE.experiment_id}/{repetition}-1.json" for repetition in range(3)
    ]
    assert list(table.index) == [str(tmp_path / path) for path in table["record_path"]]
    assert list(table["raw_timings"]) == [True, False, False]


def test_a_truncated_record_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    save(tmp_path, run(SINGLE, 100.0, 0))
    broken = save(tmp_path, run(SINGLE, 100.0, 1))
    broken.write_text(broken.read_text()[:100])
    files = read_sweep(tmp_path)
    assert len(files.table) == 1
    assert [item.path for item in files.damaged] == [f"runs/{SINGLE.experiment_id}/1-1.json"]
    assert "not a readable record" in files.damaged[0].reason
    with pytest.warns(DamagedFiles, match=r"1-1.json: not a readable record"):
        assert len(analysis.load(tmp_path)) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format_version": 99}, "format version 99"),
        ({"surprise": 1}, "unknown key surprise"),
        ({"started_at": "yesterday"}, "started_at is not a time"),
        ({"repetition": 7}, "the record is of run"),
        ({"experiment_id": "0"}, "edited or damaged"),
    ],
)
def test_a_record_that_does_not_hold_together_is_not_used(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    save(tmp_path, run(SINGLE, 100.0, 0))
    edit(save(tmp_path, run(SINGLE, 100.0, 1)), **changes)
    (damage,) = read_sweep(tmp_path).damaged
    assert reason in damage.reason


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_rate_is_not_used(tmp_path: Path, rate: float) -> None:
    save(tmp_path, run(SINGLE, 100.0, 0))
    path = save(tmp_path, run(SINGLE, 1.0, 1))
    content = json.loads(path.read_text())
    content["metrics"]["examples_per_sec"] = rate
    path.write_text(json.dumps(content))
    (damage,) = read_sweep(tmp_path).damaged
    assert "examples_per_sec must be above 0" in damage.reason


def test_a_misnamed_record_is_reported(tmp_path: Path) -> None:
    path = save(tmp_path, run(SINGLE, 100.0, 0))
    (path.parent / "copy-of.json").write_text(path.read_text())
    results = read_sweep(tmp_path)
    assert len(results.table) == 1
    assert "<repetition>-<attempt>.json" in results.damaged[0].reason


def test_only_unreadable_records_are_one_sentence(tmp_path: Path) -> None:
    for repetition in range(2):
        edit(save(tmp_path, run(SINGLE, 100.0, repetition)), format_version=0)
    with pytest.raises(UserError, match=r"format version 0.*Start a new RESULTS.*\(2 records"):
        read_sweep(tmp_path)


def test_no_records_yet(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match="holds no records yet"):
        read_sweep(tmp_path)


def results_of(folder: Path) -> SweepResults:
    return analysed(read_sweep(folder))


def test_the_newest_block_is_analysed_and_others_say_what_differs(tmp_path: Path) -> None:
    old = provenance(fingerprint="bbbbbbbb", commit="old", versions={"python": "3.11.1"})
    # Later in the order of the files, earlier in time.
    save(tmp_path, run(SINGLE, 50.0, 1, provenance=old, started_at="2025-12-31T23:00:00+00:00"))
    save(tmp_path, run(SINGLE, 100.0, 0))
    results = results_of(tmp_path)
    assert results.block.fingerprint == "aaaaaaaa"
    (older,) = results.older_blocks
    assert older.differences == (
        "commit: old (analysed: 0123abc)",
        "versions.python: 3.11.1 (analysed: 3.11.2)",
        "versions.tensorflow: none (analysed: 2.21.0)",
    )
    assert len(results.files.table) == 2


def test_times_of_different_zones_are_compared_as_moments(tmp_path: Path) -> None:
    late = provenance(fingerprint="bbbbbbbb")
    save(tmp_path, run(SINGLE, 1.0, 0, started_at="2026-01-01T10:00:00+00:00"))
    save(tmp_path, run(SINGLE, 1.0, 1, started_at="2026-01-01T09:00:00-05:00", provenance=late))
    assert results_of(tmp_path).block.fingerprint == "bbbbbbbb"


def test_runs_that_were_planned_but_not_made_are_missing(tmp_path: Path) -> None:
    save(tmp_path, run(SINGLE, 1.0, 0))
    save(tmp_path, run(SINGLE, None, 1))
    order = [f"{SINGLE.experiment_id}/{repetition}" for repetition in range(3)]
    (tmp_path / "sweep.json").write_text(json.dumps({"order": order}))
    assert results_of(tmp_path).missing == (order[2],)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_plan_is_named(tmp_path: Path, text: str) -> None:
    save(tmp_path, run(SINGLE, 1.0, 0))
    (tmp_path / "sweep.json").write_text(text)
    results = results_of(tmp_path)
    assert (results.files.planned, results.missing) == (None, ())
    assert [item.path for item in results.files.damaged] == ["sweep.json"]
