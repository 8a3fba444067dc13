"""The study of Piz Daint: what its search tries, and what the load of its hottest server says.

The page docs/studies/piz-daint.md quotes the numbers about the hottest server.
"""

from __future__ import annotations

import csv

import pytest

from analysis.studies.shown import PUBLISHED
from experiments.studies.literature import piz_daint
from experiments.studies.literature.piz_daint import (
    ALONE,
    BACKWARD,
    COMPUTE_S,
    FORWARD,
    HOT,
    KNEE,
    PAYLOAD,
    SCALED,
    STUDY,
    USUAL,
    PublishedRow,
    share_of,
)
from ps_allreduce.bounds import demands, network_time_s, step_bound_s
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import place_by_number
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy, VariableSpec, make_plan
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.strategies.base import Servers
from tests.experiments.studies.scopes import make_scope
from tests.experiments.studies.test_small_forms import small
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


GRADIENT_BYTES = 95_269_408


def published() -> dict[int, PublishedRow]:
    with (PUBLISHED / "piz-daint.csv").open(encoding="utf-8", newline="") as rows:
        return {
            int(row["workers"]): PublishedRow(
                workers=int(row["workers"]),
                num_ps=int(row["num_ps"]),
                images_per_sec=float(row["images_per_sec"]),
            )
            for row in csv.DictReader(rows)
        }


def predicted(row: PublishedRow) -> float:
    share = share_of(row)
    return USUAL.efficiency / (max(FORWARD, share) + max(BACKWARD, share))


def test_the_rows_are_published_ones() -> None:
    rows = published()
    assert rows[1].images_per_sec == ALONE
    assert [rows[8], rows[64], rows[128]] == [USUAL, HOT, KNEE]


def test_the_hottest_server_alone_predicts_the_published_knee() -> None:
    assert share_of(USUAL) < FORWARD < share_of(HOT) < BACKWARD
    rows = published()
    told = {n: round(predicted(rows[n]), 2) for n in (8, 16, 32, 64, 128)}
    assert told == {8: 0.92, 16: 0.90, 32: 0.91, 64: 0.80, 128: 0.51}
    assert predicted(KNEE) == pytest.approx(KNEE.efficiency, abs=0.02)


@pytest.mark.parametrize(("backward", "efficiency"), [(0.6, 0.46), (0.65, 0.51), (0.7, 0.57)])
def test_what_is_predicted_depends_on_the_unknown_share_of_the_backward_pass(
    backward: float, efficiency: float
) -> None:
    share = USUAL.efficiency / HOT.efficiency - backward
    share *= KNEE.hot_bytes / HOT.hot_bytes
    assert USUAL.efficiency / (2 * share) == pytest.approx(efficiency, abs=0.005)


def test_neither_equal_shares_nor_an_exchange_without_overlap_predict_it() -> None:
    equal = share_of(HOT) * (KNEE.workers - 1) * GRADIENT_BYTES / KNEE.num_ps / HOT.hot_bytes
    assert equal < FORWARD  # nothing would be lost
    exposed = USUAL.efficiency / HOT.efficiency - 1
    alone = USUAL.efficiency / (1 + exposed * KNEE.hot_bytes / HOT.hot_bytes)
    assert alone == pytest.approx(0.73, abs=0.005)


def servers_of(point: Experiment) -> Servers:
    servers = point.strategy.servers
    assert servers is not None
    return servers


def loads_of(point: Experiment) -> tuple[int, ...]:
    servers = servers_of(point)
    split = servers.split_bytes or DEFAULT_SPLIT_BYTES
    plan = make_plan(servers.placement, SCALED.variables, servers.num_ps, split)
    return plan.bytes_per_server()


def payload_of(point: Experiment) -> float:
    assert point.network is not None
    assert point.network.bits_per_s is not None
    return point.network.bits_per_s * PAYLOAD


def bound_of(point: Experiment) -> float:
    """Efficiency if the suite's exchange overlaps perfectly."""
    hosts = {str(task): host for task, host in place_by_number(point).items()}
    flows = demands(point, hosts, loads_of(point), sum(loads_of(point)))
    rate = payload_of(point) / 8
    network_s = network_time_s(flows, dict.fromkeys(hosts.values(), (rate, rate)))
    return COMPUTE_S / step_bound_s(FORWARD * COMPUTE_S, BACKWARD * COMPUTE_S, network_s)


def test_the_exchange_of_the_suite_hides_more_of_the_same_load() -> None:
    points = [p for p in small(piz_daint.STUDY) if p.strategy.uses_servers]
    placed = {(p.num_workers, servers_of(p).placement): p for p in points}
    hot = placed[8, Policy.ROUND_ROBIN]
    share = 8 * 7 * max(loads_of(hot)) / payload_of(hot) / COMPUTE_S
    assert share == pytest.approx(share_of(KNEE), rel=0.01)
    bounds = {key: round(bound_of(point), 2) for key, point in placed.items()}
    assert bounds == {
        (2, Policy.PARTITIONED): 1.0,
        (4, Policy.ROUND_ROBIN): 0.94,
        (4, Policy.PARTITIONED): 1.0,
        (8, Policy.ROUND_ROBIN): 0.73,
        (8, Policy.PARTITIONED): 1.0,
    }
