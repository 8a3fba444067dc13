"""How long a step takes, from what its workers compute and what their hosts send.  Pure.

Decides the formulas.  Which loads a setting has is decided in `loads`, what a cluster's figures are
in `calibration`.

Synchronous steps, of servers and of all-reduce.  A lone worker computes for F seconds in which it
sends nothing and for B in which gradients travel; T is the time that the busiest link needs for the
bytes of all workers, M that of the processors for all messages, r how many messages follow each
other (2 (n - 1) around a ring), u the share of the bytes that is in one message, and c, L, a and g
are learned (`Fit`):

    t = c + s F + C + ((X - C)^h + M^h)^(1/h)
    X = u (s B + w E) + (1 - u) ((s B)^g + E^g)^(1/g)
    E = (a T + r L) (1 + d z_n)

The first message waits for its gradients, and the last one is sent when all are there, so 1 / u
messages hide a share of 1 - u (wait-free backpropagation: Zhang et al., Poseidon, ATC 2017).
Values are fetched from a server after gradients were sent there: w is 2 with servers, else 1.  The
last of them adds to the step where links run dry together; where links differ, u is less, and found
in `played`.  The exponent g says how well the rest hides: 1 is not at all, infinity is perfectly
(Qiao et al., Pollux, OSDI 2021).  Processors handle messages while others are on links, so they
limit the exchange as a whole, and no message waits for all of their work.  They are free for that
but for C = b k B, where backward passes keep a share b of them busy.  A step waits for the slowest
of n workers: s = k (1 + d z_n) with z_n the mean of the largest of n standard normal draws and d a
spread from step to step (order statistics, e.g. Petrini et al., SC 2003, who show what it costs
large machines).  Where k > 1 workers want a processor each that is not there, computation takes k
times as long.

Asynchronous steps.  n workers are the customers of a closed network.  Its stations are the
directions of every host's link, where messages queue, and the processors of hosts.  Worker i keeps
link k busy for D_ik in a step.  With N workers present the response of a link is

    R_ik = a D_ik (1 + Q_k - U_k / 2)

with queue and use that N - 1 workers cause: mean value analysis (Reiser and Lavenberg, J. ACM 27,
1980), less half of the service in progress, because messages take equally long (the residual life
of a fixed time).  A worker sends to its servers at the same time, so it waits for the slowest link
only.  Workers differ in what they send where, and each makes as many steps as it can: with N
present, each counts N / n.  No station does more than it can: those who use a saturated one share
it.  Beyond its knee a cluster does 1 / D steps per second (Lazowska et al., Quantitative System
Performance, 1984, chapter 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: With which h processors are joined with what they limit: nearly the larger of the two.
BOTH = 8.0

#: Points of the distribution that the mean of the largest draw is taken from.
_POINTS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherLoad:
    """What a synchronous step of all workers asks for, in seconds.

    Attributes:
        forward_s, backward_s: of a lone worker's step, the part before its last backward pass, and
            that pass.
        network_s: in which the busiest link carries the bytes of all workers.
        messages_s: in which the busiest processors handle the messages of all workers.
        rounds: messages of which each waits for the one before.
        crowd: so many times as long does computation take beside that of other workers.
        busy: share of the busiest processors that computation takes meanwhile.
        spread, link_spread: standard deviation over the mean, from step to step, of a worker's
            computation and of its exchange.
        message: u, the share of the bytes that is in one message; where links differ, as much of
            it as a played step shows.
        ways: w, how often the last message travels.
        sends: whether the step exchanges anything.
    """

    num_workers: int
    forward_s: float
    backward_s: float
    network_s: float
    messages_s: float = 0.0
    rounds: int = 0
    crowd: float = 1.0
    busy: float = 0.0
    spread: float = 0.0
    link_spread: float = 0.0
    message: float = 0.0
    ways: int = 1
    sends: bool = True

    def __post_init__(self) -> None:
        if self.num_workers < 1 or self.crowd < 1.0 or not 0.0 <= self.busy <= 1.0:
            raise ValueError(f"{self.num_workers} workers, {self.crowd} times as long, {self.busy}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DealtLoad:
    """What asynchronous steps ask for, in seconds.

    Attributes:
        forward_s, backward_s: of each worker alone [workers].
        links_s: in which a worker's step keeps each direction of a link busy [workers, links].
        processors_s: and the processors of each host, over their number [workers, hosts].
        message, ways: as in a synchronous step.
        even: nobody gets far ahead, so all make as many steps as the slowest.
    """

    forward_s: Floats
    backward_s: Floats
    links_s: Floats
    processors_s: Floats
    message: float = 0.0
    ways: int = 1
    even: bool = False

    def __post_init__(self) -> None:
        counts = {len(each) for each in (self.forward_s, self.backward_s, self.links_s)}
        if len(counts) != 1 or len(self.processors_s) not in counts:
            raise ValueError(f"loads of {counts} and {len(self.processors_s)} workers")

    @property
    def num_workers(self) -> int:
        """Of all hosts."""
        return len(self.forward_s)


Load = TogetherLoad | DealtLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What was learned of a setting.

    Attributes:
        stretch: a, time of an exchange over that of plain TCP.
        overhead_s: c, of every step that exchanges something.
        hiding: g, at least 1.
        round_s: L, of every message that waits for the one before.
    """

    stretch: float
    overhead_s: float
    hiding: float
    round_s: float

    def __post_init__(self) -> None:
        if self.hiding < 1.0 or min(self.stretch, self.overhead_s, self.round_s) < 0.0:
            raise ValueError(f"no step takes so long: {self}")


#: Perfect overlap on links as fast as plain TCP: what no setting exceeds.
PERFECT = Fit(stretch=1.0, overhead_s=0.0, hiding=1e3, round_s=0.0)


def step_s(load: Load, fit: Fit) -> float:
    """Seconds of a step of all workers; of asynchronous ones, of as many steps as workers."""
    if isinstance(load, DealtLoad):
        return load.num_workers / float(worker_rates(load, fit).sum())
    return _together_s(load, fit)


def _together_s(load: TogetherLoad, fit: Fit) -> float:
    largest = largest_of(load.num_workers)
    slowest = load.crowd * (1.0 + load.spread * largest)
    carried_s = fit.stretch * load.network_s + load.rounds * fit.round_s
    sent_s = carried_s * (1.0 + load.link_spread * largest)
    exposed_s = float(_exposed(load, load.backward_s * slowest, sent_s, fit))
    computed_s = load.busy * load.crowd * load.backward_s
    exchanged_s = computed_s + float(joined(exposed_s - computed_s, load.messages_s, BOTH))
    return load.sends * fit.overhead_s + load.forward_s * slowest + exchanged_s


def _exposed(load: Load, backward_s: npt.ArrayLike, sent_s: npt.ArrayLike, fit: Fit) -> Floats:
    """Backward pass and exchange together, elementwise."""
    one, both = load.message, joined(backward_s, sent_s, fit.hiding)
    alone = np.asarray(backward_s) + load.ways * np.asarray(sent_s)
    return np.asarray(one * alone + (1.0 - one) * both)


def worker_rates(load: DealtLoad, fit: Fit) -> Floats:
    """Steps per second of each worker [workers]."""
    num_workers = load.num_workers
    demands = fit.stretch * load.links_s
    queues, uses = np.zeros(demands.shape[1]), np.zeros(demands.shape[1])
    rates = np.zeros(num_workers)
    for present in range(1, num_workers + 1):
        responses = demands * (1.0 + queues - uses / 2)
        waits = responses.max(axis=1, initial=0.0)
        exposed = _exposed(load, load.backward_s, waits, fit)
        rates = present / num_workers / (fit.overhead_s + load.forward_s + exposed)
        if load.even:
            rates = np.full(num_workers, rates.min())
        rates = _within(rates, demands)
        if load.processors_s.size:
            rates = _within(rates, load.processors_s, BOTH)
        queues = np.minimum((rates[:, None] * responses).sum(axis=0), present)
        uses = (rates[:, None] * demands).sum(axis=0)
    return rates


def _within(rates: Floats, demands: Floats, sharpness: float = np.inf) -> Floats:
    """The rates with which no station is used all the time or more, by those who use it.

    Args:
        demands: seconds that a step of each worker keeps each station busy [workers, stations].
        sharpness: exponent with which use and its limit are joined.
    """
    uses = rates @ demands
    factors = np.maximum(1.0, uses)
    if np.isfinite(sharpness):
        factors = (1.0 + uses**sharpness) ** (1.0 / sharpness)
    made: Floats = rates / np.where(demands > 0.0, factors, 1.0).max(axis=1, initial=1.0)
    return made


def joined(first: npt.ArrayLike, second: npt.ArrayLike, exponent: float) -> Floats:
    """Two times that overlap in part: (x^g + y^g)^(1/g), their sum for g = 1, elementwise."""
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    shares = np.divide(smaller, larger, out=np.zeros_like(larger), where=larger > 0.0)
    made: Floats = larger * (1.0 + shares**exponent) ** (1.0 / exponent)
    return made


@cache
def largest_of(count: int) -> float:
    """z_n: the mean of the largest of n draws of a standard normal distribution."""
    if count == 1:
        return 0.0
    # It takes long to import, and most reports predict nothing.
    from scipy.stats import norm

    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    return float(norm.ppf(shares ** (1.0 / count)).mean())


def ring_load(
    num_workers: int, step_s: float, network_s: float, *, spread: float = 0.0
) -> TogetherLoad:
    """All-reduce around a ring, of workers of which no more is known than a step alone.

    All of the step may overlap.  Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009.

    Args:
        network_s: in which a link carries the gradients once.
    """
    return TogetherLoad(
        num_workers=num_workers,
        forward_s=0.0,
        backward_s=step_s,
        network_s=2.0 * (num_workers - 1) / num_workers * network_s,
        rounds=ring_rounds(num_workers),
        spread=spread,
        link_spread=spread,
        sends=num_workers > 1,
    )


def ring_rounds(num_workers: int) -> int:
    """Messages around a ring that follow each other: a sum comes round, then goes round."""
    return 2 * (num_workers - 1)


def shared_load(num_workers: int, alone_s: float, shares_s: Sequence[float]) -> DealtLoad:
    """Asynchronous workers that are all alike.

    Args:
        alone_s: a step of a lone worker but for the services below.
        shares_s: in which a step keeps each station busy that all share.
    """
    return DealtLoad(
        forward_s=np.full(num_workers, alone_s),
        backward_s=np.zeros(num_workers),
        links_s=np.tile(np.array(shares_s, dtype=np.float64), (num_workers, 1)),
        processors_s=np.zeros((num_workers, 0)),
    )
