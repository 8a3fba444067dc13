"""Sums for hosts that are alike, and what sliders and pictures say of them."""

from __future__ import annotations

import itertools
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from analysis.data.blocks import analysed
from analysis.data.load import read_sweep
from analysis.predict.advice import known_tellers
from analysis.predict.calibration import with_servers
from analysis.predict.models import TogetherLoad
from analysis.predict.planned_loads import load_by_flows, planned_load
from analysis.predict.predictions import Question, asked
from analysis.predict.sent import SentBytes
from analysis.predict.sliders import STOPS, Sliders, efficiencies, fastest, servers_needed, sliders
from analysis.report.pages.ahead_page import CALIBRATE, ahead_page
from ps_allreduce.point.models.trained import TextModel
from ps_allreduce.point.network import Traffic
from ps_allreduce.point.placement import Policy, VariableSpec, make_plan
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, SynchronousServers
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.record.variables import PlacementUsed
from tests.analysis.builders import save_all
from tests.analysis.predict.simulated import CLUSTER, RATE, launch, point, sweep


@pytest.fixture(scope="module")
def shown() -> Sliders:
    made = sliders(known_tellers(list(sweep((SynchronousServers, AllReduce), (1, 2, 4)))))
    assert made is not None
    return made


@pytest.mark.parametrize("strategy", [SynchronousServers, AllReduce])
@pytest.mark.parametrize("gradients", [WireType.FLOAT32, WireType.BFLOAT16])
def test_sums_are_those_of_all_that_hosts_send_each_other(
    strategy: type[AnyStrategy], gradients: WireType
) -> None:
    settings: dict[str, Any] = {"wire": Wire(gradients=gradients)}
    if strategy.uses_servers:
        settings["num_ps"] = 3
    own = point(strategy, 4, **settings)
    sent = SentBytes.of(launch(own))
    clusters = [CLUSTER, replace(CLUSTER, lone_cores=5.0, crowding=1.3)]
    clusters.append(replace(CLUSTER, shares_cores=False, cores=1.0))
    for cluster, workers, num_ps, layout in itertools.product(
        clusters, (1, 2, 3, 8), (1, 3, 8, 16), LayoutKind
    ):
        moved = replace(own, strategy=with_servers(own.strategy, num_ps, layout))
        target = asked(moved, Question(workers=(workers,)), workers)
        quick, slow = (
            asdict(load_of(target, sent, cluster, 1e-9))
            for load_of in (planned_load, load_by_flows)
        )
        assert quick == pytest.approx(slow)


def test_processors_handle_what_stays_on_a_host_as_well() -> None:
    own = point(SynchronousServers, 2, num_ps=2)
    sent = SentBytes.of(launch(own))
    found = []
    for workers in (2, 8):
        target = asked(own, Question(workers=(workers,)), workers)
        load = planned_load(target, sent, CLUSTER, 1e-9)
        assert isinstance(load, TogetherLoad)
        found.append(load.messages_s)
    # Each worker sends as much, to more servers, whichever of them is beside it.
    assert found[1] == pytest.approx(4 * found[0])


@pytest.mark.parametrize(
    "disturbance",
    [
        {"slow_host": 3, "slow_bits_per_s": RATE / 4},
        {"racks": 2, "uplink_bits_per_s": RATE / 4},
        {"traffic": (Traffic(bits_per_s=RATE / 2),)},
    ],
)
def test_links_that_differ_wait_less_for_each_other(disturbance: dict[str, Any]) -> None:
    for own in (point(SynchronousServers, 4, num_ps=4), point(AllReduce, 4)):
        assert own.network is not None
        sent = SentBytes.of(launch(own))
        disturbed = replace(own, network=replace(own.network, **disturbance))
        plain, other = (planned_load(each, sent, CLUSTER, 0.0) for each in (own, disturbed))
        assert isinstance(plain, TogetherLoad)
        assert isinstance(other, TogetherLoad)
        assert other.network_s > 1.9 * plain.network_s
        if own.num_ps:
            assert other.message < 0.5 * plain.message
        else:
            assert other.message == plain.message


def test_variables_that_are_not_trained_have_turns_of_a_round_robin_too() -> None:
    # As ResNet50's: two that are trained for two that are not, or for one.
    variables = [
        VariableSpec(
            name=str(number),
            shape=(number % 7 + 1,),
            dtype="float32",
            trainable=number % 11 not in (2, 3, 9),
        )
        for number in range(40)
    ]
    plan = make_plan(Policy.ROUND_ROBIN, variables, 2)
    used = PlacementUsed(
        shards=plan.shards,
        variables=tuple(each.name for each in variables),
        bytes_per_server=plan.bytes_per_server(),
        max_over_mean=plan.max_over_mean,
    )
    own = point(SynchronousServers, 2, num_ps=2)
    sent = SentBytes.of(replace(launch(own), placement=used))
    for num_ps in (2, 3, 4, 8):
        more = replace(own, strategy=with_servers(own.strategy, num_ps, LayoutKind.COLOCATED))
        expected = make_plan(Policy.ROUND_ROBIN, variables, num_ps).bytes_per_server()
        assert sent.placed(more) == expected


def test_sliders_say_what_is_predicted(shown: Sliders) -> None:
    for own in shown.settings:
        for workers, servers in ((4, 2), (8, 8), (32, 16), (64, 1)):
            count = servers if own.held else 0
            question = Question(workers=(workers,), num_ps=count or None, bits_per_s=2 * RATE)
            told = own.teller.told(asked(own.teller.largest, question, workers))
            found = own.ahead(workers, count, 2 * RATE, shown.batch)
            assert asdict(found) == pytest.approx(
                {name: getattr(told, name) for name in asdict(found)}
            )


def test_rates_of_text_are_of_whole_examples() -> None:
    (known,) = known_tellers(list(sweep((AllReduce,), (1, 2))))
    load = replace(known.largest.workload, model=TextModel())
    made = sliders([replace(known, largest=replace(known.largest, workload=load))])
    assert made is not None
    assert made.unit == made.to_page()["unit"] == "examples"


def test_what_is_not_known_of_one_setting_is_told_of_that_one(tmp_path: Path) -> None:
    few, more = sweep((SynchronousServers,), (1, 2)), sweep((AllReduce,), (1, 2, 4))
    made = {each.run_id: replace(each, sweep=CALIBRATE) for each in (*few, *more)}
    save_all(tmp_path, made.values())
    page = ahead_page(analysed(read_sweep(tmp_path)))
    assert page is not None
    (part,) = page.parts
    told = "of ps_sync, round_robin, the model's own error: one number of workers was measured"
    assert told in " ".join(part.sentences)
    assert part.figures[0].caption.endswith("Beyond 16 workers nothing is said.")


def test_pictures_hold_rates_near_what_was_measured_and_bounds_beyond(shown: Sliders) -> None:
    assert {each.name for each in shown.settings} == {"ps_sync, round_robin", "allreduce"}
    cells = fastest(shown)
    assert cells["workers"].max() == 32
    assert set(cells["setting"]) <= {"", "ps_sync, round_robin", "allreduce"}
    shares = efficiencies(shown)
    near, far = shares[shares["workers"] <= 32], shares[shares["workers"] > 32]
    assert far["efficiency"].isna().all()
    assert far["workers"].max() == STOPS[-1] == 1024
    assert (shares["at_most"] <= 1.001).all()
    assert ((near["low"] < near["efficiency"]) & (near["efficiency"] < near["high"])).all()
    needed = servers_needed(shown)
    assert (needed["servers"] <= needed["workers"]).all()
    # There are sixteen variables to place.
    assert needed["servers"].max() == 16
