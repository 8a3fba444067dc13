"""How far the axes of a study reach, from what hosts offer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.studies.defaults import default_cores, default_models, default_workers
from experiments.sweep.sweep import PROFILES
from launchers.run.launcher import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies.stated import StrategySettings


def hosts(number: int, cores: int) -> Capacity:
    return Capacity(num_hosts=number, cores_per_host=cores)


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
def test_on_one_machine_all_workers_share_its_cores(
    profile: str, cores: int, workers: tuple[int, ...], each: int
) -> None:
    capacity = hosts(1, cores)
    assert default_workers(PROFILES[profile], None, capacity) == workers
    assert default_cores(workers, None, capacity) == each


def test_one_core_is_not_enough_to_compare() -> None:
    with pytest.raises(UserError, match="this machine offers 1 core"):
        default_workers(PROFILES["quick"], None, hosts(1, 1))


@pytest.mark.parametrize(
    ("number", "per_host", "workers"),
    [
        (1, 1, (1,)),
        (2, 1, (1, 2)),
        (3, 1, (1, 2)),
        (9, 1, (1, 2, 4, 8)),
        (4, 2, (1, 2, 4, 8)),
    ],
)
def test_on_hosts_workers_are_doubled_up_to_what_they_hold(
    number: int, per_host: int, workers: tuple[int, ...]
) -> None:
    spread = Spread(workers_per_host=per_host)
    assert default_workers(PROFILES["quick"], spread, hosts(number, 8)) == workers


@pytest.mark.parametrize(
    ("layout", "num_ps", "for_servers", "all_numbers", "few"),
    [
        pytest.param("dedicated", None, 0, (1, 2, 4), (1, 4), id="one server per worker"),
        pytest.param("dedicated", 2, 0, (1, 2, 4, 6), (1, 6), id="two servers"),
        pytest.param("dedicated", 8, 0, (1, 2, 4, 8), (1, 8), id="no room for servers"),
        pytest.param("ps_hosts", None, 2, (1, 2, 4, 6, 8), (1, 6, 8), id="two hosts for servers"),
        pytest.param("colocated", 2, 2, (1, 2, 4, 8), (1, 8), id="beside workers"),
    ],
)
def test_servers_on_hosts_of_their_own_leave_room_for_as_many_hosts_of_all_reduce(
    layout: str,
    num_ps: int | None,
    for_servers: int,
    all_numbers: tuple[int, ...],
    few: tuple[int, ...],
) -> None:
    settings = StrategySettings(layout=LayoutKind(layout), num_ps=num_ps)
    capacity = replace(hosts(8, 8), num_ps_hosts=for_servers)
    for brief, workers in ((False, all_numbers), (True, few)):
        found = default_workers(PROFILES["quick"], Spread(), capacity, settings, brief=brief)
        assert found == workers


def test_a_brief_study_leaves_out_what_lies_between_one_worker_and_the_most() -> None:
    for brief, workers in ((True, (1, 8)), (False, (1, 2, 4, 8))):
        assert default_workers(PROFILES["quick"], Spread(), hosts(9, 8), brief=brief) == workers


@pytest.mark.parametrize(
    ("per_host", "cores", "each"), [(1, 8, 8), (2, 8, 4), pytest.param(4, 2, 1, id="too few")]
)
def test_workers_share_the_cores_of_their_own_host_only(
    per_host: int, cores: int, each: int
) -> None:
    spread = Spread(workers_per_host=per_host)
    assert default_cores((1, 2, 4), spread, hosts(9, cores)) == each


def test_the_standard_profile_trains_more_models() -> None:
    assert default_models(PROFILES["quick"]) == ("SmallCNN",)
    assert set(default_models(PROFILES["standard"])) == {"SmallCNN", "ResNet50", "VGG16"}
