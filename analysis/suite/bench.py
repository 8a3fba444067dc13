"""What the suite itself costs, from the sweeps below `bench`: `bench.json` and its tables.

Decides which runs count (of each launcher and network those of its newest block), what overhead is,
and that numbers of other launchers and networks stay in the file.  A file that cannot be read is
never overwritten.  How long reading a large sweep takes is timed on copies of a record that was
really made: many points, ten launches each.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data.blocks import analysed
from analysis.data.load import SweepFiles, find_sweeps, load, read_sweep
from analysis.stats.statistics import compare, estimate
from analysis.suite.coverage import render_coverages
from analysis.suite.self_comparisons import FILE, read_from, render_self_comparisons
from analysis.suite.self_test import render_self_test
from analysis.suite.spreads import measured_spreads
from analysis.suite.wire_targets import render_wire, wire_table
from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.measurement import FixedWarmup, SteadyWarmup, WarmupEnd
from ps_allreduce.record.files import (
    RunFiles,
    iter_record_paths,
    load_record,
    read_json,
    write_json,
)
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.serialization import to_json

#: The sweeps of a bench, by the names of their folders.
RECORDING, OVERHEAD, WIRE, STANDARD_SWEEP = "recording", "overhead", "wire", "standard"
WARMUP = "warmup"

#: Of a copy of a record, about, most of them samples: what a standard run on two hosts leaves.
RECORD_BYTES = 91_000

#: Of them: that many need 90 GB.
MOST_COPIES = 1_000_000

#: Launches of a point.
REPETITIONS = 10

#: The most that loading 10,000 records may take on two cores.
TARGET_S, TARGET_MIB = 60, 2048

#: What has an entry for each launcher.
_BY_LAUNCHER = (
    *("provenance", "bring_up_s", "bring_up_s_all", "overhead_per_run_s"),
    "overhead_per_run_s_all",
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
    spreads = measured_spreads(results)
    if spreads is None:
        yield f"no self-test: {results} holds no sweep with three launches of two points"
    else:
        yield from render_self_test(spreads, content)
        yield from render_coverages(spreads, content)
    yield render_self_comparisons(read_from(results / FILE), content)


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
    yield "recording: step time with recording over without (target: at most 1.01)"
    for name, cost in costs.items():
        ratio, *ends = ("unknown" if end is None else f"{end:.4f}" for end in cost.ends)
        yield f"  {name:<12} {ratio} [{', '.join(ends)}], {by_strategy.count()[name]} launches"


def _overhead(runs: BenchRuns, content: Content) -> Iterator[str]:
    """Bringing tasks up, and all of a run that is neither warm-up nor measured."""
    medians = {}
    useful_s = runs.good["warmup_s"] + runs.good["measured_s"]
    costs = {"bring_up_s": runs.good["bring_up_s"], "overhead_per_run_s": _wall_s(runs) - useful_s}
    for name, values in costs.items():
        medians[name] = float(values.median())
        content.setdefault(name, {})[runs.launcher] = medians[name]
        content.setdefault(f"{name}_all", {})[runs.launcher] = list(map(float, values))
    on_one_host = runs.good["asked_workers_per_host"].isna().all()
    yield (
        f"{runs.launcher}: bring-up of four tasks {medians['bring_up_s']:.2f} s"
        f"{' (target: at most 3)' if on_one_host else ''}, everything but warm-up and measured "
        f"steps {medians['overhead_per_run_s']:.2f} s, n={len(runs.good)}"
    )


def _wire(runs: BenchRuns, content: Content) -> Iterator[str]:
    """How close strategies come to what the links allow; rows of other networks stay."""
    table = wire_table(runs.last, runs.records)
    rows = json.loads(table.to_json(orient="records", double_precision=15))
    others = [row for row in content.get("wire", ()) if row["network"] != rows[0]["network"]]
    content["wire"] = others + rows
    yield from render_wire(table)


def _standard(runs: BenchRuns, content: Content) -> Iterator[str]:
    """How much of the time of a sweep's runs is warm-up and measured steps."""
    useful_s = runs.good[["warmup_s", "measured_s"]].sum().sum()
    fraction = float(useful_s / _wall_s(runs).sum())
    content["useful_fraction"] = {"standard, small network, one launch per point": fraction}
    yield f"useful fraction of a standard sweep: {fraction:.2f} (target: at least 0.60)"


def _warmup(runs: BenchRuns, content: Content) -> Iterator[str]:
    """Whether a warm-up that ends when step times are steady leads to the rate of a fixed one."""
    yield "warm-up: rate after a steady one over rate after a fixed one (target: 0.99 to 1.01)"
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
            f"launches, {seconds['steady']:.1f} s and {seconds['fixed']:.1f} s of warm-up"
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
    WARMUP: _warmup,
}


def time_loading(results: Path, folder: Path, num_records: int) -> str:
    """Fill an empty folder with copies of the longest record of some results, read it, and tell.

    Raises:
        UserError: there is no record with samples to copy, or it is to be copied too often.
    """
    at_least(1, records=num_records)
    at_most(MOST_COPIES, records=num_records)
    paths = [path for sweep in find_sweeps(results) for path in iter_record_paths(sweep)]
    _write_copies(max(paths, key=lambda path: path.stat().st_size), folder, num_records)
    begin = time.monotonic()
    table = load(folder)
    seconds = time.monotonic() - begin
    kilobytes = Path(table.index[0]).stat().st_size / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**10
    return (
        f"loading {len(table)} records of {kilobytes:.0f} kB: {seconds:.1f} s, {peak} MiB (target "
        f"for 10000 on two cores: at most {TARGET_S} s, {TARGET_MIB} MiB)"
    )


def _write_copies(source: Path, folder: Path, num_records: int) -> None:
    """Copies of a record as a sweep of many points; all share its raw timings."""
    original = load_record(source)
    if not original.samples:
        raise UserError(f"{source} holds no samples: copies of it would be too short.")
    samples = _samples(original)
    for number in range(num_records):
        copy = _copy(original, number)
        files = RunFiles.of(folder, copy.experiment_id, copy.repetition, copy.attempt)
        files.record.parent.mkdir(parents=True, exist_ok=True)
        without = {name: value for name, value in to_json(copy).items() if name != "samples"}
        text = f'{json.dumps(without)[:-1]}, "samples": {samples}}}'
        files.record.write_text(text, encoding="utf-8")
        if RunFiles(source).raw.exists():
            files.raw.symlink_to(RunFiles(source).raw.resolve())


def _samples(original: RunRecord) -> str:
    """As many as make a record long enough, as JSON; the same in all copies."""
    without = len(json.dumps(to_json(replace(original, samples=()))))
    each = len(json.dumps(to_json(original.samples), indent=1)) / len(original.samples)
    count = max(1, round((RECORD_BYTES - without) / each))
    return json.dumps(to_json((original.samples * count)[:count]), indent=1)


def _copy(original: RunRecord, number: int) -> RunRecord:
    workload = replace(original.experiment.workload, seed=number // REPETITIONS)
    experiment = replace(original.experiment, workload=workload)
    return replace(
        original,
        experiment=experiment,
        experiment_id=experiment.experiment_id,
        repetition=number % REPETITIONS,
        attempt=0,
        samples=(),
    )
