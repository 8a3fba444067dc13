"""How far the axes of a study reach, from what hosts offer."""

from __future__ import annotations

import pytest

from experiments.studies.defaults import default_cores, default_models, default_workers
from experiments.sweep.sweep import PROFILES
from launchers.protocol import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.point.spread import Spread


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
