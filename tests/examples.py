"""Any experiment, workload or duration that makes sense, for properties."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, Synthetic
from ps_allreduce.point.measurement import FixedWarmup, Measurement, SteadyWarmup
from ps_allreduce.point.models.trained import ARCHITECTURES, ImageModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.optimizers import Adagrad, Adam, AdamW, Momentum, Optimizer, Sgd
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Coordinator, LayoutKind, Resources, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Horovod,
    NoCommunication,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.all_reduce import Packs
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.strategies.stated import Altered
from ps_allreduce.point.wire import Collective, Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload
from tests.fakes import make_experiment

#: For properties: few examples, and no time limit on a busy machine.
fast = settings(max_examples=40, deadline=None)


def experiments() -> st.SearchStrategy[Experiment]:
    """Any experiment that makes sense."""
    return strategies().flatmap(
        lambda strategy: st.builds(
            Experiment,
            strategy=st.just(strategy),
            num_workers=st.integers(1, strategy.max_workers or 99),
            launcher=st.sampled_from(["local", "emulated", "slurm"]),
            spread=st.none() | spreads(),
            network=st.none() | networks(),
            interface=st.none() | st.sampled_from(["eth0", "10.1.0.0/16"]),
            workload=workloads().filter(lambda workload: not strategy.refusal(workload)),
            resources=st.builds(
                Resources,
                cores_per_worker=st.integers(1, 64),
                threads_per_worker=st.integers(1, 64),
            ),
            measurement=st.builds(
                Measurement,
                warmup=warmups(),
                measured_steps=st.integers(1, 10_000),
                event_steps=st.integers(0, 5),
            ),
        )
    )


def warmups() -> st.SearchStrategy[SteadyWarmup | FixedWarmup]:
    """Any warm-up of both kinds."""
    steady = st.builds(SteadyWarmup, least_steps=st.integers(1, 40), most_s=seconds(1.0))
    return steady | st.builds(FixedWarmup, least_steps=st.integers(1, 99), least_s=seconds())


def strategies() -> st.SearchStrategy[AnyStrategy]:
    """Any strategy, with any settings that suit every spread."""
    packs = st.builds(Packs, bytes_per_pack=st.integers(0, 1 << 40))
    collectives = st.sampled_from([Collective.RING, Collective.AUTO])
    return (
        st.just(Single())
        | st.just(NoCommunication())
        | st.builds(SynchronousServers, servers=servers(), wire=wires())
        | dealings()
        | st.builds(AllReduce, sending=wires())
        | st.builds(AllReduce, collective=collectives, sending=packs)
        | st.builds(
            Horovod,
            fusion_bytes=st.integers(0, 1 << 40),
            cycle_ms=st.floats(0.1, 1e4),
        )
        | st.builds(StockAllReduce, collective=collectives, altered=st.sampled_from(Altered))
        | st.builds(
            StockServers,
            servers=st.builds(
                Servers, num_ps=st.integers(1, 9), layout=st.sampled_from(LayoutKind)
            ),
            steps_per_dispatch=st.integers(1, 16),
            join_rounds=st.booleans(),
            altered=st.sampled_from(Altered),
        )
    )


def servers() -> st.SearchStrategy[Servers]:
    """Any servers and placement."""
    return st.sampled_from(Policy).flatmap(
        lambda policy: st.builds(
            Servers,
            num_ps=st.integers(1, 9),
            placement=st.just(policy),
            split_bytes=st.integers(1, 1 << 40) if policy is Policy.PARTITIONED else st.none(),
            layout=st.sampled_from(LayoutKind),
        )
    )


def spread_experiments(most: int = 12) -> st.SearchStrategy[Experiment]:
    """Experiments on several hosts, with up to so many workers and servers."""
    common: dict[str, st.SearchStrategy[Any]] = {
        "num_workers": st.integers(1, most),
        "spread": spreads(),
        "resources": st.builds(
            Resources, cores_per_worker=st.integers(1, 3), threads_per_worker=st.integers(1, 3)
        ),
    }
    settings = {"num_ps": st.integers(1, most), "layout": st.sampled_from(LayoutKind)}
    plain = st.sampled_from([NoCommunication, AllReduce])
    served = st.sampled_from([AsynchronousServers, SynchronousServers])
    return st.builds(make_experiment, plain, **common) | st.builds(
        make_experiment, served, **common, **settings
    ).filter(_has_room)


def _has_room(experiment: Experiment) -> bool:
    """Colocated servers fit on the hosts of the workers."""
    spread, served = experiment.spread or Spread(), experiment.strategy.servers
    if served is None or served.layout.is_apart or spread.ps_per_host is None:
        return True
    hosts = math.ceil(experiment.num_workers / spread.workers_per_host)
    return experiment.num_ps <= hosts * spread.ps_per_host


def spreads() -> st.SearchStrategy[Spread]:
    """Any way to spread tasks over hosts."""
    return st.builds(
        Spread,
        workers_per_host=st.integers(1, 4),
        ps_per_host=st.none() | st.integers(1, 4),
        coordinator=st.sampled_from(Coordinator),
    )


def networks() -> st.SearchStrategy[EmulatedNetwork]:
    """Emulated networks of one rack."""
    return st.builds(
        EmulatedNetwork,
        num_hosts=st.integers(1, 250),
        bits_per_s=st.none() | st.floats(1e3, 32e9),
        delay_s=st.floats(0, 10),
    )


def wires() -> st.SearchStrategy[Wire]:
    """Any settings of the wire that suit every strategy and spread."""
    sizes = st.just(0) | st.integers(4, 1 << 40)
    return st.builds(
        Wire,
        group_bytes=sizes,
        cut_bytes=sizes,
        in_flight=st.integers(0, 1000),
        gradients=st.sampled_from(WireType),
    )


def dealings() -> st.SearchStrategy[AsynchronousServers]:
    """Asynchronous servers that deal steps in any way."""
    return st.integers(1, 16).flatmap(
        lambda steps: st.builds(
            AsynchronousServers,
            servers=servers(),
            wire=wires(),
            steps_per_dispatch=st.just(steps),
            staleness=st.none() | st.integers(steps, 99),
            synchronous_steps=st.integers(0, 99),
        )
    )


def seconds(least: float = 0.0) -> st.SearchStrategy[float]:
    """Durations and moments."""
    return st.floats(least, 1e10, allow_nan=False)


def jitters() -> st.SearchStrategy[Jitter]:
    return st.builds(
        Jitter,
        distribution=st.sampled_from(Distribution),
        variation=st.floats(0.001, 0.5),
        seed=st.integers(0, 2**31 - 1),
    )


def optimizers() -> st.SearchStrategy[Optimizer]:
    rates = st.floats(1e-6, 10)
    shares = st.floats(0, 0.999)
    return (
        st.builds(Sgd, learning_rate=rates)
        | st.builds(Momentum, learning_rate=rates, momentum=shares, nesterov=st.booleans())
        | st.builds(Adagrad, learning_rate=rates, initial_accumulator_value=st.floats(0, 1))
        | st.builds(Adam, learning_rate=rates, beta_1=shares, beta_2=shares)
        | st.builds(AdamW, learning_rate=rates, weight_decay=st.floats(0, 1))
    )


def workloads() -> st.SearchStrategy[Workload]:
    """Any workload that makes sense."""
    emulated = st.builds(
        EmulatedCompute,
        forward_s=st.floats(0.001, 1),
        backward_s=st.floats(0.001, 1),
        groups=st.integers(1, 16),
        factors=st.just(()) | st.lists(st.floats(1, 99), max_size=3).map(lambda some: (*some, 2.0)),
        jitter=st.none() | jitters(),
    )
    real = st.fixed_dictionaries({"precision": st.sampled_from(Precision)})
    return st.builds(
        lambda compute, **others: Workload(**compute, **others),
        real | st.fixed_dictionaries({"emulated": emulated}),
        model=st.builds(
            ImageModel,
            name=st.sampled_from(list(ARCHITECTURES)),
            image_size=st.integers(75, 512),
            num_classes=st.integers(10, 1000),
        ),
        batch_per_worker=st.integers(1, 512),
        accumulation=st.integers(1, 8),
        data=st.sampled_from([Synthetic(), Digits()]),
        optimizer=optimizers(),
        seed=st.integers(0, 1 << 31),
    )
