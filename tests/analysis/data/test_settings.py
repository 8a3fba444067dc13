from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.data.cases import turns_of
from analysis.report.what_was_run import what_was_run
from analysis.stats.statistics import compare
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.optimizers import Adagrad
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Phases, RecordingTimes, RunRecord, Status
from ps_allreduce.serialization import from_json
from tests.analysis.builders import case_of, cases_of, changed, run, runs, table_of
from tests.fakes import make_experiment
from tests.goldens import golden

#: Points of a case in a line, and how their settings are called: new ones are written there.
LABELS = "sentences/labels.txt"

TOWERS = Workload(model=RecommenderModel(), optimizer=Adagrad())


def test_the_ok_attempt_of_a_repetition_counts() -> None:
    own = make_experiment(Single)
    times = RecordingTimes(recorded_s=(1.0, 2.0), bare_s=(1.0, 1.0), steps_per_stretch=7)
    records = [
        run(own, None, 0, attempt=1),
        run(own, 90.0, 0, attempt=2),
        run(own, None, 1, attempt=1, status=Status.TIMED_OUT),
        run(own, None, 2, status=Status.OK, reason="", recording=times),  # it has no rate
    ]
    (point,) = case_of(records).points
    assert point.rates.to_dict() == {0: 90.0}
    assert point.lost_repetitions == 1
    cut_off = [run(own, 90.0), run(own, None, 1, status=Status.INTERRUPTED)]
    assert case_of(cut_off).points[0].lost_repetitions == 0, "the launch is still to be made"
    assert len(point.unusable) == 2


def labels(points: Sequence[Experiment]) -> list[str]:
    case = case_of([run(own, 1.0) for own in points])
    return [setting.label for setting in case.settings]


def served(**settings: Any) -> Experiment:
    return make_experiment(SynchronousServers, 2, **settings)


def reduced(**settings: Any) -> Experiment:
    return make_experiment(AllReduce, 2, **settings)


def dealt(staleness: int | None, count: int) -> Experiment:
    return make_experiment(AsynchronousServers, 2, staleness=staleness, steps_per_dispatch=count)


def stated(text: str) -> Experiment:
    """A strategy, and in JSON what is stated of it."""
    kind, _, asked = text.partition(" ")
    settings = {"num_workers": 2, **json.loads(asked)}
    workers = settings.pop("num_workers")
    own = from_json(StrategySettings, settings)
    return make_experiment(STRATEGIES[kind], workers, **{n: getattr(own, n) for n in settings})


def test_labels_tell_apart_what_differs_and_nothing_else() -> None:
    told = []
    for points in re.findall(r"^(.+) -> ", (golden.FILES / LABELS).read_text(), re.MULTILINE):
        shown = " | ".join(labels([*map(stated, points.split(" | "))]))
        told.append(f"{points} -> {shown}\n")
    golden.check({LABELS: "".join(told)})


SIZES = st.sampled_from([0, 500_000, 2_000_000])
WIRES = st.builds(
    Wire,
    group_bytes=SIZES,
    cut_bytes=SIZES,
    in_flight=st.sampled_from([0, 2, 4]),
    gradients=st.sampled_from(list(WireType)),
)


SERVED = st.builds(served, wire=WIRES, host_aggregation=st.booleans())
DEALT = st.builds(
    lambda own, wire: changed(own, wire=wire),
    st.builds(dealt, st.sampled_from([None, 4, 8]), st.sampled_from([1, 2, 4])),
    WIRES,
)
REDUCED = st.builds(
    lambda wire, size: reduced(**({"wire": wire} if size is None else {"bytes_per_pack": size})),
    WIRES,
    st.sampled_from([None, 0, 500_000, 500_004]),
)


@settings(max_examples=10)
@given(st.lists(SERVED | DEALT | REDUCED, unique=True, min_size=1, max_size=8))
def test_no_two_settings_are_called_the_same(points: list[Experiment]) -> None:
    assert len(set(labels(points))) == len(points)


def test_servers_that_follow_the_workers_are_one_setting() -> None:
    points = [make_experiment(SynchronousServers, count, num_ps=count) for count in (1, 2, 4)]
    case = case_of([run(own, 1.0) for own in points])
    (setting,) = case.settings
    assert (setting.num_ps, setting.label) == (None, "ps_sync, round_robin")
    assert [point.num_workers for point in case.points] == [1, 2, 4]


def test_different_workloads_and_lengths_are_never_one_case() -> None:
    own = make_experiment(Single)
    others = [
        own,
        replace(own, workload=Workload(model=ImageModel(name="ResNet50"))),
        replace(own, workload=Workload(batch_per_worker=32)),
        replace(own, measurement=Measurement(measured_s=20.0)),
    ]
    cases = cases_of(*(runs(own, {0: 1.0}) for own in others))
    assert [case.name for case in cases] == [
        "ResNet50",
        "SmallCNN, batch per worker 16, least measured 0.0 s",
        "SmallCNN, batch per worker 16, least measured 20.0 s",
        "SmallCNN, batch per worker 32, least measured 0.0 s",
    ]


def test_points_that_were_measured_for_other_lengths_are_of_one_case() -> None:
    longer = Measurement(measured_s=20.0)
    own, other = make_experiment(Single), make_experiment(NoCommunication, measurement=longer)
    (case,) = cases_of(runs(own, {0: 1.0}), runs(other, {0: 1.0}))
    assert len(case.points) == 2
    assert dict(what_was_run(case))["profile"].endswith(
        "; at least 100 steps and 0 to 20 s measured; 1 launch of a point"
    )


def test_sparse_embeddings_are_told_and_a_rule_of_rows_that_is_no_default() -> None:
    sparse = {"num_ps": 1, "embeddings": Embeddings.SPARSE, "workload": TOWERS}
    points = [
        served(num_ps=1, workload=TOWERS),
        served(**sparse),
        served(**sparse, table_rows=RowRule.HASH),
    ]
    assert sorted(labels(points)) == [
        "ps_sync, round_robin, dense embeddings",
        "ps_sync, round_robin, sparse embeddings",
        "ps_sync, round_robin, sparse embeddings, rows by hash",
    ]


ONE, OTHER = make_experiment(Single), make_experiment(AllReduce, 2)


def at(second: float) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).isoformat()


def made(second: float, repetition: int, lasted: float = 20.0, **changes: Any) -> RunRecord:
    rate = 100.0 if changes.get("status", Status.OK) is Status.OK else None
    times = {"started_at": at(second), "finished_at": at(second + lasted)}
    return run(ONE, rate, repetition, **(times | changes))


def interrupted(second: float, repetition: int, total_s: float | None) -> RunRecord:
    """Recorded an hour later, by the session that found its note."""
    return made(
        second, repetition, 3600.0, status=Status.INTERRUPTED, phases=Phases(total_s=total_s)
    )


@pytest.mark.parametrize(
    ("records", "turns"),
    [
        pytest.param([made(0, 0), made(21, 0), made(45, 1), made(70, 1)], [0, 0, 1, 1], id="whole"),
        pytest.param([made(0, 0), made(25, 1), made(50, 0, attempt=2)], [0, 1, 2], id="retried"),
        pytest.param([made(0, 0), made(25, 0, 900.0), made(930, 0)], [0, 0, 0], id="a long run"),
        pytest.param([made(0, 0), made(25, 0), made(106, 0)], [0, 0, 1], id="a pause"),
        pytest.param([made(0, 0), interrupted(25, 0, 5.0), made(40, 0)], [0, 0, 0], id="no pause"),
        pytest.param([made(0, 0), interrupted(25, 0, None), made(3625, 0)], [0, 0, 1], id="killed"),
        pytest.param(
            [made(0, 0, job_id="7"), made(5, 1000, job_id="8"), made(25, 0, job_id="7")],
            [0, 1, 0],
            id="jobs side by side",
        ),
    ],
)
def test_runs_of_a_repetition_in_a_row_are_a_turn(
    records: Sequence[RunRecord], turns: list[int]
) -> None:
    table, named = table_of(records)
    assert [turns_of(table)[path] for path in named] == turns


def test_a_launch_that_was_made_again_later_is_no_pair() -> None:
    again = run(OTHER, 200.0, 0, started_at=at(600), finished_at=at(620))
    others = [run(OTHER, 200.0, repetition) for repetition in (1, 2, 3)]
    alone = [run(ONE, 100.0, repetition) for repetition in range(4)]
    one, other = case_of(alone, [again, *others]).points
    found = compare(other.rates, one.rates)
    assert (found.n_first, found.n_second) == (3, 3)
    assert other.lost_repetitions == 0
