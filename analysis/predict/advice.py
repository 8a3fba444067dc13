"""Which setting to take on so many hosts, by the closed form.  Pure.

Decides which clusters are candidates: of every setting that was measured the numbers of workers and
servers that the hosts hold, servers beside workers or on hosts of their own.  Decides that
synchronous settings are ranked and asynchronous ones listed apart, because equal rates do not train
equally well, how many hosts are enough, and which changes are tried for what they help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from analysis.data.prices import Prices
from analysis.predict.calibration import families, follows, same_batch, with_servers
from analysis.predict.models import step_s
from analysis.predict.planned_loads import payload, with_hosts
from analysis.predict.predictions import Prediction, Question, Teller, asked
from analysis.predict.symmetric import Symmetric, extremes, symmetric
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import is_apart, num_hosts, num_ps_hosts
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.wire import WireType
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord

#: Share of the rate from which fewer hosts are as good.
ENOUGH = 0.95

#: A change that brings less is not told.
_HELPS = 0.02

#: So many settings get an interval.
_TOLD = 20

#: Below so many servers, or workers, every number is tried, then half as many of each doubling.
_EVERY_SERVERS, _EVERY_WORKERS = 16, 128


class ClusterRate(NamedTuple):
    """A cluster and its rate in examples per second."""

    rate: float
    workers: int
    num_ps: int
    hosts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What is best on so many hosts, and what follows.

    Attributes:
        ranked: synchronous settings on all of these hosts, the best first; of each the best
            numbers of workers and servers.
        asynchronous: likewise.
        enough_hosts: the fewest on which the best setting has 95 % of its rate.
        fastest: of the best setting on so many hosts or fewer.
        cheapest: of the same, what costs least for an example; None without prices.
        helps: what of the best setting's rate single changes would bring on top, largest first.
        weighed: clusters of which the rate was calculated.
    """

    ranked: tuple[Prediction, ...]
    asynchronous: tuple[Prediction, ...]
    enough_hosts: int
    fastest: Prediction
    cheapest: Prediction | None
    helps: Mapping[str, float]
    weighed: int

    @property
    def best(self) -> Prediction:
        """The first."""
        return self.ranked[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    """Every cluster of a setting in one layout.

    Attributes:
        own: the setting as it was measured, in that layout and on the links that are asked for.
    """

    teller: Teller
    own: Experiment
    found: Sequence[ClusterRate]

    @property
    def best(self) -> ClusterRate:
        """The fastest that uses all hosts; of equals the one with the fewest servers."""
        return max(self.found, key=lambda each: (each.hosts, each.rate, -each.num_ps))

    def cost(self, candidate: ClusterRate, prices: Prices) -> float:
        """Of an example, in hours of one host's price."""
        named = num_ps_hosts(self.own) * candidate.num_ps / max(1, self.own.num_ps)
        hours = (candidate.hosts - named) * prices.host + named * prices.ps_host
        return hours / candidate.rate

    def told(self, candidate: ClusterRate) -> Prediction:
        """With an interval."""
        return self.teller.told(self.point(candidate))

    def point(self, candidate: ClusterRate) -> Experiment:
        question = Question(workers=(candidate.workers,), num_ps=candidate.num_ps or None)
        return asked(self.own, question, candidate.workers)


def known_tellers(records: Sequence[RunRecord]) -> tuple[Teller, ...]:
    """What was learned of every setting.

    Raises:
        UserError: no setting that sends anything was measured, or nobody worked alone.
    """
    return tuple(Teller.of(family) for family in families(records))


def advise(
    tellers: Sequence[Teller],
    hosts: int,
    bits_per_s: float | None = None,
    prices: Prices | None = None,
) -> Recommendation:
    """Rank settings for so many hosts.

    Raises:
        UserError: no synchronous setting is known that can use so many hosts.
    """
    refusals: list[str] = []
    weighed = [
        _Weighed(teller=teller, own=own, found=found)
        for teller in tellers
        for own in _layouts(teller.largest, bits_per_s, prices)
        if (found := list(_candidates(teller, own, hosts, refusals)))
    ]
    weighed.sort(key=lambda each: -each.best.rate)
    ranked = [each for each in weighed if each.own.strategy.synchronous][:_TOLD]
    if not ranked:
        why = f" ({refusals[-1]})" if refusals else ""
        raise UserError(
            f"no synchronous setting was measured that can use {hosts} hosts{why}: there is "
            "nothing to rank."
        )
    told = [(each.told(each.best), each) for each in ranked]
    told.sort(key=lambda pair: -pair[0].expected)
    others = [each for each in weighed if not each.own.strategy.synchronous]
    winner = told[0][1]
    return Recommendation(
        ranked=tuple(made for made, _ in told),
        asynchronous=tuple(each.told(each.best) for each in others[:_TOLD]),
        enough_hosts=_enough(winner),
        fastest=winner.told(max(winner.found)),
        cheapest=None if prices is None else _cheapest(winner, prices),
        helps=dict(_helps(winner)),
        weighed=sum(len(each.found) for each in weighed),
    )


def _layouts(
    largest: Experiment, bits_per_s: float | None, prices: Prices | None
) -> Iterator[Experiment]:
    """The setting as it was measured, and with its servers the other way: beside workers, or not.

    Servers apart are on hosts that are named for them where these have a price of their own.
    """
    question = Question(
        workers=(largest.num_workers,), bits_per_s=bits_per_s, num_ps=largest.num_ps
    )
    own = asked(largest, question, largest.num_workers)
    yield own
    if own.strategy.synchronous and own.strategy.uses_servers and own.spread is not None:
        has_price = prices is not None and prices.ps_host != prices.host
        other = LayoutKind.PS_HOSTS if has_price else LayoutKind.DEDICATED
        layout = LayoutKind.COLOCATED if is_apart(own) else other
        yield with_hosts(replace(own, strategy=with_servers(own.strategy, own.num_ps, layout)))


def _candidates(
    teller: Teller, own: Experiment, hosts: int, refusals: list[str]
) -> Iterator[ClusterRate]:
    """Clusters of a setting in its layout, with their rates."""
    cluster = same_batch(teller.clusters, own)
    form = symmetric(own, teller.sent, cluster, teller.cpu_s_per_byte)
    for num_ps in _counts(own, hosts, is_quick=form is not None):
        served = replace(own, strategy=with_servers(own.strategy, num_ps))
        try:
            if form is not None:
                yield from _of_form(form, teller, served, hosts)
            else:
                yield from _by_flows(teller, served, hosts)
        except UserError as error:  # more servers than variables, or than hosts
            refusals.append(str(error))


def _counts(own: Experiment, hosts: int, *, is_quick: bool) -> Sequence[int]:
    """Numbers of servers that are tried; few where each needs a list of all that hosts send."""
    if not own.strategy.uses_servers:
        return [0]
    if own.strategy.deals_steps:
        return [hosts if follows(own) else own.num_ps]
    return tried_numbers(1, hosts - is_apart(own), _EVERY_SERVERS if is_quick else 2)


def tried_numbers(first: int, last: int, every: int) -> Sequence[int]:
    """Both, and of what is between them all below `every`, then half as many of each doubling."""
    parts = every // 2
    tried = {first, last, *range(1, every)}
    for power in range(parts.bit_length(), last.bit_length()):
        tried |= {2**power * (parts + part) // parts for part in range(parts)}
    return sorted(each for each in tried if first <= each <= last)


def _of_form(form: Symmetric, teller: Teller, own: Experiment, hosts: int) -> Iterator[ClusterRate]:
    """As many workers as the hosts hold with these servers, and fewer."""
    placed = teller.sent.placed(own)
    rate = payload(own, same_batch(teller.clusters, own))
    num_ps, best = own.num_ps, teller.learned.best
    bare, full = extremes(placed, num_ps + 1), extremes(placed, num_ps)
    first, last = (1, hosts - num_ps) if form.apart else (max(1, num_ps), hosts)
    for count in tried_numbers(first, last, _EVERY_WORKERS):
        examples = _examples(own.workload, count)
        load = form.load(count, full if count <= num_ps else bare, rate, examples)
        taken = count + form.apart * num_ps
        yield ClusterRate(count * examples / step_s(load, best), count, num_ps, taken)


@cache
def _examples(load: Workload, workers: int) -> int:
    return load.of_each(workers).examples_per_step


def _by_flows(teller: Teller, own: Experiment, hosts: int) -> Iterator[ClusterRate]:
    """As many workers as the hosts hold with these servers, then half as many, down to one."""
    per_host = own.spread.workers_per_host if own.spread else 1
    points = (with_hosts(replace(own, num_workers=n)) for n in range(hosts * per_host, 0, -1))
    most = next((point.num_workers for point in points if num_hosts(point) <= hosts), 0)
    for halved in range(most.bit_length()):
        point = with_hosts(replace(own, num_workers=most >> halved))
        yield ClusterRate(teller.rate(point), point.num_workers, own.num_ps, num_hosts(point))


def _enough(weighed: _Weighed) -> int:
    wanted = ENOUGH * weighed.best.rate
    return min(each.hosts for each in weighed.found if each.rate >= wanted)


def _cheapest(weighed: _Weighed, prices: Prices) -> Prediction:
    """What costs least for an example."""
    return weighed.told(min(weighed.found, key=lambda each: weighed.cost(each, prices)))


def _helps(weighed: _Weighed) -> Iterator[tuple[str, float]]:
    """By how much single changes would raise the rate, the largest first."""
    teller, target = weighed.teller, weighed.point(weighed.best)
    rate, found = teller.rate(target), {}
    for name, change in _CHANGES.items():
        try:
            changed = change(teller, target)
            found[name] = 0.0 if changed is None else changed / rate - 1.0
        except UserError:
            continue  # it cannot be so
    for name in sorted(found, key=lambda each: -found[each]):
        if found[name] >= _HELPS:
            yield name, found[name]


def _with_faster_links(teller: Teller, target: Experiment) -> float | None:
    network = target.network
    if network is not None and network.bits_per_s is None:
        return None
    if network is not None and network.bits_per_s is not None:
        faster = replace(network, bits_per_s=2 * network.bits_per_s)
        return teller.rate(replace(target, network=faster))
    clusters = [
        replace(each, bytes_per_s=each.bytes_per_s and 2 * each.bytes_per_s)
        for each in teller.clusters
    ]
    return replace(teller, clusters=tuple(clusters)).rate(target)


def _with_another_server(teller: Teller, target: Experiment) -> float | None:
    """On a host of its own, also where others stand beside workers."""
    if not target.strategy.uses_servers:
        return None
    return teller.rate(
        with_hosts(replace(target, strategy=with_servers(target.strategy, target.num_ps + 1)))
    )


def _with_split_variables(teller: Teller, target: Experiment, *, apart: bool) -> float | None:
    """Beside workers on as many servers, since whole variables are why there are fewer."""
    servers = target.strategy.servers
    if servers is None or servers.placement is Policy.PARTITIONED or is_apart(target) is not apart:
        return None
    num_ps = target.num_ps if apart else max(target.num_ps, target.num_workers)
    share = sum(teller.sent.sizes) // num_ps
    cut = StrategySettings(
        num_ps=num_ps,
        placement=Policy.PARTITIONED,
        split_bytes=max(1, min(DEFAULT_SPLIT_BYTES, share // 2)),
    )
    free = replace(teller, sent=replace(teller.sent, bytes_per_server=()))
    return free.rate(replace(target, strategy=cut.put_into(target.strategy)))


def _with_half_gradients(teller: Teller, target: Experiment) -> float | None:
    wire = target.strategy.wire
    if wire is None or wire.gradients is not WireType.FLOAT32:
        return None
    half = StrategySettings(gradients=WireType.BFLOAT16)
    return teller.rate(replace(target, strategy=half.put_into(target.strategy)))


def _with_fewer_exchanges(teller: Teller, target: Experiment) -> float:
    load = target.workload
    changed = replace(target, workload=replace(load, accumulation=2 * load.accumulation))
    return teller.rate(changed)


#: What is tried, by its name; the rate that follows, None where there is nothing to change.
_CHANGES: Mapping[str, Callable[[Teller, Experiment], float | None]] = {
    "links twice as fast": _with_faster_links,
    "another server": _with_another_server,
    "variables cut into parts": partial(_with_split_variables, apart=True),
    "variables cut into parts, a server beside each worker": partial(
        _with_split_variables, apart=False
    ),
    "gradients in 16 bits": _with_half_gradients,
    "twice the batches per exchange": _with_fewer_exchanges,
}
