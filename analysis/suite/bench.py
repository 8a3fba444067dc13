"""What the suite itself costs, from the sweeps below `bench`: `bench.json` and its tables.

Decides which runs count (of each launcher and network those of its newest block), what overhead is,
what may be asked of it, and that numbers of other launchers and networks stay in the file.  A file
that cannot be read is never overwritten.  How long reading takes is timed in `loading`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data.blocks import analysed
from analysis.data.load import SweepFiles, read_sweep
from analysis.stats.statistics import compare, estimate
from analysis.suite.rule.self_comparisons import FILE, add_to, compared_in, render_self_comparisons
from analysis.suite.rule.self_test import PLANTED, render_self_test
from analysis.suite.rule.spreads import measured_spreads
from analysis.suite.targets import no_less_than, target_text, up_to
from analysis.suite.wire_targets import wire_table
from analysis.suite.wire_text import render_wire
from analysis.wording import count_text
from ps_allreduce.errors import UserError
from ps_allreduce.point.measurement import FixedWarmup, SteadyWarmup, WarmupEnd
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.files import read_json, write_json
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.serialization import to_json

#: The sweeps of a bench, by the names of their folders.
RECORDING, OVERHEAD, WIRE, STANDARD_SWEEP = "recording", "overhead", "wire", "standard"
WARMUP, PLANTED_SWEEP = "warmup", "planted"

#: What a run costs besides its steps; an entry of `bench.json` each, and how it is told.
_COSTS = {
    "bring_up_s": "bring-up of four tasks",
    "launch_s": "all but building and steps",
    "overhead_per_run_s": "all but warm-up and measured steps",
}

#: What some of it may cost at most, by launcher: where, and seconds.
_LAUNCH_TARGETS = {
    "local": {"bring_up_s": ("", 3.0)},
    "slurm": {"launch_s": (" on whole nodes", 1.5)},
}

#: What the clock from outside may show, as a share of what steps note themselves.
_CLOCKS = (0.99, 1.01)

#: Why targets may not be met, as far as it is known.
_WHY_WARMUP = "launches differ by more, docs/decisions/0014-when-a-warm-up-is-over.md"
_WHY_RECORDING = "two traces of one step differ by 2 %, docs/performance.md"
_WHY_CLOCKS = "starting and fetching count as well, which others on the machine make longer"

#: What has an entry for each launcher.
_BY_LAUNCHER = (
    *("provenance", "bring_up_s", "bring_up_s_all", "launch_s", "launch_s_all"),
    *("overhead_per_run_s", "overhead_per_run_s_all"),
)

#: What `bench.json` holds.
Content = dict[str, Any]


def summarise_bench(results: Path) -> list[str]:
    """Write `bench/bench.json` from the sweeps beside it; lines for the screen.

    Raises:
        UserError: there is no sweep of a bench, or the file cannot be read or written.
    """
    folder = results / "bench"
    sweeps = {name: folder / name for name in _PARTS if (folder / name / "runs").is_dir()}
    if not sweeps:
        raise UserError(f"{folder} holds no sweep of a bench: run make bench first.")
    content = read_bench(folder / "bench.json")
    lines = [line for name, path in sweeps.items() for line in _sweep(name, path, content)]
    lines += _statistics(results, content)
    write_json(folder / "bench.json", content)
    return [*lines, str(folder / "bench.json")]


def _statistics(results: Path, content: Content) -> Iterator[str]:
    """Whether the rule of decision keeps its promise with the spread of the sweeps beside."""
    planted = results / "bench" / PLANTED_SWEEP
    emulated = measured_spreads(planted) if (planted / "runs").is_dir() else None
    spreads = measured_spreads(results) or emulated
    if spreads is None:
        yield f"no self-test: {results} holds no sweep with three launches of two points"
    else:
        yield from render_self_test(spreads, emulated or spreads, content)
    yield render_self_comparisons(add_to(results / FILE, compared_in(planted)), content)


def read_bench(path: Path) -> Content:
    """What earlier benchmarks left; nothing if there are none.

    Raises:
        UserError: it cannot be read, so that writing would lose it.
    """
    try:
        content = read_json(path)
        if isinstance(content, dict) and _is_of_a_bench(content):
            return content
        reason = "not what a bench writes"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = str(error)
    raise UserError(
        f"{path} cannot be read ({reason}) and is left as it is; the runs are recorded beside it. "
        "Move it away, and the same command writes a new one from them."
    )


def _is_of_a_bench(content: Content) -> bool:
    """What a bench adds to has the form that it adds."""
    rows = content.get("wire", [])
    return (
        all(isinstance(content.get(name, {}), dict) for name in (*_BY_LAUNCHER, WARMUP))
        and isinstance(rows, list)
        and all(isinstance(row, dict) and "network" in row for row in rows)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BenchRuns:
    """The runs of a launcher on a network that count: of the newest block.

    Attributes:
        last: the last attempt at each repetition.
        records: by the index of that table.
    """

    launcher: str
    last: pd.DataFrame
    records: Mapping[str, RunRecord]

    @property
    def good(self) -> pd.DataFrame:
        """Those that ended well."""
        return self.last[self.last["status"] == Status.OK]


def newest_runs(files: SweepFiles) -> Iterator[BenchRuns]:
    """Those of every launcher and network in a sweep."""
    for (launcher, *_), runs in files.table.groupby(
        ["launcher", "network", "network_hosts"], dropna=False
    ):
        newest = runs["fingerprint"].iloc[int(runs["started_at"].argmax())]
        block = runs[runs["fingerprint"] == newest].sort_values(["repetition", "attempt"])
        last = block.drop_duplicates(["experiment_id", "repetition"], keep="last")
        yield BenchRuns(launcher=str(launcher), last=last, records=files.records)


def _sweep(name: str, path: Path, content: Content) -> Iterator[str]:
    """What one sweep came to."""
    files = read_sweep(path)
    for item in files.damaged:
        yield f"{name}: not read: {item.path}: {item.reason}"
    for runs in newest_runs(files):
        if bad := len(runs.last) - len(runs.good):
            reasons = runs.last["reason"][runs.last["status"] != Status.OK]
            yield f"{name}: {bad} of {len(runs.last)} runs did not end well: {reasons.iloc[0]}"
        if len(runs.good):
            yield from _PARTS[name](runs, content)
            newest = runs.records[str(runs.last["started_at"].idxmax())]
            content.setdefault("provenance", {})[runs.launcher] = to_json(newest.provenance)
    if missing := analysed(files).missing:
        yield f"{name}: {len(missing)} runs are missing; the same command makes them"


def _recording(runs: BenchRuns, content: Content) -> Iterator[str]:
    """What recording costs each strategy, over launches: they differ more than their stretches."""
    by_strategy = runs.good.groupby("strategy", observed=True)["recording_ratio"]
    costs = {str(strategy): estimate(ratios) for strategy, ratios in by_strategy}
    content["recording_overhead"] = max(cost.mean for cost in costs.values())
    content["recording_overhead_by_strategy"] = {
        name: dict(zip(("ratio", "low", "high"), cost.ends, strict=True))
        for name, cost in costs.items()
    }
    yield "recording: step time with recording over without"
    for name, cost in costs.items():
        ratio, *ends = ("unknown" if end is None else f"{end:.4f}" for end in cost.ends)
        told = target_text("at most 1.01", (cost.low, cost.high), up_to(1.01), _WHY_RECORDING)
        launches = f"{by_strategy.count()[name]} launches"
        yield f"  {name:<12} {ratio} [{', '.join(ends)}], {launches} {told}"


def _overhead(runs: BenchRuns, content: Content) -> Iterator[str]:
    """What a run costs besides its steps."""
    good, medians = runs.good, {}
    overhead_s = _wall_s(runs) - good["warmup_s"] - good["measured_s"]
    costs = {
        "bring_up_s": good["bring_up_s"],
        "launch_s": overhead_s - good["build_s"] - good["first_step_s"],
        "overhead_per_run_s": overhead_s,
    }
    for name, values in costs.items():
        medians[name] = float(values.median())
        content.setdefault(name, {})[runs.launcher] = medians[name]
        content.setdefault(f"{name}_all", {})[runs.launcher] = list(map(float, values))
    targets = _LAUNCH_TARGETS.get(runs.launcher, {})
    told = [_told(text, medians[name], targets.get(name)) for name, text in _COSTS.items()]
    yield f"{runs.launcher}: {', '.join(told)}, n={len(good)}"


def _told(text: str, seconds: float, target: tuple[str, float] | None) -> str:
    """What takes so many seconds, and whether it may."""
    if target is None:
        return f"{text} {seconds:.2f} s"
    where, most_s = target
    return f"{text} {seconds:.2f} s " + target_text(
        f"at most {most_s:g}{where}", (seconds, seconds), up_to(most_s)
    )


def _wire(runs: BenchRuns, content: Content) -> Iterator[str]:
    """How close strategies come to what the links allow; rows of other networks stay."""
    table = wire_table(runs.last, runs.records)
    rows = json.loads(table.to_json(orient="records", double_precision=15))
    others = [row for row in content.get("wire", ()) if row["network"] != rows[0]["network"]]
    content["wire"] = others + rows
    yield from render_wire(table)


def _standard(runs: BenchRuns, content: Content) -> Iterator[str]:
    """How much of the time of a sweep's runs is warm-up and measured steps; and their clocks."""
    useful_s = runs.good[["warmup_s", "measured_s"]].sum().sum()
    fraction = float(useful_s / _wall_s(runs).sum())
    content["useful_fraction"] = {"standard, small network, one launch per point": fraction}
    told = target_text("at least 0.60", (fraction, fraction), no_less_than(0.6))
    yield f"useful fraction of a standard sweep: {fraction:.2f} {told}"
    yield from _clocks(runs, content)


def _clocks(runs: BenchRuns, content: Content) -> Iterator[str]:
    """Steps timed from outside against their own timestamps, the mean of each strategy."""
    by_strategy = runs.good.groupby("strategy", observed=True)["clock_ratio"]
    ratios = {str(strategy): each.dropna() for strategy, each in by_strategy}
    told = {name: each for name, each in ratios.items() if len(each)}
    if not told:
        return
    content["clocks"] = {name: float(each.mean()) for name, each in told.items()}
    yield "clocks: time of all steps by the driving task over that by their own timestamps"
    for name, each in told.items():
        target = target_text("0.99 to 1.01", (each.min(), each.max()), _CLOCKS, _WHY_CLOCKS)
        yield f"  {name:<12} {each.mean():.4f}, {count_text(len(each), 'run')} {target}"


def _planted(runs: BenchRuns, content: Content) -> Iterator[str]:
    """What is measured of a slow-down that is known."""
    reduced = runs.good[runs.good["strategy"] == AllReduce.kind].set_index("repetition")
    slowed = reduced["emulated_factors"].notna()
    if not slowed.any() or slowed.all():
        return
    fast, slow = (reduced["examples_per_sec"][each] for each in (~slowed, slowed))
    found = compare(fast, slow)
    content[PLANTED_SWEEP] = dict(zip(("ratio", "low", "high"), found.ends, strict=True))
    ratio, *ends = ("unknown" if end is None else f"{end:.3f}" for end in found.ends)
    yield (
        f"emulated computation slowed down by {PLANTED:.0%}: steps take {ratio} times as long "
        f"[{', '.join(ends)}], {found.n_first} launches each"
    )


def _warmup(runs: BenchRuns, content: Content) -> Iterator[str]:
    """Whether a warm-up that ends when step times are steady leads to the rate of a fixed one."""
    yield "warm-up: rate after a steady one over rate after a fixed one"
    for strategy, launches in runs.good.groupby("strategy", observed=True):
        by_kind = {kind: made.set_index("repetition") for kind, made in launches.groupby("warmup")}
        if set(by_kind) != {SteadyWarmup.kind, FixedWarmup.kind}:
            continue
        steady, fixed = by_kind[SteadyWarmup.kind], by_kind[FixedWarmup.kind]
        found = compare(steady["examples_per_sec"], fixed["examples_per_sec"])
        seconds = {kind: float(made["warmup_s"].median()) for kind, made in by_kind.items()}
        ended = int((steady["warmup_end"] == WarmupEnd.LIMIT).sum())
        content.setdefault(WARMUP, {})[str(strategy)] = {
            **dict(zip(("ratio", "low", "high"), found.ends, strict=True)),
            "n_first": found.n_first,
            "n_second": found.n_second,
            "warmup_s": seconds,
            "ended_by_limit": ended,
        }
        ratio, *ends = ("unknown" if end is None else f"{end:.4f}" for end in found.ends)
        yield (
            f"  {strategy:<12} {ratio} [{', '.join(ends)}], {found.n_first} and {found.n_second} "
            f"launches, {seconds['steady']:.1f} s and {seconds['fixed']:.1f} s of warm-up "
            + target_text("0.99 to 1.01", found.ends[1:], (0.99, 1.01), _WHY_WARMUP)
        )


def _wall_s(runs: BenchRuns) -> pd.Series:
    """From asking for each good run until it was over."""
    good = runs.good
    return (good["finished_at"] - good["started_at"]).dt.total_seconds()


_PARTS: Mapping[str, Callable[[BenchRuns, Content], Iterator[str]]] = {
    RECORDING: _recording,
    OVERHEAD: _overhead,
    WIRE: _wire,
    STANDARD_SWEEP: _standard,
    PLANTED_SWEEP: _planted,
    WARMUP: _warmup,
}
