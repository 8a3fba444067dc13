"""What `report.html` shows of more hosts, and all that its script needs to go on from there.  Pure.

Decides which settings are shown (synchronous ones whose hosts are alike, with a worker on each),
where sliders stand and stop, and what the pictures hold.  Beyond eight times the workers that were
measured there are bounds only, here as in `predictions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.predict.calibration import same_batch, with_servers
from analysis.predict.fitting import NOISE, SIDE
from analysis.predict.models import BOTH, PERFECT, Fit, largest_of
from analysis.predict.planned_loads import payload
from analysis.predict.predictions import FURTHEST, UNTESTED, Ahead, Teller
from analysis.predict.symmetric import Symmetric, extremes, symmetric
from ps_allreduce.errors import UserError
from ps_allreduce.serialization import to_json

#: Workers, each on a host, and servers, at which sliders stop.
STOPS = tuple(sorted({*(2**n for n in range(11)), *(3 * 2**n for n in range(9))}))

#: Bits per second.
BANDWIDTHS = tuple(digit * 10.0**power for power in range(7, 11) for digit in (1, 2, 5))

#: Share of the rate with the best number of servers from which fewer are as good.
_ENOUGH = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Slid:
    """A setting under the sliders.

    Attributes:
        held: bytes of the servers that hold most and least, by their number.
        share: payload of plain TCP over the rate of a link.
    """

    name: str
    teller: Teller
    form: Symmetric
    held: Mapping[int, tuple[int, int]]
    share: float

    def ahead(self, workers: int, servers: int, bits_per_s: float, batch: int) -> Ahead:
        """What it would do.

        Args:
            servers: one of `held`; 0 without servers.
            batch: examples of a worker's step.
        """
        most, least = self.held.get(servers, (0, 0))
        held = (most, least if servers >= workers else 0)
        rate = bits_per_s * self.share / 8
        load = self.form.load(workers, held, rate, batch)
        bare = replace(self.form, cpu_s=0.0).load(workers, held, rate, batch)
        return self.teller.ahead(load, bare, workers * batch)

    def all_servers(self, workers: int, bits_per_s: float, batch: int) -> dict[int, Ahead]:
        """By the number of servers, each beside a worker; by 0 without servers."""
        counts = [each for each in self.held if each <= workers] or [0]
        return {each: self.ahead(workers, each, bits_per_s, batch) for each in counts}

    def best(self, workers: int, bits_per_s: float, batch: int) -> Ahead:
        """The fastest of these."""
        found = self.all_servers(workers, bits_per_s, batch).values()
        return max(found, key=lambda each: each.expected)

    def alone(self, batch: int) -> float:
        """Examples per second of a worker that sends nothing."""
        form = self.form
        each_s = form.forward_each_s + form.backward_each_s
        return batch / (form.forward_s + form.backward_s + batch * each_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliders:
    """Settings and where sliders begin: at what was measured.

    Attributes:
        bits_per_s: of a link.
        batch: examples of a worker's step.
        unit: what is counted, in words: of text whole examples.
    """

    settings: tuple[Slid, ...]
    bits_per_s: float
    batch: int
    unit: str

    @property
    def calibrated(self) -> int:
        """The most workers that were measured."""
        return max(each.teller.calibrated for each in self.settings)

    @property
    def batches(self) -> tuple[int, ...]:
        """At which the slider stops; one where the time of a step was stated."""
        if not any(each.form.backward_each_s or each.form.forward_each_s for each in self.settings):
            return (self.batch,)
        return tuple(sorted({max(1, round(self.batch * 2.0**power)) for power in range(-3, 5)}))

    @property
    def bandwidths(self) -> tuple[float, ...]:
        """At which the slider stops, in bits per second."""
        return tuple(sorted({*BANDWIDTHS, self.bits_per_s}))

    def to_page(self) -> dict[str, Any]:
        """What the script needs, as JSON values."""
        return {
            "unit": self.unit,
            "workers": STOPS,
            "largest": [largest_of(each) for each in STOPS],
            "bandwidths": self.bandwidths,
            "batches": self.batches,
            "begin": [self.calibrated, self.bits_per_s, self.batch],
            "rule": {
                "noise": NOISE,
                "side": SIDE,
                "untested": UNTESTED,
                "furthest": FURTHEST,
                "both": BOTH,
                "perfect": _numbers(PERFECT),
            },
            "settings": [_setting(each) for each in self.settings],
        }


def fastest(shown: Sliders) -> pd.DataFrame:
    """Which setting is fastest, for each number of workers and each rate of links.

    Columns: workers, bits_per_s, setting; the setting is empty where intervals of several overlap.
    """
    return pd.DataFrame(
        {
            "workers": workers,
            "bits_per_s": bits_per_s,
            "setting": _fastest(shown, workers, bits_per_s),
        }
        for workers in STOPS
        if 1 < workers <= FURTHEST * min(each.teller.calibrated for each in shown.settings)
        for bits_per_s in BANDWIDTHS
    )


def _fastest(shown: Sliders, workers: int, bits_per_s: float) -> str:
    rows = [(each.best(workers, bits_per_s, shown.batch), each.name) for each in shown.settings]
    rows.sort(key=lambda row: -(row[0].rate or 0.0))
    (best, name), others = rows[0], rows[1:]
    is_clear = all((best.low or 0.0) > (other.high or 0.0) for other, _ in others)
    return name if is_clear else ""


def servers_needed(shown: Sliders) -> pd.DataFrame:
    """Servers with which a setting has 95 % of what it has with the best number, on its own links.

    Columns: workers, setting, servers, is_bound (so far out that bounds are compared).
    """
    rows = []
    for own in (each for each in shown.settings if each.held):
        for workers in STOPS[1:]:
            found = own.all_servers(workers, shown.bits_per_s, shown.batch)
            wanted = _ENOUGH * max(made.expected for made in found.values())
            needed = min(count for count, made in found.items() if made.expected >= wanted)
            rows.append((workers, own.name, needed, found[needed].rate is None))
    return pd.DataFrame(rows, columns=["workers", "setting", "servers", "is_bound"])


def efficiencies(shown: Sliders) -> pd.DataFrame:
    """Rate over that of as many workers that send nothing, with the best number of servers.

    Columns: workers, setting, efficiency, low, high (each missing far out), at_most.
    """
    rows = []
    for own in shown.settings:
        for workers in STOPS:
            found = own.all_servers(workers, shown.bits_per_s, shown.batch).values()
            made = own.best(workers, shown.bits_per_s, shown.batch)
            ideal = workers * own.alone(shown.batch)
            shares = [rate and rate / ideal for rate in (made.rate, made.low, made.high)]
            rows.append((workers, own.name, *shares, max(each.bound for each in found) / ideal))
    names = ["workers", "setting", "efficiency", "low", "high", "at_most"]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[2:], float))


def _setting(own: Slid) -> dict[str, Any]:
    learned = own.teller.learned
    return {
        "name": own.name,
        "form": to_json(own.form),
        "held": [[count, *held] for count, held in own.held.items()],
        "fits": [_numbers(each) for each in (learned.best, *learned.drawn)],
        "missed": own.teller.missed,
        "calibrated": own.teller.calibrated,
        "share": own.share,
    }


def _numbers(made: Fit) -> list[float]:
    return [made.stretch, made.overhead_s, made.hiding, made.round_s]


def sliders(tellers: Sequence[Teller]) -> Sliders | None:
    """Of the settings that can be shown; None where there is none, or their links have no rate."""
    by_name: dict[str, Slid] = {}
    for teller in sorted(tellers, key=lambda each: each.calibrated):
        if (made := _slid(teller)) is not None:
            by_name[made.name] = made
    shown = sorted(by_name.values(), key=lambda each: each.form.has_servers)
    if not shown:
        return None
    own = shown[0].teller.largest
    bits_per_s = 8 * payload(own, same_batch(shown[0].teller.clusters, own)) / shown[0].share
    if not bits_per_s < float("inf"):
        return None
    return Sliders(
        settings=tuple(shown),
        bits_per_s=bits_per_s,
        batch=own.of_each.examples_per_step,
        unit=own.workload.unit.counted,
    )


def _slid(teller: Teller) -> Slid | None:
    own = teller.largest
    cluster = same_batch(teller.clusters, own)
    form = symmetric(own, teller.sent, cluster, teller.cpu_s_per_byte)
    if form is None or form.apart:
        return None
    network = own.network
    share = cluster.link_share if network is not None else None
    servers = own.strategy.servers
    name = f"{own.strategy.kind}, {servers.placement}" if servers else own.strategy.kind
    held = dict(_held(teller))
    return Slid(name=name, teller=teller, form=form, held=held, share=share or 1.0)


def _held(teller: Teller) -> Iterator[tuple[int, tuple[int, int]]]:
    own = teller.largest
    if not own.strategy.uses_servers:
        return
    for count in STOPS:
        try:
            placed = teller.sent.placed(replace(own, strategy=with_servers(own.strategy, count)))
        except UserError:  # there are not so many variables, or parts of them
            return
        yield count, extremes(placed, count)
