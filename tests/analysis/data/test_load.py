"""What is read of the folders of sweeps, and which runs are pooled or why not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.data.blocks import SweepResults, analysed, differences
from analysis.data.columns import COLUMNS, CONDITIONS, SETTINGS, make_table
from analysis.data.load import DamagedFiles, find_sweeps, read_sweep
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import STRATEGIES, AllReduce, AnyStrategy, Single, StockServers
from ps_allreduce.record import files
from ps_allreduce.record.hosts import HostRecord
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.record.step_table import Phase, concatenate
from ps_allreduce.scratch import open_regular
from tests.analysis.builders import provenance, run, save
from tests.fakes import UNSEEN, make_experiment, make_facts, make_host, make_steps, unseen

SINGLE = make_experiment(Single)


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_sweeps_are_found_at_and_below_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        find_sweeps(tmp_path / "missing")
    with pytest.raises(UserError, match="holds no sweep"):
        find_sweeps(tmp_path)
    for name in ("b", "a"):
        save(tmp_path / name, run(SINGLE, 100.0))
    assert find_sweeps(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert find_sweeps(tmp_path / "a") == [tmp_path / "a"]


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


def test_no_file_is_opened_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []

    def note(path: Path) -> BinaryIO:
        opened.append(path)
        return open_regular(path)

    monkeypatch.setattr(files, "open_regular", note)
    path = save(tmp_path, run(SINGLE, 100.0))
    analysis.load(tmp_path)
    assert opened == [tmp_path / "sweep.json", path, path.with_suffix(".npz")]


def test_a_record_of_another_sweep_is_named_and_left_out(tmp_path: Path) -> None:
    save(tmp_path, run(SINGLE, 100.0, 0, sweep="compare"))
    copied = save(tmp_path, run(SINGLE, 200.0, 1, sweep="ps-sweep"))
    assert len(read_sweep(tmp_path).table) == 2  # nothing says whose folder this is
    definition = tmp_path / "sweep.json"
    definition.write_text(json.dumps({"name": "compare", "order": []}))
    found = read_sweep(tmp_path)
    assert list(found.table["sweep"]) == ["compare"]
    (damage,) = found.damaged
    assert damage.path == copied.relative_to(tmp_path).as_posix()
    assert damage.reason.startswith("a record of the sweep ps-sweep, and this one is compare")


def test_truncated_and_misnamed_records_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = save(tmp_path, run(SINGLE, 100.0, 0))
    (path.parent / "copy-of.json").write_text(path.read_text())
    broken = save(tmp_path, run(SINGLE, 100.0, 1))
    broken.write_text(broken.read_text()[:100])
    found = read_sweep(tmp_path)
    assert len(found.table) == 1
    names = [f"runs/{SINGLE.experiment_id}/{name}" for name in ("copy-of.json", "1-1.json")]
    assert [item.path for item in found.damaged] == names
    assert "the record is of run" in found.damaged[0].reason
    assert "not a readable record" in found.damaged[1].reason
    with pytest.warns(DamagedFiles) as told:
        assert len(analysis.load(tmp_path)) == 1
    assert "1-1.json: not a readable record" in str(told[1].message)


@pytest.mark.parametrize("damage", ["cut", "uneven"])
def test_damaged_raw_timings_are_named_though_the_record_is_good(
    tmp_path: Path, damage: str
) -> None:
    raw = save(tmp_path, run(SINGLE, 100.0, 0)).with_suffix(".npz")
    if damage == "cut":
        raw.write_bytes(raw.read_bytes()[:-100])
    else:
        with np.load(raw) as archive:
            arrays = dict(archive) | {"steps_end": np.zeros(3)}
        np.savez(raw, **arrays)
    found = read_sweep(tmp_path)
    assert len(found.table) == 1
    assert [item.path for item in found.damaged] == [f"runs/{SINGLE.experiment_id}/0-1.npz"]


def test_raw_timings_of_another_run_are_named(tmp_path: Path) -> None:
    phases = [Phase.FIRST, Phase.WARMUP, *[Phase.MEASURED] * 4]
    record = run(SINGLE, 100.0)
    for window_s, told in ((16.0, []), (17.0, ["raw timings of another run"])):
        ends = [0.0, 1.0, 1.0, 1.0, 1.0, 1.0 + window_s]
        save(tmp_path / str(window_s), record, steps=make_steps(0, ends, phases))
        damaged = read_sweep(tmp_path / str(window_s)).damaged
        assert [item.reason.partition(":")[0] for item in damaged] == told


def refusing(closed: Path, read: Callable[[Path], object]) -> Callable[[Path], object]:
    """Read folders but one."""

    def reading(folder: Path) -> object:
        if Path(folder) == closed:
            raise PermissionError(13, "Permission denied", str(folder))
        return read(folder)

    return reading


def test_a_folder_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = save(tmp_path, run(SINGLE, 100.0)).parent
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, refusing(point, getattr(os, name)))
    for read in (find_sweeps, read_sweep):
        with pytest.raises(UserError, match=rf"{point.name} cannot be read \(Permission denied"):
            read(tmp_path)


def test_folders_are_searched_in_any_depth_and_links_are_not_followed(tmp_path: Path) -> None:
    deepest = tmp_path
    for _ in range(1100):  # more than Python may recurse
        deepest /= "d"
        deepest.mkdir()
    (deepest / "runs").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "endless").symlink_to(tmp_path / "endless")
    assert find_sweeps(tmp_path) == [deepest]
    for folder in (deepest / "runs", deepest, *deepest.parents[:1099]):
        folder.rmdir()
    with pytest.raises(UserError, match="no such folder of results"):
        find_sweeps(Path("x" * 300))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format_version": 99}, "format version 99"),
        ({"started_at": "yesterday"}, "started_at is not a time"),
        ({"finished_at": "0001-01-01T00:00:00"}, "finished_at is not a time"),
        ({"repetition": 7}, "the record is of run"),
    ],
)
def test_a_record_that_does_not_hold_together_is_not_used(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    save(tmp_path, run(SINGLE, 100.0, 0))
    edit(save(tmp_path, run(SINGLE, 100.0, 1)), **changes)
    (damage,) = read_sweep(tmp_path).damaged
    assert reason in damage.reason


def test_no_record_that_can_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match="holds no records yet"):
        read_sweep(tmp_path)
    edit(save(tmp_path, run(SINGLE, 100.0)), format_version=0)
    save(tmp_path, run(SINGLE, 100.0, 1)).write_text("{")  # for another reason
    told = r"format version 0.*Start a new RESULTS.*\(the first of 2 files\)"
    with pytest.raises(UserError, match=told):
        read_sweep(tmp_path)


def results_of(folder: Path) -> SweepResults:
    return analysed(read_sweep(folder))


def test_the_newest_block_is_analysed_and_others_say_what_differs(tmp_path: Path) -> None:
    old = provenance(fingerprint="bbbbbbbb", program="old", versions={"python": "3.11.1"})
    # Later in the order of the files, earlier in time.
    save(tmp_path, run(SINGLE, 50.0, 1, provenance=old, started_at="2025-12-31T23:00:00+00:00"))
    save(tmp_path, run(SINGLE, 100.0, 0))
    results = results_of(tmp_path)
    assert results.block.fingerprint == "aaaaaaaa"
    (older,) = results.older_blocks
    assert older.differences == (
        "program: old (analysed: 0c0ffee0)",
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
    save(tmp_path, run(SINGLE, None, 2, status=Status.INTERRUPTED, reason="Ctrl-C"))
    assert results_of(tmp_path).missing == (order[2],)


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", '{"order": 3}', '{"order": "abc"}', '{"order": [1]}'),
        '{"order": [], "name": 3}',
        '{"order": [], "choices": []}',
        '{"order": [], "choices": {"how gradients travel": {}}}',
        '{"order": [], "choices": {"rate of the links for VGG16": 1' + 400 * "0" + "}}",
    ],
)
def test_a_damaged_plan_is_named(tmp_path: Path, text: str) -> None:
    save(tmp_path, run(SINGLE, 1.0, 0))
    (tmp_path / "sweep.json").write_text(text)
    results = results_of(tmp_path)
    assert (results.files.definition.planned, results.missing) == ((), ())
    assert [item.path for item in results.files.damaged] == ["sweep.json"]
    assert "Error" not in results.files.damaged[0].reason


PHASES = [Phase.FIRST, Phase.WARMUP, Phase.MEASURED, Phase.MEASURED]
STEPS = concatenate(
    [
        make_steps(w, [0.1, 0.2, 0.3, 0.4], PHASES, pull_s=0.01, wait_s=0.02, compute_s=0.03)
        for w in (1, 0)
    ]
)


def test_steps_stand_by_worker_with_their_parts(tmp_path: Path) -> None:
    path = save(tmp_path, run(make_experiment(), 16_000.0), steps=STEPS)
    steps = analysis.load_steps(analysis.load(tmp_path).index[0])
    assert list(steps["worker"]) == [0] * 4 + [1] * 4
    assert list(steps["phase"][:4]) == ["first", "warmup", "measured", "measured"]
    assert list(steps["in_window"][:4]) == [False, False, True, True]
    row = steps.iloc[2]
    parts = [row[name] for name in ("step_s", "input_wait_s", "communication_s")]
    assert parts == pytest.approx([0.1, 0.02, 0.05])
    assert row["forward_s"] + row["backward_s"] == pytest.approx(0.03)
    steps["loss"] = 0.0
    assert analysis.load_steps(path)["loss"].iloc[0] == 2.0


def test_of_steps_that_nobody_sees_into_the_parts_are_unknown(tmp_path: Path) -> None:
    path = save(tmp_path, run(make_experiment(StockServers), 16_000.0), steps=unseen(STEPS))
    steps = analysis.load_steps(path)
    assert steps["step_s"].iloc[2] == pytest.approx(0.1)
    parts = ["pulled", "forward_s", "backward_s", "input_wait_s", "communication_s"]
    assert steps[parts].isna().all(axis=None)
    row = analysis.load(tmp_path).iloc[0]
    assert row[list(UNSEEN)].isna().all()
    assert pd.isna(row["bound_s"])


def test_raw_timings_that_are_gone_are_one_sentence(tmp_path: Path) -> None:
    path = save(tmp_path, run(make_experiment(), 1.0), raw=False)
    with pytest.raises(RecordFormatError, match="raw timings cannot be read"):
        analysis.load_steps(path)


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_everything_that_is_asked_for_is_compared(strategy: type[AnyStrategy]) -> None:
    derived = {"num_workers", "global_batch", "transport"}
    asked = set(make_experiment(strategy).columns())
    assert asked <= set(COLUMNS)
    assert asked - derived <= {*CONDITIONS, *SETTINGS}


def test_a_column_that_nobody_documented_is_refused() -> None:
    with pytest.raises(ValueError, match="has no column surprise"):
        make_table([{"surprise": 1}], ["a"])


SLURM: dict[str, Any] = {"launcher": "slurm", "spread": Spread()}


def block(*hosts: HostRecord, settings: dict[str, Any] = SLURM, **changes: Any) -> list[RunRecord]:
    """One run on these hosts, begun on a machine that its provenance describes."""
    own = make_experiment(AllReduce, 2, **settings)
    return [run(own, 100.0, hosts=hosts, provenance=provenance(**changes))]


def host(name: str, **facts: Any) -> HostRecord:
    return make_host(name, facts=make_facts(name, **facts))


def test_kinds_of_hosts_that_changed_joined_or_left_are_described() -> None:
    old = block(host("n1", cpu_model="Old one"), host("n2", cpu_model="Old one"))
    assert differences(old, block(host("n3"))) == (
        "cpu_model of n1, n2: Old one (analysed: A processor of n3)",
    )
    mixed = block(host("n1"), host("n2", cpu_model="Old one"))
    alike = block(host("n3"))
    assert differences(mixed, alike) == ("cpu_model of n2: Old one (analysed: A processor of n3)",)
    assert differences(alike, mixed) == ("cpu_model of n3: A processor (analysed: Old one of n2)",)


def test_the_machine_that_a_cluster_was_used_from_explains_nothing() -> None:
    old = block(host("n1"), host="login1", system="Other", program="older")
    assert differences(old, block(host("n2"), host="login2")) == (
        "program: older (analysed: 0c0ffee0)",
    )


def test_the_machine_below_emulated_hosts_does_count() -> None:
    network = EmulatedNetwork(num_hosts=1, bits_per_s=None)
    emulated = {"launcher": "emulated", "spread": Spread(), "network": network}
    old = block(host("emulated0"), settings=emulated, cpu_model="Old one")
    assert differences(old, block(host("emulated0"), settings=emulated)) == (
        "cpu_model: Old one (analysed: A processor)",
    )


def test_what_the_records_cannot_tell_is_said() -> None:
    (line,) = differences(block(host("n1")), block(host("n2")))
    assert line.startswith("nothing that the records hold: perhaps hosts of the job")
    # Which cores a run was given depends on its point, and says nothing about the block.
    assert differences(block(host("n1", cores=(0,))), block(host("n2"))) == (line,)
    # Other launchers are named.
    assert differences(block(host("n1"), settings={}), block(host("n1"))) == (
        "launcher: local (analysed: slurm)",
    )
