"""How far emulated hosts can be trusted on a machine: the sweep `emulation-check`.

A network at half the rate with computation of twice the duration must make every step take exactly
twice as long; where it does not, the machine's processors were part of the result.  Decides which
points are one another's half, and when two scales agree.  The idea is time dilation, as in Gupta
et al., To Infinity and Beyond: Time-Warped Network Emulation, NSDI 2006.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pandas as pd

from analysis.data.blocks import analysed
from analysis.data.cases import Point, make_cases
from analysis.data.load import read_sweep
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import render_rate
from ps_allreduce.record.files import write_json

EMULATION_CHECK = "emulation-check"

TOLERANCE = 0.03

_STEP = "step_time_p50_s"


def check_envelope(results: Path) -> pd.DataFrame:
    """Compare the scales of the check below a folder, and write `envelope.json` beside them.

    Raises:
        UserError: there are no two scales to compare, or a file cannot be read or written.
    """
    folder = results / EMULATION_CHECK
    sweep = analysed(read_sweep(folder))
    cases = make_cases(sweep.block.table, sweep.files.records)
    agreements = agreements_of([point for case in cases for point in case.points])
    if agreements.empty:
        raise UserError(f"{folder} holds no two scales of a point that both ended well.")
    content = json.loads(agreements.to_json(orient="records", double_precision=15))
    write_json(folder / "envelope.json", content)
    return agreements


def agreements_of(points: Sequence[Point]) -> pd.DataFrame:
    """Every point that there is at half the rate as well, by strategy and hosts, fastest first.

    Columns:
        strategy, num_hosts, bits_per_s (of the faster links).
        ratio: step time at half the rate over twice that at the whole one; 1 is perfect.
        low, high: smallest and largest ratio of the launches' pairs, num_pairs their number.
        holds: the two agree.
    """
    rows = [
        row
        for whole, half in permutations(points, 2)
        if slowed_down(whole.experiment, 2) == half.experiment
        for row in _agreement(whole, half)
    ]
    if not rows:
        return pd.DataFrame()
    return pd.DataFrame(rows).sort_values(
        ["strategy", "num_hosts", "bits_per_s"], ascending=[True, True, False], ignore_index=True
    )


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


def _agreement(whole: Point, half: Point) -> Iterator[dict[str, object]]:
    """Nothing without a turn or a repetition that both scales completed."""
    ratios = _ratios(whole, half)
    network = whole.experiment.network
    if len(ratios) and network is not None:
        yield {
            "strategy": whole.setting.strategy,
            "num_hosts": network.num_hosts,
            "bits_per_s": network.bits_per_s,
            "ratio": ratios.median(),
            "low": ratios.min(),
            "high": ratios.max(),
            "num_pairs": len(ratios),
            "holds": bool(abs(ratios.median() - 1) <= TOLERANCE),
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


def render_agreements(agreements: pd.DataFrame) -> list[str]:
    """A table, and the envelope in a sentence per strategy and number of hosts."""
    rates = agreements["bits_per_s"].map(render_rate)
    names = {"num_hosts": "hosts", "bits_per_s": "rate", "num_pairs": "pairs"}
    shown = agreements.drop(columns="holds").assign(bits_per_s=rates).rename(columns=names)
    return [
        *shown.to_string(index=False, float_format="{:.3f}".format).splitlines(),
        *(
            f"{strategy}, {hosts} hosts: {_envelope(rows)}"
            for (strategy, hosts), rows in agreements.groupby(["strategy", "num_hosts"])
        ),
    ]


def _envelope(agreements: pd.DataFrame) -> str:
    good = agreements[agreements["holds"]]["bits_per_s"]
    if len(good):
        return (
            f"emulation can be trusted within {TOLERANCE:.0%} up to {render_rate(good.max())} on "
            "this machine"
        )
    slowest = render_rate(agreements["bits_per_s"].min())
    return (
        f"emulation cannot be trusted at {slowest} or above on this machine: its processors are "
        "the limit"
    )
