from __future__ import annotations

from dataclasses import replace

from analysis.points import make_cases
from ps_allreduce.experiment import Profile
from ps_allreduce.placement import Policy
from ps_allreduce.records import Status
from ps_allreduce.strategies import Strategy
from ps_allreduce.workload import Workload
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
        "allreduce, one pack",
        "allreduce, 4 MB packs",
    ]


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
