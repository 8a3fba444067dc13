"""What is tried of each side: on equal hosts, nothing twice, what matters first."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.studies.scope import Scale
from experiments.tuning.candidates import STUDY
from experiments.tuning.halving import MOST
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts, room_for_workers
from ps_allreduce.point.placement import Policy, VariableSpec
from ps_allreduce.point.resources import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies.base import Servers
from tests.experiments.studies.scopes import make_scope

#: Alike, so that every rule deals them in turn.
EQUAL = tuple(
    VariableSpec(name=f"v{number}", shape=(1000,), dtype="float32", trainable=True)
    for number in range(16)
)


def sides_of(workers: int = 2, **changes: Any) -> tuple[list[Experiment], list[Experiment]]:
    points = [*STUDY.points(make_scope((1, workers), **changes))]
    reduced = [point for point in points if point.strategy.uses_collective]
    return reduced, [point for point in points if point.strategy.uses_servers]


def servers_of(point: Experiment) -> Servers:
    assert point.strategy.servers is not None
    return point.strategy.servers


@pytest.mark.parametrize(
    ("workers", "spread"),
    [
        (2, Spread()),
        (4, Spread()),
        (8, Spread(workers_per_host=2, ps_per_host=2)),
        (4, Spread(coordinator=Coordinator.OWN_HOST)),
    ],
)
def test_all_candidates_take_equally_many_hosts(workers: int, spread: Spread) -> None:
    reduced, served = sides_of(workers, spread=spread)
    assert {room_for_workers(point) for point in (*reduced, *served)} == {workers}
    assert {num_hosts(point) for point in (*reduced, *served)} == {
        workers // spread.workers_per_host
    }
    assert {servers_of(point).layout for point in served} == {
        LayoutKind.COLOCATED,
        LayoutKind.DEDICATED,
    }


def test_one_server_half_as_many_as_workers_and_as_many() -> None:
    _, served = sides_of(4, spread=Spread())
    kinds = {(servers_of(p).num_ps, servers_of(p).layout.value, p.num_workers) for p in served}
    assert kinds == {
        *((count, "colocated", 4) for count in (1, 2, 4)),
        *((1, "dedicated", 3), (2, "dedicated", 2)),
    }


def test_on_one_machine_servers_have_no_hosts_of_their_own() -> None:
    _, served = sides_of(4)
    assert {servers_of(point).layout for point in served} == {LayoutKind.COLOCATED}


def test_nothing_is_tried_twice() -> None:
    reduced, served = sides_of(4, spread=Spread())
    assert (len({*reduced}), len({*served})) == (len(reduced), len(served)) == (16, MOST)


def test_equal_plans_are_one_candidate() -> None:
    _, served = sides_of(4, describe=lambda _: EQUAL)
    assert {servers_of(point).placement for point in served} == {Policy.ROUND_ROBIN}
    _, served = sides_of(4)
    assert len({servers_of(point).placement for point in served}) > 1
    alone = [servers_of(point) for point in served if servers_of(point).num_ps == 1]
    assert {each.placement for each in alone} == {Policy.ROUND_ROBIN}


def test_the_default_comes_first_then_single_changes_of_every_axis_in_turn() -> None:
    (default, *others), _ = sides_of(2)
    assert default.title == "allreduce, SmallCNN, 2 workers"
    assert [point.title.removeprefix(f"{default.title}, ") for point in others[:6]] == [
        *("one pack", "2 in flight", "2 threads", "2 MB packs", "16 in flight"),
        "groups of 2 MB, cut at 2 MB",
    ]
    (default, *others), _ = sides_of(2, scale=Scale(workers=(2,), cores_per_worker=1))
    assert not [point for point in others if "threads" in point.title]


def test_what_the_model_has_too_few_variables_for_is_left_out() -> None:
    _, served = sides_of(4, describe=lambda _: EQUAL[:2])
    assert {servers_of(point).num_ps for point in served} == {1, 2}


def test_one_worker_has_nothing_to_exchange() -> None:
    with pytest.raises(UserError, match="2 workers or more"):
        sides_of(1)
