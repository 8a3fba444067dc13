"""Every strategy checks its own settings, and says what it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ps_allreduce.backends
from analysis.figures.style import DRAWN_SIDES
from ps_allreduce.backends import ALTERED, BACKENDS
from ps_allreduce.errors import UserError
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.resources import Device, Resources, Spread
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AnyStrategy,
    Horovod,
    Hybrid,
    SynchronousServers,
)
from ps_allreduce.point.strategies.all_reduce import Packs
from ps_allreduce.point.strategies.base import Strategy, StrategySide
from ps_allreduce.point.strategies.stated import Altered, StrategySettings
from ps_allreduce.point.wire import Collective, Wire, WireType
from tests.fakes import make_experiment


@pytest.mark.parametrize(
    ("strategy", "mistake"),
    [
        (AllReduce, {"bytes_per_pack": -1}),
        (AllReduce, {"cut_bytes": -1}),
        (Horovod, {"fusion_bytes": -1}),
    ],
)
def test_no_size_is_below_zero(strategy: type[AnyStrategy], mistake: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"must be (at least 0|0 or at least 4), got -1"):
        strategy.of(StrategySettings(**mistake))


def test_settings_that_are_refused_are_named_as_they_are_typed() -> None:
    told = r"^strategy horovod has no setting --num-ps: leave it out\. Its settings: --cycle-ms, "
    with pytest.raises(UserError, match=told):
        Horovod.of(StrategySettings(num_ps=2))
    packs = r"^in packs \(--bytes-per-pack, or --collective .* leave --in-flight out\.$"
    with pytest.raises(UserError, match=packs):
        AllReduce.of(StrategySettings(bytes_per_pack=0, in_flight=2))


def test_sizes_count_elements_of_four_bytes() -> None:
    messages = Wire(group_bytes=1000, cut_bytes=402).messages
    assert (messages.group_size, messages.cut_size) == (250, 100)


def test_hosts_that_add_up_hold_equally_many_workers() -> None:
    spread = Spread(workers_per_host=2)
    make_experiment(num_workers=4, spread=spread, host_aggregation=True)
    with pytest.raises(UserError, match="3 is no multiple of the 2 that a host has"):
        make_experiment(num_workers=3, spread=spread, host_aggregation=True)


def test_nccl_is_for_gpus() -> None:
    gpus = Resources(device=Device.GPU)
    made = make_experiment(AllReduce, collective=Collective.NCCL, resources=gpus)
    assert made.transport == "nccl"


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_every_strategy_works_without_a_word_and_its_traits_agree(
    strategy: type[AnyStrategy],
) -> None:
    made = strategy.of(StrategySettings())
    assert made == strategy()
    assert (made.transport_on(Device.CPU) is not None) == strategy.communicates()
    assert (made.servers is not None) == strategy.uses_servers
    assert not (strategy.deals_steps and strategy.synchronous)
    assert not (strategy.replicated and strategy.uses_servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeldomAveraged(Strategy):
    """What somebody may add: workers exchange weights from time to time."""

    kind: ClassVar[str] = "seldom_averaged"
    side: ClassVar[StrategySide] = StrategySide.ALL_REDUCE
    synchronous: ClassVar[bool] = False


def test_what_trains_otherwise_is_no_rival_of_all_reduce_and_written_as_nothing_else() -> None:
    assert not any(side.trains_like(SeldomAveraged) for side in DRAWN_SIDES)
    assert all(
        any(side.trains_like(own) for side in DRAWN_SIDES)
        for own in STRATEGIES.values()
        if own.communicates()
    )
    assert SeldomAveraged.export_refusal == Strategy.export_refusal


def test_a_hybrid_is_on_both_sides_and_on_neither() -> None:
    traits = (Hybrid.uses_servers, Hybrid.uses_collective, Hybrid.places_variables)
    assert traits == (True, True, False)
    assert Hybrid.side not in {each.side for each in STRATEGIES.values() if each is not Hybrid}


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_columns_hold_what_was_stated(strategy: type[AnyStrategy]) -> None:
    stated: dict[str, Any] = {
        "num_ps": 3,
        "in_flight": 7,
        "gradients": WireType.FLOAT16,
        "staleness": 9,
        "steps_per_dispatch": 2,
        "host_aggregation": True,
        "join_rounds": True,
        "altered": Altered.STATISTICS,
    }
    settings = StrategySettings(**stated).only(strategy.understands())
    columns = strategy.of(settings).columns()
    assert columns["strategy"] == strategy.kind
    for name in settings.stated:
        column = "gradients_on_wire" if name == "gradients" else name
        assert columns[column] == getattr(settings, name)


def test_only_the_partitioned_policy_cuts() -> None:
    def split(policy: Policy, split_bytes: int | None = None) -> int | None:
        settings = StrategySettings(placement=policy, split_bytes=split_bytes)
        return SynchronousServers.of(settings).servers.split_bytes

    assert split(Policy.PARTITIONED) == DEFAULT_SPLIT_BYTES
    assert split(Policy.PARTITIONED, split_bytes=8) == 8
    assert split(Policy.GREEDY, split_bytes=8) is None


def test_collectives_but_ring_use_packs() -> None:
    assert AllReduce.of(StrategySettings(collective=Collective.AUTO)).sending == Packs()
    assert AllReduce.of(StrategySettings(bytes_per_pack=5)).packed_bytes == 5
    assert AllReduce.of(StrategySettings(in_flight=5)).wire == Wire(in_flight=5)
    with pytest.raises(UserError, match=r"collective auto is used in TensorFlow's packs"):
        AllReduce(collective=Collective.AUTO)


def test_gradients_are_carried_by_tcp_or_by_the_collective() -> None:
    assert SynchronousServers().transport_on(Device.GPU) == "tcp"
    half = AllReduce(sending=Wire(gradients=WireType.FLOAT16))
    assert half.transport_on(Device.CPU) == "tcp in float16"
    for collective in Collective:
        packed = AllReduce.of(StrategySettings(collective=collective))
        assert packed.transport_on(Device.CPU) == "tcp"
        assert packed.transport_on(Device.GPU) == {"ring": "tcp"}.get(collective, collective)


def test_names_and_labels_are_told_apart() -> None:
    assert len({strategy.label for strategy in STRATEGIES.values()}) == len(STRATEGIES)


def test_every_strategy_has_a_backend() -> None:
    assert set(BACKENDS) == set(STRATEGIES)


@pytest.mark.parametrize(("module", "name"), [*BACKENDS.values(), *ALTERED.values()])
def test_a_backend_is_where_it_is_looked_for(module: str, name: str) -> None:
    path = Path(ps_allreduce.backends.__file__).parent / f"{module.replace('.', '/')}.py"
    assert f"\nclass {name}(" in path.read_text(encoding="utf-8")
