"""Any experiment, workload or duration that makes sense, for properties."""

from __future__ import annotations

import math
import operator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from ps_allreduce.point.architectures import MODELS
from ps_allreduce.point.experiment import (
    Collective,
    Experiment,
    Profile,
    Resources,
    server_settings,
)
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies import TRAITS, Strategy
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import DIGITS, SYNTHETIC, EmulatedCompute, Precision, Workload
from tests.fakes import make_experiment

#: For properties: few examples, and no time limit on a busy machine.
fast = settings(max_examples=40, deadline=None)


def experiments() -> st.SearchStrategy[Experiment]:
    """Any experiment that makes sense."""
    return st.sampled_from(Strategy).flatmap(_points_of)


def _points_of(strategy: Strategy) -> st.SearchStrategy[Experiment]:
    traits = TRAITS[strategy]
    settings: st.SearchStrategy[dict[str, Any]] = st.just({})
    if traits.uses_servers:
        settings = st.builds(
            server_settings,
            st.integers(1, 9),
            st.sampled_from(Policy),
            st.sampled_from(LayoutKind),
            st.integers(1, 1 << 40),
        )
    if traits.uses_collective:
        settings = st.fixed_dictionaries(
            {
                "collective": st.sampled_from([Collective.RING, Collective.AUTO]),
                "bytes_per_pack": st.integers(0, 1 << 40),
            }
        ) | st.builds(lambda wire: {"collective": Collective.RING, "wire": wire}, wires())
    elif traits.communicates:
        settings = st.builds(lambda some, wire: some | {"wire": wire}, settings, wires())
    if traits.deals_steps:
        settings = st.builds(operator.or_, settings, dealings())
    return st.builds(
        lambda some, **others: Experiment(strategy=strategy, **some, **others),
        settings,
        num_workers=st.integers(1, traits.max_workers or 99),
        launcher=st.sampled_from(["local", "emulated", "slurm"]),
        spread=st.none() | spreads(),
        network=st.none() | networks(),
        interface=st.none() | st.sampled_from(["eth0", "10.1.0.0/16"]),
        workload=workloads(),
        resources=st.builds(
            Resources, cores_per_worker=st.integers(1, 64), threads_per_worker=st.integers(1, 64)
        ),
        profile=st.builds(
            Profile,
            name=st.text(),
            warmup_s=seconds(),
            measured_steps=st.integers(1, 10_000),
            event_steps=st.integers(0, 5),
            deadline_s=st.floats(1, 1e6),
        ),
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
    servers = {"num_ps": st.integers(1, most), "layout": st.sampled_from(LayoutKind)}
    plain = st.sampled_from([Strategy.NO_COMMUNICATION, Strategy.ALLREDUCE])
    served = st.sampled_from([Strategy.PS_ASYNC, Strategy.PS_SYNC])
    return st.builds(make_experiment, plain, **common) | st.builds(
        make_experiment, served, **common, **servers
    ).filter(_has_room)


def _has_room(experiment: Experiment) -> bool:
    """Colocated servers fit on the hosts of the workers."""
    spread = experiment.spread or Spread()
    if experiment.layout is LayoutKind.DEDICATED or spread.ps_per_host is None:
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


def dealings() -> st.SearchStrategy[dict[str, Any]]:
    """Any way in which steps are dealt."""
    return st.integers(1, 16).flatmap(
        lambda steps: st.fixed_dictionaries(
            {"steps_per_dispatch": st.just(steps), "staleness": st.none() | st.integers(steps, 99)}
        )
    )


def seconds() -> st.SearchStrategy[float]:
    """Durations and moments."""
    return st.floats(0, 1e10, allow_nan=False)


def workloads() -> st.SearchStrategy[Workload]:
    """Any workload that makes sense."""
    real = st.fixed_dictionaries({"precision": st.sampled_from(Precision)})
    emulated = st.fixed_dictionaries(
        {
            "emulated": st.builds(
                EmulatedCompute,
                forward_s=st.floats(0.001, 1),
                backward_s=st.floats(0.001, 1),
                groups=st.integers(1, 16),
            )
        }
    )
    return st.builds(
        lambda compute, **others: Workload(**compute, **others),
        real | emulated,
        model=st.sampled_from(list(MODELS)),
        image_size=st.integers(75, 512),
        num_classes=st.integers(10, 1000),
        batch_per_worker=st.integers(1, 512),
        accumulation=st.integers(1, 8),
        input=st.sampled_from([SYNTHETIC, DIGITS]),
        learning_rate=st.floats(1e-6, 10),
        seed=st.integers(0, 1 << 31),
    )
