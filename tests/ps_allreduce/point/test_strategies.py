"""Every strategy checks its own settings, and says what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from analysis.figures.style import DRAWN_SIDES
from ps_allreduce.errors import UserError
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.resources import Device, Resources, Spread
from ps_allreduce.point.strategies import (
    STRATEGIES,
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Horovod,
    Hybrid,
    NoCommunication,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.all_reduce import Packs
from ps_allreduce.point.strategies.base import Strategy, StrategySide
from ps_allreduce.point.strategies.stated import Altered, Embeddings, StrategySettings
from ps_allreduce.point.wire import Collective, Wire, WireType
from ps_allreduce.point.workload import Precision, Workload
from tests.fakes import make_experiment

MISTAKES: list[tuple[type[AnyStrategy], dict[str, Any], str]] = [
    (SynchronousServers, {"num_ps": 0}, "num_ps must be 1 to 65535, got 0."),
    (
        SynchronousServers,
        {"placement": Policy.PARTITIONED, "split_bytes": 0},
        "split_bytes must be at least 1, got 0.",
    ),
    (SynchronousServers, {"collective": Collective.RING}, "ps_sync has no setting collective"),
    (SynchronousServers, {"staleness": 2}, "ps_sync has no setting staleness: leave it out"),
    (AsynchronousServers, {"host_aggregation": True}, "ps_async has no setting host_aggregation"),
    (AsynchronousServers, {"staleness": 0}, "staleness 0 is synchronous: use strategy ps_sync"),
    (AsynchronousServers, {"staleness": -1}, "staleness must be at least 1, got -1"),
    (
        AsynchronousServers,
        {"staleness": 2, "steps_per_dispatch": 4},
        "staleness 2 leaves no room for steps_per_dispatch 4",
    ),
    (AsynchronousServers, {"steps_per_dispatch": 0}, "steps_per_dispatch must be 1 to 16, got 0"),
    (AsynchronousServers, {"steps_per_dispatch": 17}, "steps_per_dispatch must be 1 to 16, got 17"),
    (AllReduce, {"num_ps": 1}, "allreduce has no setting num_ps: leave it out (--num-ps)"),
    (AllReduce, {"bytes_per_pack": -1}, "bytes_per_pack must be at least 0, got -1."),
    (
        AllReduce,
        {"bytes_per_pack": 0, "in_flight": 1},
        "in packs (bytes_per_pack, or collective nccl or auto) TensorFlow decides what is sent: "
        "leave in_flight out.",
    ),
    (AllReduce, {"group_bytes": 3}, "group_bytes must be 0 or at least 4, got 3"),
    (AllReduce, {"cut_bytes": -1}, "cut_bytes must be 0 or at least 4, got -1"),
    (AllReduce, {"in_flight": -1}, "in_flight must be at least 0 (no bound), got -1"),
    (Single, {"num_ps": 1}, "strategy single has no setting num_ps"),
    (NoCommunication, {"group_bytes": 0}, "strategy no_communication has no setting group_bytes"),
    (Hybrid, {"placement": Policy.GREEDY}, "strategy hybrid has no setting placement"),
    (Hybrid, {"embeddings": Embeddings.DENSE}, "rows of tables on servers: leave --embeddings de"),
    (Horovod, {"fusion_bytes": -1}, "fusion_bytes must be at least 0, got -1"),
    (Horovod, {"cycle_ms": 0.0}, "cycle_ms must be above 0 and at most 10000, got 0"),
    (Horovod, {"bytes_per_pack": 0}, "strategy horovod has no setting bytes_per_pack"),
    (StockServers, {"placement": Policy.GREEDY}, "stock_ps has no setting placement"),
    (StockServers, {"in_flight": 4}, "stock_ps has no setting in_flight: leave it out"),
    (StockServers, {"steps_per_dispatch": 17}, "steps_per_dispatch must be 1 to 16, got 17"),
    (StockAllReduce, {"bytes_per_pack": 0}, "stock_allreduce has no setting bytes_per_pack"),
]


@pytest.mark.parametrize(("strategy", "mistake", "sentence"), MISTAKES)
def test_a_mistaken_setting_is_refused(
    strategy: type[AnyStrategy], mistake: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        strategy.of(StrategySettings(**mistake))


def test_sizes_count_elements_of_four_bytes() -> None:
    messages = Wire(group_bytes=1000, cut_bytes=402).messages
    assert (messages.group_size, messages.cut_size) == (250, 100)


def test_hosts_that_add_up_hold_equally_many_workers() -> None:
    spread = Spread(workers_per_host=2)
    make_experiment(num_workers=4, spread=spread, host_aggregation=True)
    with pytest.raises(UserError, match="num_workers 3 is no multiple of workers_per_host 2"):
        make_experiment(num_workers=3, spread=spread, host_aggregation=True)


def test_nccl_needs_gpus() -> None:
    make_experiment(AllReduce, collective=Collective.NCCL, resources=Resources(device=Device.GPU))
    with pytest.raises(UserError, match="collective nccl needs workers on GPUs"):
        make_experiment(AllReduce, collective=Collective.NCCL)
    with pytest.raises(UserError, match="stock_allreduce uses collective auto, which takes NCCL"):
        make_experiment(StockAllReduce, collective=Collective.NCCL)


@pytest.mark.parametrize("strategy", [StockServers, StockAllReduce])
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"accumulation": 2}, "has no accumulation: Keras' own exchanges gradients after every"),
        ({"precision": Precision.MIXED_FLOAT16}, "does not train in mixed_float16: Keras adapts"),
    ],
)
def test_what_tensorflow_does_not_train_in_the_same_way_is_refused(
    strategy: type[AnyStrategy], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=f"strategy {strategy.kind} {sentence}"):
        make_experiment(strategy, workload=Workload(**changes))


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_every_strategy_works_without_a_word_and_its_traits_agree(
    strategy: type[AnyStrategy],
) -> None:
    made = strategy.of(StrategySettings())
    assert made == strategy()
    assert (made.transport is not None) == strategy.communicates()
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
    assert SynchronousServers().transport == AllReduce().transport == "tcp"
    assert AllReduce(sending=Wire(gradients=WireType.FLOAT16)).transport == "tcp in float16"
    assert AllReduce.of(StrategySettings(collective=Collective.NCCL)).transport == "nccl"
    assert AllReduce.of(StrategySettings(collective=Collective.AUTO)).transport == "auto"


def test_names_and_labels_are_told_apart() -> None:
    assert len({strategy.label for strategy in STRATEGIES.values()}) == len(STRATEGIES)
