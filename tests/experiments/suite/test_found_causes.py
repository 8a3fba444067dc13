"""Planted causes: judged by what launches in their turn gained, every turn made once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.derive.steadiness import LEAST_FOR_HUMPS
from analysis.stats.explained_parts import Cause
from experiments.suite.found_causes import (
    FILE,
    FOLDER,
    Plant,
    PlantedTurn,
    judge,
    read_lines,
    render_found,
    write_lines,
)
from experiments.suite.planted_causes import BEFOREHAND
from experiments.suite.planted_points import (
    COMPUTE,
    INCAST,
    NETWORK,
    PORTS,
    SIDES,
    SIZES,
    WARMUP,
    SoundStep,
    burners,
    draws,
    planted_point,
    sound_point,
)
from ps_allreduce.errors import UserError
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.record.records import Status
from tests.analysis.stats.test_causes import launches
from tests.experiments.conftest import Machine, run
from tests.fakes import FakeLauncher, bad_run, make_host, ok_run

SOUND = [
    PlantedTurn(number=number - 4, side="allreduce", sizes={}, planted=f"s/{number}", without={})
    for number in range(4)
]


#: The launches before and after the one with a cause.
CLEAN = ("before", "after")


def turn(sizes: dict[Plant, float]) -> PlantedTurn:
    without = dict.fromkeys(sizes, CLEAN)
    return PlantedTurn(number=0, side="allreduce", sizes=sizes, planted="slow", without=without)


def runs_of(slow_worker_s: float) -> pd.DataFrame:
    sound = launches(count=6)
    sound.index = pd.Index([*(f"s/{number}" for number in range(4)), *CLEAN])
    half = slow_worker_s / 2
    slow = launches(count=1, compute_s=half, waiting_s=half, slow_worker_s=slow_worker_s)
    runs = pd.concat([sound, slow.set_axis(["slow"])])
    return runs.assign(started_at=pd.date_range("2026-01-01", periods=len(runs), freq="min"))


def test_a_cause_is_found_and_its_promise_kept() -> None:
    found = judge([*SOUND, turn({Plant.SLOW_WORKER: 0.2})], runs_of(0.02))
    row = found[found["turn"] == 0].iloc[0]
    assert (row["first"], row["right"], row["kept"]) == (Cause.WORKER, True, True)
    assert row["gains_agree"]
    assert row["promised_s"] == pytest.approx(0.02, rel=0.05)
    assert row["gained_s"] == pytest.approx(0.02, rel=0.05)
    assert found[found["turn"] < 0]["right"].all()
    lines = render_found(found)
    assert lines[0].startswith("right cause first: 1.000 [")
    assert lines[1].startswith("  launches without a cause agree on its gain within 20%: 1.000 [")
    assert "slow worker: 1 of 1 right" in lines[2]
    assert "slow worker, 20% of a step: 1 of 1 right" in lines[3]
    assert lines[-1] == "sound launches with a cause: 0 of 6 launches"


def test_launches_that_disagree_keep_a_promise_only_in_the_mean() -> None:
    runs = runs_of(0.02)
    steps = runs["mean_step_s"].astype(float)
    apart = pd.Series({"before": 0.006, "after": -0.006}).reindex(steps.index, fill_value=0.0)
    runs["mean_step_s"] = steps + apart
    row = judge([*SOUND, turn({Plant.SLOW_WORKER: 0.2})], runs).iloc[4]
    assert (row["kept"], row["gains_agree"]) == (True, False)


def test_what_is_too_small_or_something_else_is_not_right() -> None:
    found = judge([*SOUND, turn({Plant.SLOW_WORKER: 0.05})], runs_of(0.0001))
    assert not found[found["turn"] == 0].iloc[0]["right"]
    both = turn({Plant.SLOW_WORKER: 0.05, Plant.SLOW_LINK: 0.2})
    assert not judge([*SOUND, both], runs_of(0.02)).iloc[-1]["right"]


def test_turns_are_kept_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / FILE
    assert read_lines(path, PlantedTurn) == []
    write_lines(path, SOUND)
    assert read_lines(path, PlantedTurn) == SOUND
    path.write_text("no turn\n")
    with pytest.raises(UserError, match="no JSON"):
        read_lines(path, PlantedTurn)


def test_a_seed_draws_causes_on_both_sides() -> None:
    drawn = draws(7, 200)
    assert draws(7, 200) == drawn != draws(8, 200)
    assert {draw.side for draw in drawn} == set(SIDES)
    assert {plant for draw in drawn for plant in draw.sizes} == set(Plant)
    assert {size for draw in drawn for size in draw.sizes.values()} == set(SIZES)
    assert 0.1 < sum(len(draw.sizes) == 2 for draw in drawn) / 200 < 0.3
    served = [draw for draw in drawn if {Plant.HOT_SERVER, Plant.SHALLOW_PORT} & {*draw.sizes}]
    assert all(SIDES[draw.side].uses_servers for draw in served)
    shallow = [draw for draw in drawn if Plant.SHALLOW_PORT in draw.sizes]
    assert shallow == [draw for draw in drawn if draw.side == INCAST]
    assert {len(draw.sizes) for draw in shallow} == {1}


def test_causes_are_planted_where_they_belong(tmp_path: Path) -> None:
    step = SoundStep(step_s=0.1, travel_s=0.05, network_s=0.04)
    sound = sound_point("ps_sync")

    assert planted_point(sound, {Plant.BUSY_CORES: 0.1}, step, tmp_path) == sound
    assert burners({Plant.BUSY_CORES: 0.2}) > burners({Plant.BUSY_CORES: 0.05}) > 0
    assert burners({Plant.SLOW_LINK: 0.2}) == 0
    worker = planted_point(sound, {Plant.SLOW_WORKER: 0.1}, step, tmp_path)
    assert worker.workload.emulated is not None
    assert worker.workload.emulated.factors == (1.0, 1 + 0.01 / COMPUTE.forward_s)
    link = planted_point(sound, {Plant.SLOW_LINK: 0.1}, step, tmp_path)
    assert link.network is not None
    assert (link.network.slow_host, link.network.bits_per_s) == (3, NETWORK.bits_per_s)
    assert link.network.slow_bits_per_s == pytest.approx(100e6 / 1.2, rel=1e-3)
    incast = sound_point(INCAST)
    assert incast.num_workers > sound.num_workers
    shallow = planted_point(incast, {Plant.SHALLOW_PORT: 0.2}, step, tmp_path)
    assert shallow.network == replace(NETWORK, port_buffer_bytes=PORTS[0.2])
    # Stalls are looked for in so many steps.
    assert isinstance(shallow.measurement, Measurement)
    assert shallow.measurement.measured_steps == LEAST_FOR_HUMPS
    hot = planted_point(sound, {Plant.HOT_SERVER: 0.1}, step, tmp_path)
    assert hot.strategy == sound.strategy
    (module,) = tmp_path.glob("models/*/planted.py")
    assert "SIZES = [20250, 12150, 20250," in module.read_text()
    late = planted_point(sound, {Plant.SLOW_INPUT: 0.1}, step, tmp_path)
    assert late.workload.model.name == "planted.py:build"
    # Three batches that were fetched beforehand last for 30 steps.
    assert isinstance(late.measurement, Measurement)
    assert late.measurement.warmup.least_steps == WARMUP.least_steps + 30
    modules = tmp_path.glob("models/*/planted.py")
    assert any("PERIOD_US = 110000" in module.read_text() for module in modules)


#: Draws neither a hot server, which needs links, nor busy cores, which would burn some.
SEED = "34"


def test_turns_are_made_and_judged_once(
    launcher: FakeLauncher, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("planted-causes", "--seed", SEED, "--launches", "3")
    assert run(*words, "--budget-s", "0") == 1
    assert launcher.launched == []
    launcher.script = [bad_run(Status.INTERRUPTED)]
    assert run(*words) == 130
    assert len(launcher.launched) == 1
    launcher.launched.clear()
    # Both are made again.
    stolen = ok_run(hosts=(make_host(stolen_load=0.3),))
    launcher.script += [bad_run(Status.FAILED), stolen]
    assert run(*words) == 0
    turns = read_lines(Path("results") / FOLDER / SEED / FILE, PlantedTurn)
    drawn = draws(int(SEED), 3)
    assert [turn.sizes for turn in turns[len(SIDES) * BEFOREHAND :]] == [
        draw.sizes for draw in drawn
    ]
    without = 2 * sum(len(draw.sizes) for draw in drawn)
    assert len(launcher.launched) == 2 + len(SIDES) * BEFOREHAND + 3 + without
    assert (
        launcher.launched[2 : 2 + len(SIDES) * BEFOREHAND]
        == [sound_point(side) for side in SIDES] * 5
    )
    assert "right cause first: " in capsys.readouterr().out
    assert run(*words) == 0
    assert len(launcher.launched) == 2 + len(SIDES) * BEFOREHAND + 3 + without
