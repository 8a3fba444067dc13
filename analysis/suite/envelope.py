"""How far emulated hosts can be trusted on a machine: the sweep `emulation-check`.

A network at half the rate with computation of twice the duration must make every step take exactly
twice as long; where it does not, the machine's processors were part of the result.  Everything that
waits is stretched alike: computation, delays, and the least timeout of TCP.  Messages and buffers
keep their bytes.  And no port may lose packets: steps would tell how long TCP waits for them.

Decides which points are one another's half, when two scales agree, and what is said of both.  The
idea is time dilation, as in Gupta et al., To Infinity and Beyond: Time-Warped Network Emulation,
NSDI 2006.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from analysis.data.blocks import analysed
from analysis.data.cases import Point, make_cases
from analysis.data.load import read_sweep
from analysis.suite.json_lines import read_lines
from analysis.wording import NONE, count_text
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.network import render_rate
from ps_allreduce.record.files import write_json

EMULATION_CHECK = "emulation-check"

#: In the place of a strategy.
PLAIN_TCP = "plain TCP"

TOLERANCE = 0.03

_STEP = "step_time_p50_s"

_AGREEMENT = ("ratio", "low", "high", "num_pairs", "holds")

#: Columns of the screen: heading, column of the table, what it is divided by, digits.
_SHOWN = (
    *(("hosts", "num_hosts", 1, 0), ("MB", "gradient_bytes", 1e6, 1), ("ratio", "ratio", 1, 3)),
    *(("low", "low", 1, 3), ("high", "high", 1, 3), ("pairs", "num_pairs", 1, 0)),
    *(("TCP", "reached", 1, 3), ("lost", "port_drops", 1, 0)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTcp:
    """Streams of all but one of some hosts to that one.

    Attributes:
        bits_per_s: rate of the links.
        reached: payload per second over that rate.
        port_drops: packets that the port towards the one lost.
    """

    num_hosts: int
    bits_per_s: float
    reached: float
    port_drops: int


def plain_tcp_path(results: Path) -> Path:
    """A `PlainTcp` on every line, for `check_envelope` to show beside training."""
    return results / EMULATION_CHECK / "plain_tcp.jsonl"


def check_envelope(results: Path) -> pd.DataFrame:
    """Judge all points of the check below a folder, and write `envelope.json` beside them.

    Raises:
        UserError: there are no two scales to compare, or a file cannot be read or written.
    """
    folder = results / EMULATION_CHECK
    sweep = analysed(read_sweep(folder))
    cases = make_cases(sweep.block.table, sweep.files.records)
    plain = read_lines(plain_tcp_path(results), PlainTcp)
    envelope = envelope_of([point for case in cases for point in case.points], plain)
    if envelope["ratio"].isna().all():
        raise UserError(f"{folder} holds no two scales of a point that both ended well.")
    content = json.loads(envelope.to_json(orient="records", double_precision=15))
    write_json(folder / "envelope.json", content)
    return envelope


def envelope_of(points: Sequence[Point], plain: Sequence[PlainTcp] = ()) -> pd.DataFrame:
    """Every point that ended well, by strategy, hosts and bytes, fastest first.

    Columns:
        strategy (or plain TCP), num_hosts, gradient_bytes, bits_per_s (of the links).
        reached: payload of plain TCP over that rate; in launches of one stream on each link and
            direction, right before them.
        port_drops: packets that ports lost in all its launches; unknown if one does not tell.
        ratio: step time at half the rate over twice that at the whole one; 1 is perfect.  Unknown
            where the point is not there at half the rate.
        low, high: smallest and largest ratio of the launches' pairs, num_pairs their number.
        holds: the two agree.
    """
    there: dict[Experiment | None, Point] = {
        point.experiment: point for point in points if len(point.launches)
    }
    rows = [{"strategy": PLAIN_TCP} | asdict(each) | {"num_pairs": 0} for each in plain]
    rows += [
        _row(point) | _agreement(point, there.get(slowed_down(point.experiment, 2)))
        for point in there.values()
    ]
    order = ["strategy", "num_hosts", "gradient_bytes", "bits_per_s"]
    table = pd.DataFrame(rows, columns=[*order, "reached", "port_drops", *_AGREEMENT])
    return table.sort_values(order, ascending=[True, True, True, False], ignore_index=True)


def slowed_down(experiment: Experiment, scale: int) -> Experiment | None:
    """The same point with time stretched; None where it cannot be slowed down.

    Args:
        scale: by which rates are divided and durations multiplied.
    """
    network, compute = experiment.network, experiment.workload.emulated
    if network is None or compute is None:
        return None
    slower = replace(
        compute, forward_s=scale * compute.forward_s, backward_s=scale * compute.backward_s
    )
    workload = replace(experiment.workload, emulated=slower)
    return replace(experiment, network=network.scaled(1 / scale), workload=workload)


def _row(point: Point) -> dict[str, object]:
    """What was trained where, and what ports lost meanwhile."""
    network, lost = point.experiment.network, point.launches["port_drops"]
    rate = None if network is None else network.bits_per_s
    return {
        "strategy": point.setting.strategy,
        "num_hosts": num_hosts(point.experiment),
        "gradient_bytes": point.common("gradient_bytes"),
        "bits_per_s": rate,
        "reached": point.known("link_bits_per_s").median() / rate if rate else None,
        "port_drops": None if lost.isna().any() else int(lost.sum()),
    }


def _agreement(whole: Point, half: Point | None) -> dict[str, object]:
    """Unknown without a turn or a repetition that both scales completed."""
    ratios = _ratios(whole, half) if half else pd.Series(dtype=float)
    middle = ratios.median()
    return {
        "ratio": middle,
        "low": ratios.min(),
        "high": ratios.max(),
        "num_pairs": len(ratios),
        "holds": bool(abs(middle - 1) <= TOLERANCE) if len(ratios) else None,
    }


def _ratios(whole: Point, half: Point) -> pd.Series:
    """Of launches that were made in turn; of equal repetitions where none were.

    The third rate and those after it are tried when the others have ended, in turn with none.
    """
    by_turn = half.known(_STEP) / (2 * whole.known(_STEP))
    if by_turn.notna().any():
        return by_turn.dropna()
    slow, fast = (point.launches.set_index("repetition")[_STEP] for point in (half, whole))
    return (slow / (2 * fast)).dropna().astype(float)


def render_envelope(envelope: pd.DataFrame) -> list[str]:
    """A table; then per strategy and number of hosts how far it is trusted, and what was lost."""
    shown = pd.DataFrame({"strategy": envelope["strategy"]})
    for heading, column, size, digits in _SHOWN:
        values = envelope[column].astype(float) / size
        shown[heading] = [NONE if pd.isna(value) else f"{value:.{digits}f}" for value in values]
    shown.insert(3, "rate", envelope["bits_per_s"].map(render_rate))
    return [
        *shown.to_string(index=False).splitlines(),
        *(
            f"{strategy}, {hosts} hosts: {'; '.join([*_trusted(rows), *_lost(rows)])}"
            for (strategy, hosts), rows in envelope.groupby(["strategy", "num_hosts"])
        ),
    ]


def _trusted(rows: pd.DataFrame) -> Iterator[str]:
    """Up to which rate all time scales agree; nothing where there are no two."""
    judged = rows[rows["holds"].notna()]
    holds, rates = judged["holds"].astype(bool), judged["bits_per_s"]
    good = rates[~(rates >= rates[~holds].min())]
    if len(good):
        yield (
            f"emulation can be trusted within {TOLERANCE:.0%} up to {render_rate(good.max())} on "
            "this machine"
        )
    elif len(judged):
        slowest = render_rate(rates.min())
        yield (
            f"emulation cannot be trusted at {slowest} or above on this machine: its processors "
            "are the limit"
        )


def _lost(rows: pd.DataFrame) -> Iterator[str]:
    """What ports lost with which bytes at which rate; in one clause where they lost nothing."""
    known = rows[rows["port_drops"].notna()]
    for _, row in known[known["port_drops"] > 0].iterrows():
        packets = count_text(int(row["port_drops"]), "packet")
        yield f"ports lost {packets}{_sized([row['gradient_bytes']])}{_at(row['bits_per_s'])}"
    if len(known) and not known["port_drops"].any():
        rate = _at(known["bits_per_s"].max())
        yield f"ports lost no packet{_sized(known['gradient_bytes'])}{rate}"


def _sized(sizes: Sequence[float] | pd.Series) -> str:
    """` with 2.5 to 100 MB of gradients`; nothing for plain TCP."""
    ends = [each for each in (min(sizes), max(sizes)) if pd.notna(each)]
    span = " to ".join(dict.fromkeys(f"{each / 1e6:.3g}" for each in ends))
    return f" with {span} MB of gradients" if span else ""


def _at(bits_per_s: float) -> str:
    return f" at {render_rate(bits_per_s)}"
