"""Find the rate of links up to which emulated hosts can be trusted on this machine.

Axes: rates of links, halved one to three times while durations of computation, delays and TCP's
least timeout are doubled.  And at the whole rate all strategies that communicate, on two hosts and
on all, with gradients of three sizes.

Method: all-reduce on all hosts, and synchronous servers with one host for the server.  A network at
half the rate with computation of twice the duration must make every step take exactly twice as
long; where it does not, the machine's processors were part of the result.  Messages and buffers
keep their bytes.  And no port may lose packets: steps would tell how long TCP waits for them.  The
idea is time dilation, as in Gupta et al., To Infinity and Beyond: Time-Warped Network Emulation,
NSDI 2006.  Every launch at one rate has one at half the rate; those of the first two rates are made
in an order that mixes them.  The next rate is tried only where the last two do not agree.  Before
that, workers that only communicate send all gradients at once, with a server beside every worker,
and what ports lose is counted; plain TCP sends from one host to another, and from all others to
one.

Cost: 30 points with one launch each, 4 with three, and 2 more for every further rate.

It should show from which rate on the processors of this machine are part of a result, and that
ports lose no packet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd

from analysis.data.blocks import analysed
from analysis.data.cases import Point, cases_of
from analysis.data.load import read_sweep
from analysis.wording import NONE, count_text
from experiments import surroundings
from experiments.cli.requests import StudyRequest, SweepRequest
from experiments.cli.sweep_command import run_study
from experiments.studies.scope import Scope
from experiments.studies.study import Study
from experiments.studies.wire_study import FEW, LARGE, SMALL, sending_point
from experiments.sweep.sweep import Profile
from launchers.settings import LauncherSettings
from launchers.sites.kinds import SITES, network_of, site_kind
from ps_allreduce.errors import UserError, at_least
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.network import render_rate
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import STRATEGIES, AllReduce, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.files import write_json
from ps_allreduce.terminal import echo

EMULATION_CHECK = "emulation-check"

SCALES = (1, 2, 4, 8)

#: Of gradients, in bytes.
SIZES = (SMALL // 10, SMALL, LARGE)

#: Computes about as long as this model's gradients take at 1 Gbit/s, so that both parts matter.
WORKLOAD = Workload(
    model=ImageModel(name="MobileNetV2", image_size=64),
    batch_per_worker=4,
    emulated=EmulatedCompute(forward_s=0.04, backward_s=0.08),
)

PROFILE = Profile(
    name=EMULATION_CHECK,
    measurement=Measurement(warmup=FixedWarmup(least_steps=3, least_s=1.0), measured_steps=12),
    deadline_s=300.0,
)


def _bursts(scope: Scope) -> Iterator[Experiment]:
    """Every strategy that communicates; equal tensors are as many bytes on every server."""
    hosts = max(scope.scale.workers)
    for workers, size in product(sorted({2, hosts}), SIZES):
        servers = StrategySettings(num_ps=workers, layout=LayoutKind.COLOCATED)
        model = TensorSet(count=FEW, num_bytes=size)
        for strategy in STRATEGIES.values():
            able = strategy.module is None and not strategy().is_sparse
            if strategy.communicates() and able:
                yield sending_point(scope, strategy, workers, model, servers)


def _points(most: int, scope: Scope) -> list[Experiment]:
    """Those at all scales up to the largest."""
    (hosts,) = scope.scale.workers
    server = StrategySettings(num_ps=1, layout=LayoutKind.DEDICATED)
    whole = (
        scope.point(WORKLOAD, AllReduce, hosts),
        scope.point(WORKLOAD, SynchronousServers, hosts - 1, server),
    )
    scales = [scale for scale in SCALES if scale <= most]
    return [slow for scale in scales for point in whole if (slow := slowed_down(point, scale))]


def check_emulation(launcher: LauncherSettings, repetitions: int) -> int:
    """Slow time down until every strategy agrees with itself, or eight-fold; show what was found.

    Runs that are there already count.

    Returns:
        The exit status.

    Raises:
        UserError: the network has no rate to be halved, or too few hosts.
    """
    if site_kind(launcher.launcher).network is None:
        emulating = ", ".join(name for name, kind in SITES.items() if kind.network is not None)
        raise UserError(
            f"{EMULATION_CHECK} is for the launcher {emulating}, and this is {launcher.launcher}."
        )
    at_least(1, repetitions=repetitions)
    network = network_of(launcher)
    if network is None or network.bits_per_s is None or network.num_hosts < 2:
        raise UserError("the emulation is checked with --bandwidth and 2 or more --hosts.")
    if status := _run(launcher, network.num_hosts, _bursts, 1):
        return status
    plain = _plain_tcp(launcher, network.bits_per_s)
    for scale in SCALES[1:]:
        if status := _run(launcher, network.num_hosts, partial(_points, scale), repetitions):
            return status
        table = check_envelope(launcher.results, plain)
        is_last = table["bits_per_s"] == network.bits_per_s * 2 / scale
        judged = table[is_last & (table["num_hosts"] == network.num_hosts) & table["holds"].notna()]
        if judged["holds"].all():
            break
    echo("\n".join(render_envelope(table)))
    return 0


def _plain_tcp(launcher: LauncherSettings, bits_per_s: float) -> list[dict[str, object]]:
    """What streams of one host to another, and of all others to one, make of the rate."""
    return [
        {
            "strategy": PLAIN_TCP,
            "num_hosts": flows.senders + 1,
            "bits_per_s": bits_per_s,
            "reached": flows.bits_per_s / bits_per_s,
            "port_drops": flows.dropped,
            "num_pairs": 0,
        }
        for flows in surroundings.flows_of(launcher)
    ]


def _run(
    launcher: LauncherSettings,
    hosts: int,
    points: Callable[[Scope], Iterable[Experiment]],
    repetitions: int,
) -> int:
    """Make those launches that are missing; return the exit status."""
    sweep = SweepRequest(
        profile=PROFILE, workers=(hosts,), cores_per_worker=1, repetitions=repetitions
    )
    study = Study(about=__doc__, points=points, looks_first=False)
    return run_study(
        StudyRequest(name=EMULATION_CHECK, study=study, launcher=launcher, sweep=sweep)
    )


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


def check_envelope(results: Path, plain: Sequence[Mapping[str, object]] = ()) -> pd.DataFrame:
    """Judge all points of the check below a folder, and write `envelope.json` beside them.

    Args:
        plain: rows of plain TCP, to stand beside training.

    Raises:
        UserError: there are no two scales to compare, or a file cannot be read or written.
    """
    folder = results / EMULATION_CHECK
    cases = cases_of(analysed(read_sweep(folder)))
    envelope = _envelope_of([point for case in cases for point in case.points], plain)
    if envelope["ratio"].isna().all():
        raise UserError(f"{folder} holds no two scales of a point that both ended well.")
    content = json.loads(envelope.to_json(orient="records", double_precision=15))
    write_json(folder / "envelope.json", content)
    return envelope


def _envelope_of(points: Sequence[Point], plain: Sequence[Mapping[str, object]]) -> pd.DataFrame:
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
    rows = [
        *plain,
        *(
            _row(point) | _agreement(point, there.get(slowed_down(point.experiment, 2)))
            for point in there.values()
        ),
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
        yield f"emulation cannot be trusted at {slowest} or above on this machine"


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
