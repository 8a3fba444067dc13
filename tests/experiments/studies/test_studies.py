"""The points of every study, counted by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from experiments.studies.catalogue import PACK_BYTES, STUDIES
from experiments.studies.request import Request
from experiments.sweep.profiles import PROFILES, Scale, models_of, profile_named, scale_for
from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import SMALL_CNN
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy, VariableSpec
from ps_allreduce.point.spread import LayoutKind
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import Workload
from tests.fakes import PROFILE, TWO_LAYERS

BOTH_STRATEGIES = {Strategy.PS_ASYNC, Strategy.PS_SYNC}


def request(workers: tuple[int, ...] = (1, 2), **changes: Any) -> Request:
    settings: dict[str, Any] = {
        "workloads": (Workload(),),
        "profile": PROFILE,
        "scale": Scale(workers=workers, cores_per_worker=2),
        "launcher": "local",
        "num_ps": None,
        "layout": LayoutKind.COLOCATED,
        "split_bytes": 4_000_000,
        "describe": lambda _: TWO_LAYERS,
    }
    return Request(**(settings | changes))


def served(points: tuple[Experiment, ...]) -> list[tuple[int, int, str]]:
    """Workers, servers and policy of every synchronous point with servers."""
    return [
        (point.num_workers, point.num_ps, str(point.placement))
        for point in points
        if point.strategy is Strategy.PS_SYNC
    ]


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("workers", [(1, 2), (1, 2, 4)])
def test_a_study_has_no_point_twice_and_holds_its_baselines(
    name: str, workers: tuple[int, ...]
) -> None:
    points = STUDIES[name](request(workers))
    assert len({point.experiment_id for point in points}) == len(points)
    assert [p.num_workers for p in points if p.strategy is Strategy.SINGLE] == [1]
    free = [p.num_workers for p in points if p.strategy is Strategy.NO_COMMUNICATION]
    assert free == list(workers)


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "tuning-sweep"])
def test_all_points_of_a_study_use_the_same_resources_and_workload(name: str) -> None:
    points = STUDIES[name](request())
    assert len({(point.resources, point.workload, point.profile) for point in points}) == 1


def test_compare_holds_every_strategy_at_every_number_of_workers() -> None:
    points = STUDIES["compare"](request())
    # single; no_communication and allreduce at 1 and 2; servers: one placement on 1, two on 2.
    assert Counter(point.strategy for point in points) == {
        Strategy.SINGLE: 1,
        Strategy.NO_COMMUNICATION: 2,
        Strategy.ALLREDUCE: 2,
        Strategy.PS_ASYNC: 3,
        Strategy.PS_SYNC: 3,
    }
    assert {p.num_workers for p in points if p.strategy is Strategy.ALLREDUCE} == {1, 2}


def test_compare_sets_round_robin_against_the_best_placement() -> None:
    assert served(STUDIES["compare"](request())) == [
        (1, 1, "round_robin"),
        (2, 2, "round_robin"),
        (2, 2, "largest_first"),
    ]


def test_compare_cuts_where_that_is_best() -> None:
    points = STUDIES["compare"](request(split_bytes=4000))
    assert served(points)[-1] == (2, 2, "partitioned")
    assert points[-1].split_bytes == 4000


def test_compare_shows_another_placement_where_round_robin_is_best() -> None:
    even = [
        VariableSpec(name=f"v{index}", shape=(10,), dtype="float32", trainable=True)
        for index in range(4)
    ]
    points = STUDIES["compare"](request(describe=lambda _: even))
    assert served(points)[-1] == (2, 2, "largest_first")


def test_compare_keeps_a_stated_number_of_servers() -> None:
    points = STUDIES["compare"](request(num_ps=3))
    assert {(workers, num_ps) for workers, num_ps, _ in served(points)} == {(1, 3), (2, 3)}
    assert len(served(points)) == 4


def test_compare_covers_every_model() -> None:
    workloads = (Workload(), Workload(model="VGG16"))
    points = STUDIES["compare"](request(workloads=workloads))
    assert Counter(point.workload.model for point in points) == {"SmallCNN": 11, "VGG16": 11}


def test_ps_sweep_crosses_workers_servers_and_placements() -> None:
    points = STUDIES["ps-sweep"](request())
    # On one server every policy is the same.
    one = [(1, "round_robin")]
    two = [(2, str(policy)) for policy in Policy]
    assert Counter(served(points)) == {
        (workers, *servers): 1 for workers in (1, 2) for servers in one + two
    }
    assert len(points) == 3 + 2 * len(served(points)) == 23
    assert {p.strategy for p in points if p.num_ps} == BOTH_STRATEGIES


def test_ps_sweep_keeps_a_stated_number_of_servers() -> None:
    points = STUDIES["ps-sweep"](request(num_ps=3))
    assert {num_ps for _, num_ps, _ in served(points)} == {3}


def test_ps_sweep_goes_to_as_many_servers_as_workers() -> None:
    points = STUDIES["ps-sweep"](request((1, 2, 4)))
    assert {num_ps for _, num_ps, _ in served(points)} == {1, 2, 4}


def test_allreduce_sweep_crosses_workers_and_packs() -> None:
    points = STUDIES["allreduce-sweep"](request())
    reduced = [(p.num_workers, p.bytes_per_pack) for p in points if p.collective]
    assert reduced == [(workers, packs) for workers in (1, 2) for packs in PACK_BYTES]
    assert len(points) == 3 + len(reduced)


def test_allreduce_sweep_has_no_servers_to_number() -> None:
    with pytest.raises(UserError, match="leave NUM_PS out"):
        STUDIES["allreduce-sweep"](request(num_ps=2))


def test_placement_sweep_crosses_servers_and_placements_at_the_most_workers() -> None:
    points = STUDIES["placement-sweep"](request())
    assert served(points) == [(2, n, str(policy)) for n in (2, 3, 4) for policy in Policy]
    assert len(points) == 15
    assert len(STUDIES["placement-sweep"](request(num_ps=2))) == 7


@pytest.mark.parametrize("name", ["compare", "ps-sweep", "placement-sweep"])
def test_dedicated_servers_are_passed_on(name: str) -> None:
    points = STUDIES[name](request(layout=LayoutKind.DEDICATED))
    assert {p.layout for p in points if p.num_ps} == {LayoutKind.DEDICATED}


@pytest.mark.parametrize("name", ["compare", "ps-sweep", "placement-sweep"])
def test_more_servers_than_variables_are_refused_before_anything_runs(name: str) -> None:
    with pytest.raises(UserError, match="5 parameter servers but only 4 trainable variables"):
        STUDIES[name](request(num_ps=5))


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("num_ps", [0, -1])
def test_no_servers_are_not_taken_for_a_free_choice(name: str, num_ps: int) -> None:
    with pytest.raises(UserError):
        STUDIES[name](request(num_ps=num_ps))


def test_profiles_are_looked_up_by_name() -> None:
    assert profile_named("quick").repetitions == 3
    assert profile_named("standard").repetitions == 5
    with pytest.raises(UserError, match="unknown profile 'fast'; choose one of quick, standard"):
        profile_named("fast")


def test_every_profile_warms_up_and_measures_long_enough() -> None:
    for profile in PROFILES.values():
        assert profile.warmup_steps >= 10
        assert profile.warmup_s >= 5
        assert profile.measured_steps >= 100
    assert PROFILES["standard"].measured_s >= 20


def test_the_standard_profile_trains_more_models() -> None:
    assert models_of(PROFILES["quick"]) == (SMALL_CNN,)
    assert set(models_of(PROFILES["standard"])) == {SMALL_CNN, "ResNet50", "VGG16"}


@pytest.mark.parametrize(
    ("profile", "cores", "workers", "each"),
    [
        ("quick", 2, (1, 2), 1),
        ("quick", 16, (1, 2), 8),
        ("standard", 2, (1, 2), 1),
        ("standard", 7, (1, 2), 3),
        ("standard", 8, (1, 2, 4), 2),
        ("standard", 16, (1, 2, 4, 8), 2),
        ("standard", 128, (1, 2, 4, 8), 16),
    ],
)
def test_the_scale_follows_the_machine(
    profile: str, cores: int, workers: tuple[int, ...], each: int
) -> None:
    scale = scale_for(cores, PROFILES[profile])
    assert scale == Scale(workers=workers, cores_per_worker=each)


def test_one_core_is_not_enough_to_compare() -> None:
    with pytest.raises(UserError, match="this machine offers 1 core"):
        scale_for(1, PROFILES["quick"])
