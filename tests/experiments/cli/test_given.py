"""How far a sweep reaches and how tasks are spread, from what was typed and from what is there."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.cli.given import scale_from, spread_from
from experiments.sweep.profiles import PROFILES, Scale, scale_of_hosts
from launchers.protocol import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.point.spread import Coordinator, Spread

QUICK, STANDARD = PROFILES["quick"], PROFILES["standard"]


def given(launcher: str = "emulated", **typed: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("workers_per_host", "ps_per_host", "coordinator", "cores_per_worker", "workers")
    )
    return {"launcher": launcher} | nothing | typed


def hosts(number: int, cores: int) -> Capacity:
    return Capacity(num_hosts=number, cores_per_host=cores)


def test_one_host_has_nothing_to_spread() -> None:
    assert spread_from(given("local")) is None


@pytest.mark.parametrize("launcher", ["emulated", "slurm", "ssh"])
def test_several_hosts_get_one_worker_each_unless_asked_otherwise(launcher: str) -> None:
    assert spread_from(given(launcher)) == Spread(
        workers_per_host=1, ps_per_host=None, coordinator=Coordinator.FIRST_WORKER
    )
    typed = given(launcher, workers_per_host=4, ps_per_host=2, coordinator="own_host")
    assert spread_from(typed) == Spread(
        workers_per_host=4, ps_per_host=2, coordinator=Coordinator.OWN_HOST
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("workers_per_host", 1), ("ps_per_host", 1), ("coordinator", "first_worker")],
)
def test_one_host_refuses_to_be_spread_over(name: str, value: object) -> None:
    option = f"--{name.replace('_', '-')}"
    with pytest.raises(UserError, match=f"{option}: the launcher local has one host"):
        spread_from(given("local", **{name: value}))


def test_an_unknown_coordinator_is_told_which_there_are() -> None:
    told = "unknown coordinator 'me'; choose one of first_worker, first_server, own_host"
    with pytest.raises(UserError, match=told):
        spread_from(given(coordinator="me"))


@pytest.mark.parametrize(
    ("typed", "capacity", "expected"),
    [
        pytest.param({}, hosts(5, 8), Scale(workers=(1, 2, 4), cores_per_worker=8), id="doubled"),
        pytest.param(
            {"workers_per_host": 2},
            hosts(4, 8),
            Scale(workers=(1, 2, 4, 8), cores_per_worker=4),
            id="several workers on a host",
        ),
        pytest.param(
            {"cores_per_worker": 3},
            hosts(2, 8),
            Scale(workers=(1, 2), cores_per_worker=3),
            id="fewer cores than there are",
        ),
        pytest.param(
            {"workers": "3,1"}, hosts(9, 8), Scale(workers=(1, 3), cores_per_worker=8), id="typed"
        ),
        pytest.param(
            {"workers": "4", "workers_per_host": 4},
            hosts(1, 2),
            Scale(workers=(4,), cores_per_worker=1),
            id="more workers than cores",
        ),
    ],
)
def test_on_several_hosts_workers_are_doubled_and_share_their_own_host_only(
    typed: dict[str, Any], capacity: Capacity, expected: Scale
) -> None:
    assert scale_from(given(**typed), QUICK, capacity) == expected


@pytest.mark.parametrize(
    ("typed", "cores", "expected"),
    [
        ({}, 8, Scale(workers=(1, 2), cores_per_worker=4)),
        ({"workers": "1,2,4"}, 8, Scale(workers=(1, 2, 4), cores_per_worker=2)),
        (
            {"workers": "1,2,4", "cores_per_worker": 1},
            8,
            Scale(workers=(1, 2, 4), cores_per_worker=1),
        ),
    ],
)
def test_on_one_host_all_workers_share_its_cores(
    typed: dict[str, Any], cores: int, expected: Scale
) -> None:
    assert scale_from(given("local", **typed), QUICK, hosts(1, cores)) == expected


def test_the_standard_profile_reaches_further_on_one_host() -> None:
    assert scale_from(given("local"), STANDARD, hosts(1, 8)).workers == (1, 2, 4)


@pytest.mark.parametrize(
    ("most", "workers"), [(1, (1,)), (2, (1, 2)), (3, (1, 2)), (9, (1, 2, 4, 8))]
)
def test_workers_are_doubled_up_to_what_a_cluster_holds(
    most: int, workers: tuple[int, ...]
) -> None:
    assert scale_of_hosts(most, 2) == Scale(workers=workers, cores_per_worker=2)
