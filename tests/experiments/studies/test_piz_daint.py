"""Which settings the search of the Piz Daint study tries, and what they compete for."""

from __future__ import annotations

from experiments.studies.literature.piz_daint import STUDY
from ps_allreduce.point.placement import Policy, VariableSpec
from ps_allreduce.point.strategies import SynchronousServers
from tests.experiments.studies.scopes import make_scope
from tests.fakes import make_experiment

LAYERS = [
    VariableSpec(name=f"layer_{number}", shape=(100,), dtype="float32", trainable=True)
    for number in range(200)
]


def numbers(workers: int) -> set[int]:
    assert STUDY.search is not None
    scope = make_scope((1, workers), describe=lambda _: LAYERS)
    return {point.num_ps or 0 for point in STUDY.search.points(scope)}


def test_servers_go_from_one_to_the_number_of_workers() -> None:
    assert numbers(2) == {1, 2}
    assert numbers(8) == {*range(1, 9)}
    assert numbers(128) == {*range(1, 9), 12, 18, 27, 40, 61, 91, 127, 128}


def test_a_single_server_competes_for_every_placement() -> None:
    assert STUDY.search is not None

    def contests(num_ps: int) -> set[object]:
        point = make_experiment(SynchronousServers, 4, num_ps=num_ps, placement=Policy.PARTITIONED)
        assert STUDY.search is not None
        return {*STUDY.search.contests(point)}

    assert contests(3) == {(4, Policy.PARTITIONED)}
    assert contests(1) == {(4, Policy.ROUND_ROBIN), (4, Policy.PARTITIONED), (4, Policy.GREEDY)}
