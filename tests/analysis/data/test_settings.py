from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.report.what_was_run import what_was_run
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.optimizers import Adagrad
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.wire import UNBUCKETED, Wire, WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from tests.analysis.builders import case_of, cases_of, changed, run, runs
from tests.fakes import make_experiment

TOWERS = Workload(model=RecommenderModel(), optimizer=Adagrad())


def test_the_ok_attempt_of_a_repetition_counts() -> None:
    own = make_experiment(Single)
    records = [
        run(own, None, 0, attempt=1),
        run(own, 90.0, 0, attempt=2),
        run(own, None, 1, attempt=1, status=Status.TIMED_OUT),
    ]
    (point,) = case_of(records).points
    assert point.rates.to_dict() == {0: 90.0}
    assert point.lost_repetitions == 1
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


HALF = Wire(gradients=WireType.FLOAT16)
CUT: dict[str, Any] = {"placement": Policy.PARTITIONED}
TWO_SERVERS = make_experiment(SynchronousServers, 4, num_ps=2, split_bytes=2_000_000, **CUT)
FOUR_SERVERS = make_experiment(SynchronousServers, 4, num_ps=4, split_bytes=1_000_000, **CUT)
PACKS = [reduced(bytes_per_pack=size) for size in (0, 500_000)]
BUCKETS = [reduced(bytes_per_pack=None, wire=Wire(in_flight=count)) for count in (2, 4)]


@pytest.mark.parametrize(
    ("strategy", "points", "others"),
    [
        pytest.param(
            "ps_sync, ",
            [served(), served(**CUT)],
            ["round_robin", "partitioned"],
            id="only what differs",
        ),
        pytest.param(
            "ps_sync, ",
            [served(), served(**CUT), served(num_ps=1), served(**CUT, split_bytes=1_000_000)],
            [
                *("round_robin, 1 ps", "round_robin, 2 ps"),
                *("partitioned, 2 ps, split 1 MB", "partitioned, 2 ps, split 4 MB"),
            ],
            id="servers and thresholds",
        ),
        pytest.param(
            "ps_sync, partitioned",
            [TWO_SERVERS, FOUR_SERVERS],
            [", 2 ps", ", 4 ps"],
            id="a threshold that follows the number of servers is no setting",
        ),
        pytest.param(
            "ps_sync, partitioned",
            [replace(TWO_SERVERS, num_workers=2), FOUR_SERVERS],
            [""],
            id="servers that follow the workers are no setting",
        ),
        pytest.param(
            "ps_sync, round_robin, ",
            [served(wire=wire) for wire in (UNBUCKETED, Wire(), HALF, Wire(in_flight=0))],
            ["defaults", "unbucketed", "all in flight", "float16 gradients"],
            id="several things: what is not at its default",
        ),
        pytest.param(
            "ps_sync, round_robin, ",
            [
                *(served(wire=Wire(group_bytes=0)), served(), served(wire=Wire(cut_bytes=0))),
                served(wire=Wire(group_bytes=2_000_000, cut_bytes=2_000_000)),
                served(host_aggregation=True),
            ],
            ["defaults", "ungrouped", "2 MB messages", "uncut", "sent per host"],
            id="sizes of messages",
        ),
        pytest.param(
            "ps_sync, round_robin, ",
            [served(wire=Wire(in_flight=2)), served()],
            ["4 in flight", "2 in flight"],
            id="one thing: all its values",
        ),
        pytest.param(
            "ps_sync, round_robin, ",
            [served(wire=Wire(gradients=kind)) for kind in reversed(WireType)],
            ["float32 gradients", "float16 gradients", "bfloat16 gradients"],
            id="number formats in their order",
        ),
        pytest.param(
            "ps_sync, round_robin, ",
            [
                served(wire=replace(UNBUCKETED, gradients=kind))
                for kind in (WireType.FLOAT32, WireType.BFLOAT16)
            ],
            ["float32 gradients", "bfloat16 gradients"],
            id="all of them unbucketed",
        ),
        pytest.param(
            "all-reduce",
            [reduced(), reduced(bytes_per_pack=4_000_000)],
            [", 4 MB packs", ", one pack"],
            id="packs",
        ),
        pytest.param(
            "all-reduce",
            [*PACKS, BUCKETS[1]],
            [", buckets", ", 0.5 MB packs", ", one pack"],
            id="packs and buckets",
        ),
        pytest.param(
            "all-reduce",
            [PACKS[0], *BUCKETS],
            [", defaults", ", one pack", ", 2 in flight"],
            id="packs and several buckets",
        ),
        pytest.param("all-reduce", BUCKETS[:1], [""], id="nothing to tell apart"),
        pytest.param(
            "ps_async, round_robin, ",
            [dealt(None, 1), dealt(4, 1), dealt(4, 4)],
            ["defaults", "staleness 4", "staleness 4, 4 steps per dispatch"],
            id="dealing",
        ),
        pytest.param(
            "ps_async, round_robin, ",
            [dealt(None, 1), dealt(4, 1)],
            ["staleness unbounded", "staleness 4"],
            id="staleness alone",
        ),
    ],
)
def test_labels(strategy: str, points: Sequence[Experiment], others: Sequence[str]) -> None:
    assert labels(points) == [strategy + other for other in others]


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
        "SmallCNN, batch_per_worker 16, least_measured_s 0.0",
        "SmallCNN, batch_per_worker 16, least_measured_s 20.0",
        "SmallCNN, batch_per_worker 32, least_measured_s 0.0",
    ]


def test_points_that_were_measured_for_other_lengths_are_of_one_case() -> None:
    longer = Measurement(measured_s=20.0)
    own, other = make_experiment(Single), make_experiment(NoCommunication, measurement=longer)
    (case,) = cases_of(runs(own, {0: 1.0}), runs(other, {0: 1.0}))
    assert len(case.points) == 2
    assert dict(what_was_run(case))["profile"].endswith(
        "measured 100 steps and 0 to 20 s, 1 repetition of a point"
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
