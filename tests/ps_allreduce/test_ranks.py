"""Places of workers among all ranks, as Horovod's own launcher gives them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.ranks import Place


def places(hosts: list[str]) -> list[Place]:
    return [Place.of(hosts, rank) for rank in range(len(hosts))]


def test_two_hosts_of_two_and_one_worker() -> None:
    first, second, third = places(["n1", "n1", "n2"])
    assert first.environment() == {
        "HOROVOD_RANK": "0",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "2",
    }
    assert (second.local_rank, second.cross_rank, second.cross_size) == (1, 0, 1)
    assert (third.rank, third.local_rank, third.local_size, third.cross_rank) == (2, 0, 1, 1)


@given(st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=9))
def test_places_are_those_of_a_grid(hosts: list[str]) -> None:
    found = places(hosts)
    assert [place.rank for place in found] == list(range(len(hosts)))
    for place, host in zip(found, hosts, strict=True):
        assert 0 <= place.local_rank < place.local_size == hosts.count(host)
        alike = [each for each in found if each.local_rank == place.local_rank]
        assert place.cross_size == len(alike)
        assert sorted(each.cross_rank for each in alike) == list(range(len(alike)))
