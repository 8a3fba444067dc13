"""How fast a step could be at best, given the links of a run, and how near the run came to that.

Which bytes cross which link is worked out by `ps_allreduce.bounds`, from the hosts that the tasks
were on, the bytes read back from every server, and the format of gradients on the wire.  Here they
become times, with the rates that were measured right before the run.

Network time: T, the largest of a host's bytes over its rate, over hosts and directions, in a step
of all n workers.  For dedicated servers on hosts of equal rate B (bytes/s) that is
max(n L / B, S / B), with S the bytes of all gradients and L those of the hottest server.

Synchronous step: forward + max(backward, T).  Of several accumulated batches only the last backward
pass can overlap: nothing is sent before it.  What overlaps with the *next* forward pass as well is
not part of this bound; no strategy here does that, a step begins when all values are there.  Rows
of tables are fetched before the forward pass and sent after the backward pass, so the time R of a
worker's rows is hidden by neither: forward + max(backward + R, T).

Asynchronous step, of all workers, which is n worker steps: workers take turns on a link, and one
worker's forward pass hides another one's traffic, so max(forward + max(backward, own), T) with
`own` the time of the worker's traffic alone.  Over n, T is max(L / B, S / (n B)) seconds per worker
step for dedicated servers.  Where steps are dealt without a bound of staleness, the workers that
are nearer to the servers may make more of them: the bound is for the best division of the steps, a
linear program, which yields the same number where all workers are placed alike.

Emulated workers may differ.  The slowest worker of a synchronous step decides: no value is there
before its gradients are.  Asynchronous workers each have a time of their own, and with a bound of
staleness the slowest decides again.  Where steps differ too, it is the slowest worker of each step,
with the factors that were drawn for the measured steps.

Background traffic of emulated hosts lowers the rate of the links that carry it, by what arrived.
It may wait while workers send, and cross while they compute.  So a step is bounded by links without
it, and by T, in which its share of the whole step is taken off.

Latency and links between racks are not in these bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from ps_allreduce import bounds
from ps_allreduce.bounds import Flow, Rates, demands, link_bytes, network_time_s, step_bound_s
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.record.records import SLOW_SHARE, LinkRecord, RunRecord

#: Of a run that did not get so far, its bound is that of so many steps.
UNMEASURED_STEPS = 1000

#: Of sums of shares of a second.
_ROUNDING = 1e-9

_Floats = npt.NDArray[np.float64]

#: The host that sends, and the one that receives.
Link = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least times of a step of all workers, seconds.

    Attributes:
        network_s: in which the busiest link can carry its bytes; of workers that make steps on
            their own, those of the steps that each of them made.
        in_turn_s: the same if all workers fetch rows of tables, then send them, and all else apart;
            no bound, but near what happens.
        step_s: with the computation, where communication overlaps perfectly.
    """

    network_s: float
    in_turn_s: float
    step_s: float


def bound_of(record: RunRecord) -> Bound | None:
    """The bound of a run; None without a network that limits it, or where it is unknown."""
    compute, rates, flows = _compute(record), host_rates(record), flows_of(record)
    hosts = set(link_bytes(flows))
    if compute is None or not hosts or not hosts <= set(rates):
        return None
    if min(min(rates[host]) for host in hosts) <= 0:
        return None  # links were measured slower than what else they carried
    made = _as_made(record, flows)
    network_s, in_turn_s = network_time_s(made, rates), bounds.in_turn_s(made, rates)
    if record.experiment.strategy.deals_steps:
        step_s = _dealt_step_s(record, compute, flows, rates)
    else:
        free = _free_rates(record)
        sent_s, rows_s = network_time_s(made, free), bounds.rows_s(flows, free)
        step_s = max(compute.step_s(compute.scales.max(axis=0), sent_s, rows_s), network_s)
    return Bound(network_s=network_s, in_turn_s=in_turn_s, step_s=step_s)


def step_time_s(record: RunRecord) -> float | None:
    """Seconds of a step of all workers, at the throughput that was measured."""
    metrics = record.metrics
    return record.experiment.global_batch / metrics.examples_per_sec if metrics else None


def host_rates(record: RunRecord) -> Rates:
    """Bytes per second of each host's link, less what background traffic took of each direction.

    A slow host at the other end makes one of its two links slow, so the faster one tells what the
    host can do.
    """
    rates = _free_rates(record)
    sent, received = dict.fromkeys(rates, 0.0), dict.fromkeys(rates, 0.0)
    for stream in record.traffic:
        for taken, host in ((sent, stream.source), (received, stream.target)):
            if host in rates:
                taken[host] += stream.bits_per_s / 8
    return {h: (out - sent[h], into - received[h]) for h, (out, into) in rates.items()}


def _free_rates(record: RunRecord) -> Rates:
    """The same without that traffic, as links were measured."""
    return {host: (rate / 8, rate / 8) for host, rate in _fastest_links(record).items()}


def slow_links(record: RunRecord) -> list[LinkRecord]:
    """Links that are slow though neither of their hosts is, so that no rate of a host tells it."""
    fastest = _fastest_links(record)
    return [
        link
        for link in record.links
        if link.bits_per_s < SLOW_SHARE * min(fastest[link.source], fastest[link.target])
    ]


def left_out_links(records: Sequence[RunRecord]) -> list[Link]:
    """Links that are such slow ones in most of several runs."""
    slow = Counter((each.source, each.target) for r in records for each in slow_links(r))
    return [link for link, count in slow.items() if count > len(records) / 2]


def use_of(record: RunRecord, links: Sequence[Link]) -> list[float]:
    """Of each of these links that a run measured: the share of a step that it needs for its bytes.

    Empty where it is unknown what hosts send each other.
    """
    step_s, flows = step_time_s(record), made_flows_of(record)
    if step_s is None or not flows:
        return []
    measured = {(each.source, each.target): each.bits_per_s for each in record.links}
    return [
        8 * sum(f.num_bytes for f in flows if (f.source, f.target) == link) / rate / step_s
        for link in links
        if (rate := measured.get(link))
    ]


def rates_of_links(records: Iterable[RunRecord]) -> dict[Link, float]:
    """Bits per second that each link carried before the runs, medians."""
    rates: dict[Link, list[float]] = {}
    for link in (link for record in records for link in record.links):
        rates.setdefault((link.source, link.target), []).append(link.bits_per_s)
    return {link: median(each) for link, each in rates.items()}


def slow_ones(rates: Mapping[Link, float], fast_bits_per_s: float) -> dict[Link, float]:
    """Links that are nearer to the slowest one than to a fast one; none where none is slow.

    These must all be repaired to leave the busiest link more.
    """
    slowest = min(rates.values())
    if slowest >= SLOW_SHARE * fast_bits_per_s:
        return {}
    return {link: rate for link, rate in rates.items() if rate <= (slowest + fast_bits_per_s) / 2}


def _fastest_links(record: RunRecord) -> dict[str, float]:
    """Bits per second of the fastest link that was measured at each host."""
    fastest: dict[str, float] = {}
    for link in record.links:
        for host in (link.source, link.target):
            fastest[host] = max(fastest.get(host, 0.0), link.bits_per_s)
    return fastest


def flows_of(
    record: RunRecord, loads: Sequence[int] | None = None, *, even_rows: bool = False
) -> tuple[Flow, ...]:
    """What crosses links in a step of all workers; arguments are those of `all_flows_of`."""
    flows = all_flows_of(record, loads, even_rows=even_rows)
    return tuple(flow for flow in flows if flow.crosses)


def all_flows_of(
    record: RunRecord, loads: Sequence[int] | None = None, *, even_rows: bool = False
) -> tuple[Flow, ...]:
    """What tasks send each other in a step of all workers; empty where that is unknown.

    TensorFlow as it ships sends of sparse gradients what it likes.

    Args:
        loads: bytes of each server; those of the run where none are given.
        even_rows: as if each server were asked for equally many rows.
    """
    experiment, placement = record.experiment, record.placement
    host_of = {task.task: task.host for task in record.tasks}
    wanted = [str(TaskId(TaskType.WORKER, index)) for index in range(experiment.num_workers)]
    wanted += [str(TaskId(TaskType.PS, index)) for index in range(experiment.num_ps)]
    if record.is_sparse and experiment.strategy.as_shipped:
        return ()
    if not set(wanted) <= set(host_of) or record.gradient_bytes is None:
        return ()
    if experiment.strategy.places_variables and placement is None:
        return ()
    if loads is None:
        loads = placement.bytes_per_server if placement else ()
    rows = record.rows_asked
    if even_rows and rows is not None:
        rows = replace(rows, per_server=())
    return demands(experiment, host_of, loads, record.gradient_bytes, rows)


def made_flows_of(
    record: RunRecord, loads: Sequence[int] | None = None, *, even_rows: bool = False
) -> Sequence[Flow]:
    """The same of as many worker steps as there are workers, each having made its share of them.

    Workers make equal shares unless each makes steps on its own.
    """
    return _as_made(record, flows_of(record, loads, even_rows=even_rows))


def _as_made(record: RunRecord, flows: Sequence[Flow]) -> Sequence[Flow]:
    if record.metrics is None or not record.experiment.strategy.deals_steps:
        return flows
    steps = record.metrics.steps_per_worker
    equal = sum(steps) / len(steps)
    return [
        flow
        if flow.worker is None
        else replace(flow, num_bytes=flow.num_bytes * steps[flow.worker] / equal)
        for flow in flows
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compute:
    """What workers compute in a step.

    Attributes:
        before_s: of a worker's step before its last backward pass,
        last_s: and that pass, where nothing is scaled.
        scales: so many times as long does every worker take in every step [workers, steps].
    """

    before_s: float
    last_s: float
    scales: _Floats

    def step_s(self, scales: _Floats, network_s: float, rows_s: float) -> float:
        """The least seconds of a step, mean over steps that are scaled so."""
        each = [step_bound_s(self.before_s * s, self.last_s * s, network_s, rows_s) for s in scales]
        return float(np.mean(each))


def _compute(record: RunRecord) -> _Compute | None:
    """What an emulated accelerator was asked to take, else the means that were measured."""
    load, workers = record.experiment.of_each, range(record.experiment.num_workers)
    count, scales = load.accumulation, np.ones((len(workers), 1))
    if load.emulated is not None:
        forward_s, backward_s = load.emulated.forward_s * count, load.emulated.backward_s * count
        scales = np.stack([load.emulated.scales(worker, _steps(record)) for worker in workers])
    else:
        measured = record.metrics
        if measured is None or measured.forward_s is None or measured.backward_s is None:
            return None
        forward_s, backward_s = measured.forward_s, measured.backward_s
    last_s = backward_s / count
    return _Compute(before_s=forward_s + backward_s - last_s, last_s=last_s, scales=scales)


def _steps(record: RunRecord) -> npt.NDArray[np.int64]:
    """The steps that were measured, by their numbers; the first ones where none were."""
    if record.metrics is None:
        return np.arange(UNMEASURED_STEPS)
    return record.metrics.warmup_steps + np.arange(record.metrics.measured_steps)


def _dealt_step_s(
    record: RunRecord, compute: _Compute, flows: Sequence[Flow], rates: Rates
) -> float:
    """Seconds of as many worker steps as there are workers, which make them on their own.

    Args:
        rates: that background traffic leaves.
    """
    num_workers, free = record.experiment.num_workers, _free_rates(record)
    own = [[flow for flow in flows if flow.worker == worker] for worker in range(num_workers)]
    alone = [
        compute.step_s(scales, network_time_s(each, free), bounds.rows_s(each, free))
        for scales, each in zip(compute.scales, own, strict=True)
    ]
    if not record.experiment.strategy.steps_may_differ:
        # Nobody gets far ahead, so all make the same number of steps.
        return max(*alone, network_time_s(flows, rates))
    return num_workers / most_steps_per_s(own, alone, rates)


def most_steps_per_s(own: Sequence[Sequence[Flow]], alone: Sequence[float], rates: Rates) -> float:
    """Worker steps per second of all workers together, each making as many as it can.

    Args:
        own: what crosses links in a step of each worker.
        alone: the least seconds of a step of each worker.
    """
    shares = [link_bytes(flows) for flows in own]
    hosts = dict.fromkeys(host for share in shares for host in share)
    # Seconds that a worker's step uses a link.
    usage = np.array(
        [
            [share.get(host, (0.0, 0.0))[direction] / rates[host][direction] for share in shares]
            for host in hosts
            for direction in (0, 1)
        ]
    )
    fastest = 1 / np.array(alone)
    busiest = usage[int(np.argmax(usage @ fastest))]
    steps = _shared(busiest, fastest)
    if (usage @ steps).max() <= 1.0 + _ROUNDING:
        return float(steps.sum())
    return _best_division(usage, fastest)


def _shared(usage: _Floats, fastest: _Floats) -> _Floats:
    """Steps per second of each worker where one link limits them: who uses it least comes first.

    Args:
        usage: seconds that a worker's step uses the link.
        fastest: steps per second of each worker alone.
    """
    order = np.argsort(usage)
    least = usage[order]
    wanted = least * fastest[order]
    left = np.clip(1.0 - (np.cumsum(wanted) - wanted), 0.0, None)
    steps = np.empty_like(fastest)
    steps[order] = np.minimum(fastest[order], left / np.maximum(least, _ROUNDING))
    return steps


def _best_division(usage: _Floats, fastest: _Floats) -> float:
    """Most steps per second of all workers together, where several links limit them.

    Args:
        usage: seconds that a worker's step uses a link [links, workers].
        fastest: steps per second of each worker alone.
    """
    # It takes long to import, and few clusters ask for it.
    from scipy.optimize import linprog

    links, workers = usage.shape
    limits = [(0.0, most) for most in fastest]
    found = linprog([-1.0] * workers, A_ub=usage, b_ub=[1.0] * links, bounds=limits)
    if found.x is None:
        raise ValueError(f"the best division of steps was not found: {found.message}")
    return float(found.x.sum())
