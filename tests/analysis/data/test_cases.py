from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analysis.data.cases import make_cases
from ps_allreduce.point.experiment import Experiment, Profile
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.wire import STOCK, Wire, WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import Status
from tests.analysis.builders import PROFILE, experiment, run, runs


def test_the_ok_attempt_of_a_repetition_counts() -> None:
    own = experiment(Strategy.SINGLE)
    records = [
        run(own, None, 0, attempt=1),
        run(own, 90.0, 0, attempt=2),
        run(own, None, 1, attempt=1, status=Status.TIMED_OUT),
    ]
    ((point,),) = [case.points for case in make_cases(records)]
    assert point.rates == {0: 90.0}
    assert [record.repetition for record in point.lost_repetitions] == [1]
    assert len(point.unusable) == 2


def test_labels_say_only_what_differs() -> None:
    one = [
        experiment(Strategy.PS_SYNC, 2),
        experiment(Strategy.PS_SYNC, 2, placement=Policy.PARTITIONED),
        experiment(Strategy.ALLREDUCE, 2),
    ]
    (case,) = make_cases(run(own, 1.0) for own in one)
    assert [setting.label for setting in case.settings] == [
        "ps_sync, round_robin",
        "ps_sync, partitioned",
        "allreduce",
    ]
    more = [
        *one,
        experiment(Strategy.PS_SYNC, 2, num_ps=1),
        experiment(Strategy.ALLREDUCE, 2, bytes_per_pack=4_000_000),
        experiment(Strategy.PS_SYNC, 2, placement=Policy.PARTITIONED, split_bytes=1_000_000),
    ]
    (case,) = make_cases(run(own, 1.0) for own in more)
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
        experiment(Strategy.PS_SYNC, 4, num_ps=2, split_bytes=2_000_000, **cut),
        experiment(Strategy.PS_SYNC, 4, num_ps=4, split_bytes=1_000_000, **cut),
    ]
    assert labels(more) == ["ps_sync, partitioned, 2 ps", "ps_sync, partitioned, 4 ps"]
    follows = [replace(more[0], num_workers=2), more[1]]
    assert labels(follows) == ["ps_sync, partitioned"]


def labels(points: Sequence[Experiment]) -> list[str]:
    (case,) = make_cases(run(own, 1.0) for own in points)
    return [setting.label for setting in case.settings]


def test_what_sets_wires_apart_is_in_the_label() -> None:
    wires = [STOCK, Wire(), Wire(gradients=WireType.FLOAT16), Wire(in_flight=0)]
    assert labels([experiment(Strategy.PS_SYNC, 2, wire=wire) for wire in wires]) == [
        "ps_sync, round_robin, defaults",
        "ps_sync, round_robin, stock messages",
        "ps_sync, round_robin, all in flight",
        "ps_sync, round_robin, float16 gradients",
    ]
    others = [
        Wire(group_bytes=0),
        Wire(),
        Wire(cut_bytes=0),
        Wire(group_bytes=2_000_000, cut_bytes=2_000_000),
        Wire(host_aggregation=True),
    ]
    assert labels([experiment(Strategy.PS_SYNC, 2, wire=wire) for wire in others]) == [
        "ps_sync, round_robin, defaults",
        "ps_sync, round_robin, ungrouped",
        "ps_sync, round_robin, 2 MB messages",
        "ps_sync, round_robin, uncut",
        "ps_sync, round_robin, sent per host",
    ]


def test_where_one_thing_differs_the_label_states_it() -> None:
    few = [Wire(in_flight=2), Wire()]
    assert labels([experiment(Strategy.PS_SYNC, 2, wire=wire) for wire in few]) == [
        "ps_sync, round_robin, 4 in flight",
        "ps_sync, round_robin, 2 in flight",
    ]
    formats = [Wire(gradients=kind) for kind in reversed(WireType)]
    assert labels([experiment(Strategy.PS_SYNC, 2, wire=wire) for wire in formats]) == [
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
    host_aggregation=st.booleans(),
)


SERVED = st.builds(lambda wire: experiment(Strategy.PS_SYNC, 2, wire=wire), WIRES)
DEALT = st.builds(
    lambda wire, staleness, steps: experiment(
        Strategy.PS_ASYNC,
        2,
        wire=replace(wire, host_aggregation=False),
        staleness=staleness,
        steps_per_dispatch=steps,
    ),
    WIRES,
    st.sampled_from([None, 4, 8]),
    st.sampled_from([1, 2, 4]),
)
REDUCED = st.builds(
    lambda wire, size: experiment(
        Strategy.ALLREDUCE,
        2,
        wire=replace(wire, host_aggregation=False) if size is None else Wire(),
        bytes_per_pack=size,
    ),
    WIRES,
    st.sampled_from([None, 0, 500_000, 500_004]),
)


@given(st.lists(SERVED | DEALT | REDUCED, unique=True, min_size=1, max_size=8))
def test_no_two_settings_are_called_the_same(points: list[Experiment]) -> None:
    assert len(set(labels(points))) == len(points)


def test_messages_are_stock_by_their_sizes_and_number() -> None:
    halves = [replace(STOCK, gradients=kind) for kind in (WireType.FLOAT32, WireType.BFLOAT16)]
    assert labels([experiment(Strategy.PS_SYNC, 2, wire=wire) for wire in halves]) == [
        "ps_sync, round_robin, float32 gradients",
        "ps_sync, round_robin, bfloat16 gradients",
    ]


def test_buckets_are_told_from_packs_and_from_other_buckets() -> None:
    packs = [experiment(Strategy.ALLREDUCE, 2, bytes_per_pack=n) for n in (0, 500_000)]
    buckets = [
        experiment(Strategy.ALLREDUCE, 2, bytes_per_pack=None, wire=Wire(in_flight=n))
        for n in (2, 4)
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
        experiment(Strategy.PS_ASYNC, 2, staleness=staleness, steps_per_dispatch=count)
        for staleness, count in ((None, 1), (4, 1), (4, 4))
    ]
    assert labels(dealt) == [
        "ps_async, round_robin, defaults",
        "ps_async, round_robin, staleness 4",
        "ps_async, round_robin, staleness 4, 4 steps per dispatch",
    ]
    assert labels(dealt[:2])[1] == "ps_async, round_robin, staleness 4"


def test_servers_that_follow_the_workers_are_one_setting() -> None:
    points = [experiment(Strategy.PS_SYNC, count, num_ps=count) for count in (1, 2, 4)]
    (case,) = make_cases(run(own, 1.0) for own in points)
    (setting,) = case.settings
    assert (setting.num_ps, setting.label) == (None, "ps_sync, round_robin")
    assert [point.num_workers for point in case.of(setting)] == [1, 2, 4]


def test_different_workloads_and_profiles_are_never_one_case() -> None:
    own = experiment(Strategy.SINGLE)
    others = [
        own,
        replace(own, workload=Workload(model="ResNet50")),
        replace(own, workload=Workload(batch_per_worker=32)),
        replace(own, profile=Profile(name="standard", repetitions=PROFILE.repetitions)),
    ]
    cases = make_cases(record for one in others for record in runs(one, {0: 1.0}))
    assert [case.name for case in cases] == [
        "ResNet50",
        "SmallCNN, batch_per_worker 16, profile_name quick",
        "SmallCNN, batch_per_worker 16, profile_name standard",
        "SmallCNN, batch_per_worker 32, profile_name quick",
    ]
