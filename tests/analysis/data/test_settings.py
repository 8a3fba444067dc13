from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.point.architectures import ImageModel
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import Measurement
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, Single, SynchronousServers
from ps_allreduce.point.wire import UNBUCKETED, Wire, WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from tests.analysis.builders import case_of, cases_of, run, runs
from tests.fakes import make_experiment


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


def test_labels_say_only_what_differs() -> None:
    one = [
        make_experiment(SynchronousServers, 2),
        make_experiment(SynchronousServers, 2, placement=Policy.PARTITIONED),
        make_experiment(AllReduce, 2),
    ]
    case = case_of([run(own, 1.0) for own in one])
    assert [setting.label for setting in case.settings] == [
        "ps_sync, round_robin",
        "ps_sync, partitioned",
        "allreduce",
    ]
    more = [
        *one,
        make_experiment(SynchronousServers, 2, num_ps=1),
        make_experiment(AllReduce, 2, bytes_per_pack=4_000_000),
        make_experiment(SynchronousServers, 2, placement=Policy.PARTITIONED, split_bytes=1_000_000),
    ]
    case = case_of([run(own, 1.0) for own in more])
    assert [setting.label for setting in case.settings] == [
        "ps_sync, round_robin, 1 ps",
        "ps_sync, round_robin, 2 ps",
        "ps_sync, partitioned, 2 ps, split 1 MB",
        "ps_sync, partitioned, 2 ps, split 4 MB",
        "allreduce, 4 MB packs",
        "allreduce, one pack",
    ]


def test_a_threshold_that_follows_the_number_of_servers_is_no_setting() -> None:
    cut = {"placement": Policy.PARTITIONED}
    more = [
        make_experiment(SynchronousServers, 4, num_ps=2, split_bytes=2_000_000, **cut),
        make_experiment(SynchronousServers, 4, num_ps=4, split_bytes=1_000_000, **cut),
    ]
    assert labels(more) == ["ps_sync, partitioned, 2 ps", "ps_sync, partitioned, 4 ps"]
    follows = [replace(more[0], num_workers=2), more[1]]
    assert labels(follows) == ["ps_sync, partitioned"]


def labels(points: Sequence[Experiment]) -> list[str]:
    case = case_of([run(own, 1.0) for own in points])
    return [setting.label for setting in case.settings]


def test_what_sets_wires_apart_is_in_the_label() -> None:
    wires = [UNBUCKETED, Wire(), Wire(gradients=WireType.FLOAT16), Wire(in_flight=0)]
    assert labels([make_experiment(SynchronousServers, 2, wire=wire) for wire in wires]) == [
        "ps_sync, round_robin, defaults",
        "ps_sync, round_robin, unbucketed",
        "ps_sync, round_robin, all in flight",
        "ps_sync, round_robin, float16 gradients",
    ]
    others: list[dict[str, Any]] = [
        *({"wire": Wire(group_bytes=0)}, {}, {"wire": Wire(cut_bytes=0)}),
        {"wire": Wire(group_bytes=2_000_000, cut_bytes=2_000_000)},
        {"host_aggregation": True},
    ]
    assert labels([make_experiment(SynchronousServers, 2, **each) for each in others]) == [
        "ps_sync, round_robin, defaults",
        "ps_sync, round_robin, ungrouped",
        "ps_sync, round_robin, 2 MB messages",
        "ps_sync, round_robin, uncut",
        "ps_sync, round_robin, sent per host",
    ]


def test_where_one_thing_differs_the_label_states_it() -> None:
    few = [Wire(in_flight=2), Wire()]
    assert labels([make_experiment(SynchronousServers, 2, wire=wire) for wire in few]) == [
        "ps_sync, round_robin, 4 in flight",
        "ps_sync, round_robin, 2 in flight",
    ]
    formats = [Wire(gradients=kind) for kind in reversed(WireType)]
    assert labels([make_experiment(SynchronousServers, 2, wire=wire) for wire in formats]) == [
        "ps_sync, round_robin, float32 gradients",
        "ps_sync, round_robin, float16 gradients",
        "ps_sync, round_robin, bfloat16 gradients",
    ]


SIZES = st.sampled_from([0, 500_000, 2_000_000])
WIRES = st.builds(
    Wire,
    group_bytes=SIZES,
    cut_bytes=SIZES,
    in_flight=st.sampled_from([0, 2, 4]),
    gradients=st.sampled_from(list(WireType)),
)


SERVED = st.builds(
    lambda wire, on_hosts: make_experiment(
        SynchronousServers, 2, wire=wire, host_aggregation=on_hosts
    ),
    WIRES,
    st.booleans(),
)
DEALT = st.builds(
    lambda wire, staleness, steps: make_experiment(
        AsynchronousServers,
        2,
        wire=wire,
        staleness=staleness,
        steps_per_dispatch=steps,
    ),
    WIRES,
    st.sampled_from([None, 4, 8]),
    st.sampled_from([1, 2, 4]),
)
REDUCED = st.builds(
    lambda wire, size: make_experiment(
        AllReduce,
        2,
        **({"wire": wire} if size is None else {"bytes_per_pack": size}),
    ),
    WIRES,
    st.sampled_from([None, 0, 500_000, 500_004]),
)


@given(st.lists(SERVED | DEALT | REDUCED, unique=True, min_size=1, max_size=8))
def test_no_two_settings_are_called_the_same(points: list[Experiment]) -> None:
    assert len(set(labels(points))) == len(points)


def test_messages_are_stock_by_their_sizes_and_number() -> None:
    halves = [replace(UNBUCKETED, gradients=kind) for kind in (WireType.FLOAT32, WireType.BFLOAT16)]
    assert labels([make_experiment(SynchronousServers, 2, wire=wire) for wire in halves]) == [
        "ps_sync, round_robin, float32 gradients",
        "ps_sync, round_robin, bfloat16 gradients",
    ]


def test_buckets_are_told_from_packs_and_from_other_buckets() -> None:
    packs = [make_experiment(AllReduce, 2, bytes_per_pack=n) for n in (0, 500_000)]
    buckets = [
        make_experiment(AllReduce, 2, bytes_per_pack=None, wire=Wire(in_flight=n)) for n in (2, 4)
    ]
    assert labels([*packs, buckets[1]]) == [
        "allreduce, buckets",
        "allreduce, 0.5 MB packs",
        "allreduce, one pack",
    ]
    assert labels([*packs[:1], *buckets]) == [
        "allreduce, defaults",
        "allreduce, one pack",
        "allreduce, 2 in flight",
    ]
    assert labels(buckets[:1]) == ["allreduce"]


def test_dealing_is_in_the_label_where_it_differs() -> None:
    dealt = [
        make_experiment(AsynchronousServers, 2, staleness=staleness, steps_per_dispatch=count)
        for staleness, count in ((None, 1), (4, 1), (4, 4))
    ]
    assert labels(dealt) == [
        "ps_async, round_robin, defaults",
        "ps_async, round_robin, staleness 4",
        "ps_async, round_robin, staleness 4, 4 steps per dispatch",
    ]
    assert labels(dealt[:2])[1] == "ps_async, round_robin, staleness 4"


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
