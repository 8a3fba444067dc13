"""Launches as the formulas themselves would have them, so that what is learned can be known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from analysis.derive.fastest_step import flows_of, host_rates
from analysis.predict.loads import Cluster, load_of
from analysis.predict.models import Fit, step_s
from analysis.predict.sent import message_share
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import place_by_number
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy, VariableSpec, make_plan
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, Single, SynchronousServers
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.variables import PlacementUsed
from tests.analysis.builders import links_between, metrics, run, tasks_on
from tests.fakes import make_experiment, make_host

SIZE = 4_000_000
RATE = 100e6
SHARE = 0.95

TRUE = Fit(stretch=1.3, overhead_s=0.004, hiding=4.0, round_s=0.002)

#: As launches on these hosts show it.
CLUSTER = Cluster(
    forward_s=0.001,
    backward_s=0.0,
    examples=8,
    spread=0.0,
    link_share=SHARE,
    bytes_per_s=SHARE * RATE / 8,
    cores=8.0,
    shares_cores=True,
    lone_cores=0.0,
)

WORKLOAD = Workload(batch_per_worker=8, emulated=EmulatedCompute(forward_s=0.05, backward_s=0.1))


def point(
    strategy: type[AnyStrategy], workers: int, rate: float = RATE, **settings: Any
) -> Experiment:
    """A point on emulated hosts, with an emulated accelerator and one server."""
    if strategy.uses_servers:
        settings.setdefault("num_ps", 1)
    return make_experiment(
        strategy,
        workers,
        workload=WORKLOAD,
        launcher="emulated",
        spread=Spread(),
        network=EmulatedNetwork(num_hosts=max(4, workers), bits_per_s=rate),
        **settings,
    )


def _placed(own: Experiment) -> PlacementUsed:
    """Sixteen variables of equal size."""
    names = [f"v{number}" for number in range(16)]
    variables = [
        VariableSpec(name=name, shape=(SIZE // 64,), dtype="float32", trainable=True)
        for name in names
    ]
    plan = make_plan(Policy.ROUND_ROBIN, variables, own.num_ps)
    return PlacementUsed(
        shards=plan.shards,
        variables=tuple(names),
        bytes_per_server=plan.bytes_per_server(),
        max_over_mean=plan.max_over_mean,
    )


def launch(own: Experiment, repetition: int = 0, noise: float = 1.0, **changes: Any) -> RunRecord:
    """A launch whose step takes what the formulas say, times a noise."""
    places = {str(task): f"n{host}" for task, host in place_by_number(own).items()}
    hosts = list(dict.fromkeys(places.values()))
    rate = own.network.bits_per_s if own.network and own.network.bits_per_s else RATE
    settings: dict[str, Any] = {
        "hosts": tuple(make_host(name) for name in hosts),
        "links": links_between(hosts, SHARE * rate),
        "tasks": tasks_on(places),
        "placement": _placed(own) if own.num_ps else None,
        "gradient_bytes": SIZE,
        "num_messages": 10 if own.num_ps else max(1, 20 // own.num_workers),
        "machine_busy": 0.0,
        "total_cores": 8,
    }
    bare = run(own, 1.0, repetition, **(settings | changes))
    emulated = own.workload.emulated
    assert emulated is not None
    seconds = CLUSTER.forward_s + emulated.forward_s + emulated.backward_s
    if own.strategy.communicates():
        flows, rates = flows_of(bare), host_rates(bare)
        seconds = step_s(
            load_of(own, places, flows, rates, CLUSTER, 0.0, message_share(bare)), TRUE
        )
    made = own.global_batch / (seconds * noise)
    took = {"step_time_p50_s": seconds * noise, "step_time_p95_s": seconds * noise}
    settings["metrics"] = metrics(made, forward_s=0.05, backward_s=0.1, **took)
    return run(own, made, repetition, **(settings | changes))


def sweep(
    strategies: Iterable[type[AnyStrategy]] = (SynchronousServers, AllReduce),
    workers: Iterable[int] = (1, 2, 4),
    rates: Iterable[float] = (RATE,),
) -> Iterator[RunRecord]:
    """Three launches of every point, a lone worker first."""
    counts, links = list(workers), list(rates)
    points = [point(Single, 1)]
    points += [point(each, n, rate) for each in strategies for n in counts for rate in links]
    for repetition, noise in enumerate((1.0, 1.01, 0.99)):
        yield from (launch(each, repetition, noise) for each in points)
