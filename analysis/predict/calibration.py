"""What launches teach about a cluster and about each setting.  Pure.

Decides which launches are one setting, and what is taken over to more workers.  How the figures of
a setting are found is decided in `fitting`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from analysis.derive.fastest_step import all_flows_of, flows_of, host_rates, step_time_s
from analysis.predict.fitting import SIDE, USUAL, Seen
from analysis.predict.loads import Cluster, load_of
from analysis.predict.models import DealtLoad, worker_rates
from analysis.predict.sent import SentBytes, message_share
from ps_allreduce.bounds import link_bytes
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import MAX_HOSTS, EmulatedNetwork
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Scaling
from ps_allreduce.record.records import RunRecord, Status

#: Use of a station from which it limits.
_SATURATED = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A setting, whatever the number of workers and the rate of links.

    Attributes:
        largest: the point with the most workers, the largest batch and the fastest links.
        sent: what it sends.
        clusters: of each batch of lone workers one.
        cpu_s_per_byte: processor seconds of sender and receiver together.
    """

    seen: tuple[Seen, ...]
    largest: Experiment
    sent: SentBytes
    clusters: tuple[Cluster, ...]
    cpu_s_per_byte: float

    @property
    def most_workers(self) -> int:
        """Of the launches that it was learned from."""
        return max(each.load.num_workers for each in self.seen)

    @property
    def measured(self) -> tuple[Experiment, ...]:
        """Of every workload the point with the most workers and the fastest links."""
        points = [each.experiment for each in self.seen]
        largest = {each.workload: each for each in sorted(points, key=_size)}
        return tuple(largest[load] for load in dict.fromkeys(each.workload for each in points))

    @property
    def is_saturated(self) -> bool:
        """At some point links were busy for most of the step."""
        return any(_busy(each) >= _SATURATED for each in self.seen)


def same_batch(clusters: Sequence[Cluster], own: Experiment) -> Cluster:
    """What a lone worker with the same batch has shown, else the one with the largest."""
    wanted = own.of_each.examples_per_step
    return max(clusters, key=lambda each: (each.examples == wanted, each.examples))


def _size(own: Experiment) -> tuple[int, int, float]:
    """Workers, examples of a step of each, and the rate of links."""
    rate = (own.network and own.network.bits_per_s) or math.inf
    return own.num_workers, own.of_each.examples_per_step, rate


def _busy(seen: Seen) -> float:
    """Use of the busiest link at the measured rate, or what is sent over what is computed."""
    if isinstance(seen.load, DealtLoad):
        rates = worker_rates(seen.load, USUAL)
        rates = rates * seen.load.num_workers / (rates.sum() * median(seen.steps_s))
        return float((rates @ seen.load.links_s).max(initial=0.0))
    own = seen.load
    return own.network_s / (own.crowd * (own.forward_s + own.backward_s))


def usable(records: Iterable[RunRecord], most_workers: int | None = None) -> list[RunRecord]:
    """Launches that are ok, with at most so many workers."""
    return [
        each
        for each in records
        if each.status is Status.OK
        and each.metrics is not None
        and (most_workers is None or each.experiment.num_workers <= most_workers)
    ]


def families(records: Sequence[RunRecord]) -> tuple[Family, ...]:
    """The settings that send something, each with its launches.

    Raises:
        UserError: there is none, or nobody has seen what a worker computes alone.
    """
    groups: dict[tuple[Hashable, Hashable], list[RunRecord]] = {}
    for record in records:
        if record.experiment.strategy.communicates():
            groups.setdefault(setting_of(record.experiment), []).append(record)
    found = []
    for (around, _), group in groups.items():
        alike = [each for each in records if _surroundings(each.experiment) == around]
        found.append(_family(group, _clusters(alike)))
    if made := tuple(each for each in found if each is not None and each.seen):
        return made
    raise UserError(
        "there is nothing to predict from: no launch to learn from sends gradients between hosts "
        "on links that were measured. Make some, with fewer workers than you ask for (make "
        "ps-sweep)."
    )


def learned_from(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Those of the launches that settings are learned from, lone workers among them."""
    known = families(records)
    points = {seen.experiment for family in known for seen in family.seen}
    around = {_surroundings(family.largest) for family in known}
    return [
        each
        for each in records
        if each.experiment in points
        or (
            not each.experiment.strategy.communicates() and _surroundings(each.experiment) in around
        )
    ]


def untold(records: Iterable[RunRecord], known: Sequence[Family]) -> list[AnyStrategy]:
    """Strategies that send something and belong to no family, each once."""
    told = {setting_of(each.largest) for each in known}
    points = [each.experiment for each in records if each.experiment.strategy.communicates()]
    return [*dict.fromkeys(each.strategy for each in points if setting_of(each) not in told)]


def setting_of(own: Experiment) -> tuple[Hashable, Hashable]:
    """What launches share that are learned from together."""
    return _surroundings(own), _uncounted(own)


def undisturbed(own: Experiment) -> Experiment:
    """The same point on equal hosts with steady passes, links of their own, and deep ports."""
    load, network = own.workload, own.network
    if network is not None:
        network = EmulatedNetwork(
            num_hosts=network.num_hosts, bits_per_s=network.bits_per_s, delay_s=network.delay_s
        )
    if load.emulated is not None:
        load = replace(load, emulated=replace(load.emulated, factors=(), jitter=None))
    return replace(own, workload=load, network=network)


def disturbance_of(own: Experiment) -> str:
    """What a point has and `undisturbed` leaves out, in words."""
    plain = _stated(undisturbed(own))
    return ", ".join(part for part in _stated(own) if part not in plain)


def _stated(own: Experiment) -> list[str]:
    emulated, network = own.workload.emulated, own.network
    passes = [f"factors {emulated.factors}", f"jitter {emulated.jitter}"] if emulated else []
    return [*passes, *(network.title_parts() if network else [])]


def _surroundings(own: Experiment) -> Hashable:
    """All but strategy, numbers, rate of links, batch, and what an emulated accelerator takes."""
    load, network = own.workload, own.network
    if load.scaling is Scaling.WEAK:
        load = replace(load, batch_per_worker=1)
    if network is not None:
        network = replace(network, num_hosts=MAX_HOSTS, bits_per_s=None)
    if load.emulated is not None:
        load = replace(load, emulated=replace(load.emulated, forward_s=1.0, backward_s=1.0))
    return load, own.resources.device, own.spread, own.launcher, network, own.interface


def _uncounted(own: Experiment) -> Hashable:
    """The strategy, with one server where there are as many as workers and more than one."""
    return (with_servers(own.strategy, 1), True) if follows(own) else (own.strategy, False)


def follows(experiment: Experiment) -> bool:
    """There are as many servers as workers, and several."""
    return experiment.num_ps == experiment.num_workers > 1


def with_servers(
    strategy: AnyStrategy, num_ps: int, layout: LayoutKind | None = None
) -> AnyStrategy:
    """The same strategy with so many servers, and in that layout if one is named."""
    return StrategySettings(num_ps=num_ps, layout=layout).put_into(strategy)


def _clusters(alike: Sequence[RunRecord]) -> tuple[Cluster, ...]:
    """One for each batch of lone workers; what sends tells of links whatever its batch."""
    lone = {_examples(each) for each in alike if each.experiment.num_workers == 1}
    return tuple(
        cluster_of(
            [r for r in alike if r.experiment.strategy.communicates() or _examples(r) == batch]
        )
        for batch in sorted(lone or {max(map(_examples, alike))})
    )


def _examples(record: RunRecord) -> int:
    return record.experiment.of_each.examples_per_step


def cluster_of(records: Sequence[RunRecord]) -> Cluster:
    """What launches of one workload on one kind of hosts have in common.

    Raises:
        UserError: nobody has seen what a worker computes alone.
    """
    alone = _alone(records)
    own = (alone or records)[0].experiment
    is_shared = own.network is not None
    cores = float(max(each.total_cores for each in records))
    busy = [each.machine_busy - (each.foreign_load or 0.0) for each in alone if each.machine_busy]
    payloads = [link.bits_per_s for each in records for link in each.links]
    forward_s, backward_s = _lone_passes(alone)
    lone_cores = _lone_cores(own, cores, busy) if is_shared else 0.0
    return Cluster(
        forward_s=forward_s,
        backward_s=backward_s,
        examples=own.of_each.examples_per_step,
        spread=_spread(alone),
        link_share=_link_share(records),
        bytes_per_s=median(payloads) / 8 if payloads else None,
        cores=cores if is_shared else max(1.0, cores / max(1, len(records[-1].hosts))),
        shares_cores=is_shared,
        lone_cores=lone_cores,
        crowding=_crowding(records, alone, lone_cores / cores) if lone_cores else 1.0,
    )


def _crowding(records: Sequence[RunRecord], alone: Sequence[RunRecord], share: float) -> float:
    """How much longer than by their share of processors workers compute that send nothing.

    Args:
        share: of the processors that a lone worker keeps busy.
    """
    lone_s = median(step_time_s(each) or 0.0 for each in alone)
    found = [
        step / lone_s / (each.experiment.num_workers * share)
        for each in records
        if each.experiment.num_workers * share > 1.0
        and not each.experiment.strategy.communicates()
        and (step := step_time_s(each))
    ]
    return max(1.0, median(found)) if found else 1.0


def _alone(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Launches of a lone worker; those that send nothing at all come before others.

    What an emulated accelerator takes is stated, so there it may be none.
    """
    lone = [each for each in records if each.experiment.num_workers == 1]
    silent = [each for each in lone if not each.experiment.strategy.communicates()]
    seen = [each for each in silent or lone if not flows_of(each)]
    if not seen and records[0].experiment.workload.emulated is None:
        raise UserError(
            "no launch of a single worker is here, and nothing else tells what a worker computes "
            "alone: predict from a sweep that has some, as compare and ps-sweep do."
        )
    return seen


def _lone_passes(alone: Sequence[RunRecord]) -> tuple[float, float]:
    """The step up to its last backward pass, and that pass; of emulation what is not stated."""
    if not alone:
        return 0.0, 0.0
    steps = [step_time_s(each) or 0.0 for each in alone]
    if alone[0].experiment.workload.emulated is not None:
        beside = [step - _stated_s(each) for step, each in zip(steps, alone, strict=True)]
        return max(0.0, median(beside)), 0.0
    last_s = median(_last_pass_s(each) for each in alone)
    return max(0.0, median(steps) - last_s), last_s


def _stated_s(record: RunRecord) -> float:
    own = record.experiment.of_each
    assert own.emulated is not None
    return own.accumulation * (own.emulated.forward_s + own.emulated.backward_s)


def _last_pass_s(record: RunRecord) -> float:
    """The backward pass of the last batch; 0 where nobody sees into a step."""
    metrics = record.metrics
    if metrics is None or metrics.backward_s is None:
        return 0.0
    return metrics.backward_s / record.experiment.of_each.accumulation


def _spread(alone: Sequence[RunRecord]) -> float:
    """From the median and the 95th percentile, as if steps were normal."""
    known = [each.metrics for each in alone if each.metrics is not None]
    ratios = [each.step_time_p95_s / each.step_time_p50_s for each in known]
    return fmean(max(0.0, (each - 1.0) / SIDE) for each in ratios) if ratios else 0.0


def _lone_cores(own: Experiment, cores: float, busy: Sequence[float]) -> float:
    """An emulated accelerator computes elsewhere."""
    if own.workload.emulated is not None or not busy:
        return 0.0
    return min(cores, max(0.0, median(busy)) * cores)


def _link_share(records: Sequence[RunRecord]) -> float | None:
    shares = [
        max(link.bits_per_s for link in each.links) / network.bits_per_s
        for each in records
        if each.links
        and (network := each.experiment.network) is not None
        and network.bits_per_s is not None
    ]
    return median(shares) if shares else None


def _family(records: Sequence[RunRecord], clusters: Sequence[Cluster]) -> Family | None:
    known = [each for each in records if flows_of(each) or each.experiment.num_workers == 1]
    if not any(flows_of(each) for each in known):
        return None
    latest = max(known, key=lambda each: _size(each.experiment))
    all_costs = [_cpu_s_per_byte(each, same_batch(clusters, each.experiment)) for each in known]
    costs = [each for each in all_costs if each is not None]
    cost = median(costs) if costs else 0.0
    return Family(
        seen=tuple(_seen(known, clusters, cost)),
        largest=latest.experiment,
        sent=SentBytes.of(latest),
        clusters=tuple(clusters),
        cpu_s_per_byte=cost,
    )


def _cpu_s_per_byte(record: RunRecord, cluster: Cluster) -> float | None:
    """Processor seconds beyond those of the computation, over the bytes that tasks sent."""
    sent = sum(flow.num_bytes for flow in all_flows_of(record))
    step = step_time_s(record)
    if not cluster.shares_cores or not sent or not step or record.machine_busy is None:
        return None
    used_s = (record.machine_busy - (record.foreign_load or 0.0)) * cluster.cores * step
    alone_s = cluster.lone_cores * (cluster.forward_s + cluster.backward_s)
    longer = _examples(record) / cluster.examples
    return max(0.0, used_s - record.experiment.num_workers * alone_s * longer) / sent


def _seen(records: Sequence[RunRecord], clusters: Sequence[Cluster], cost: float) -> Iterator[Seen]:
    points: dict[Experiment, list[RunRecord]] = {}
    for record in records:
        points.setdefault(record.experiment, []).append(record)
    for experiment, launches in points.items():
        flows, rates = all_flows_of(launches[0]), host_rates(launches[0])
        if set(link_bytes(flows)) <= set(rates):
            host_of = {task.task: task.host for task in launches[0].tasks}
            share, cluster = message_share(launches[0]), same_batch(clusters, experiment)
            load = load_of(experiment, host_of, flows, rates, cluster, cost, share)
            steps = tuple(step for each in launches if (step := step_time_s(each)))
            yield Seen(experiment=experiment, load=load, steps_s=steps)
