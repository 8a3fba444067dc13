"""What the suite itself costs: recording, launching, and time that is not measurement.

Decides which sweeps a launcher makes below the folder `bench`, which of their runs count (of each
launcher and network those of its newest block), what overhead is, and what may be asked of it.  The
numbers are for comparing versions of the suite on one machine, and launchers with each other, not
for judging a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data.blocks import analysed
from analysis.data.load import SweepFiles, read_sweep
from analysis.stats.statistics import estimate
from analysis.wording import count_text
from experiments.cli.requests import StudyRequest, SweepRequest
from experiments.cli.sweep_command import run_study
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.scope import SERVER_STRATEGIES, Scope
from experiments.studies.study import Study
from experiments.sweep.folder import check_writable
from experiments.sweep.sweep import PROFILES, STANDARD, Profile
from launchers.settings import LauncherSettings
from launchers.sites.kinds import site_kind
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement, RecordingComparison
from ps_allreduce.point.models.trained import SMALL_CNN
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.record.choices import BENCH
from ps_allreduce.record.files import write_json
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.serialization import to_json
from ps_allreduce.terminal import echo

#: The sweeps of a bench, by the names of their folders.
RECORDING, OVERHEAD, STANDARD_SWEEP = "recording", "overhead", "standard"

BRIEF = Profile(
    name="bench",
    measurement=Measurement(warmup=FixedWarmup(least_steps=1, least_s=0.0), measured_steps=10),
    repetitions=5,
)

ONE_SERVER = StrategySettings(num_ps=1)


def _of_each_kind(scope: Scope) -> list[Experiment]:
    """Strategies with and without tasks beside the workers: one server, two workers, the chief."""
    (workload,) = scope.workloads
    return [
        scope.point(workload, Single, 1),
        scope.point(workload, AllReduce, 2),
        *(scope.point(workload, strategy, 2, ONE_SERVER) for strategy in SERVER_STRATEGIES),
    ]


def _recording(scope: Scope) -> list[Experiment]:
    comparison = RecordingComparison()
    return [replace(point, measurement=comparison) for point in _of_each_kind(scope)]


def _four_tasks(scope: Scope) -> list[Experiment]:
    (workload,) = scope.workloads
    return [scope.point(workload, SynchronousServers, 2, ONE_SERVER)]


STUDIES: Mapping[str, Study] = {
    RECORDING: Study(about="The same training with and without recording.", points=_recording),
    OVERHEAD: Study(about="Four tasks, a few steps, launched often.", points=_four_tasks),
    STANDARD_SWEEP: Study(about="A sweep of the profile standard.", points=_of_each_kind),
}


def bench_sweeps(launcher: LauncherSettings) -> Iterator[StudyRequest]:
    """What a launcher is asked for, one sweep after the other."""
    for name, profile in _profiles(launcher):
        yield StudyRequest(
            name=f"{BENCH}/{name}",
            study=replace(STUDIES[name], looks_first=False),
            launcher=launcher,
            sweep=SweepRequest(profile=profile, workers=(2,), cores_per_worker=1),
            workload=WorkloadRequest(model=SMALL_CNN),
        )


def _profiles(launcher: LauncherSettings) -> Iterator[tuple[str, Profile]]:
    """What one host shows holds for the others."""
    on_one_host = not site_kind(launcher.launcher).several_hosts
    if on_one_host:
        yield RECORDING, replace(BRIEF, deadline_s=300.0)
    yield OVERHEAD, BRIEF
    if on_one_host:
        yield STANDARD_SWEEP, PROFILES[STANDARD].without_budget(1)


def run_bench(launcher: LauncherSettings) -> int:
    """Make the sweeps that are missing and show what all of them came to; return the exit status.

    Raises:
        UserError: a sweep cannot be made, or `bench.json` cannot be written.
    """
    worst, requests = 0, list(bench_sweeps(launcher))
    for request in requests:
        check_writable(request.sweep_dir)
    for request in requests:
        echo(f"{request.name}:", err=True)
        status = run_study(request)
        if status > 1:
            return status
        worst = max(worst, status)
    echo("\n".join(summarise_bench(launcher.results)))
    return worst


#: What a run costs besides its steps; an entry of `bench.json` each, and how it is told.
_COSTS = {
    "bring_up_s": "bring-up of four tasks",
    "launch_s": "all but building and steps",
    "overhead_per_run_s": "all but warm-up and measured steps",
}

#: The targets, by launcher and cost.
_TARGETS = {
    "local": {"bring_up_s": " (target: at most 3)"},
    "slurm": {"launch_s": " (target on whole nodes: at most 1.5)"},
}

#: What `bench.json` holds.
Content = dict[str, Any]


def summarise_bench(results: Path) -> list[str]:
    """Write `bench/bench.json` from the sweeps beside it; lines for the screen.

    Raises:
        UserError: there is no sweep of a bench, or the file cannot be written.
    """
    folder = results / BENCH
    sweeps = {name: folder / name for name in _PARTS if (folder / name / "runs").is_dir()}
    if not sweeps:
        raise UserError(f"{folder} holds no sweep of a bench: run make bench first.")
    content: Content = {}
    lines = [line for name, path in sweeps.items() for line in _sweep(name, path, content)]
    write_json(folder / "bench.json", content)
    return [*lines, str(folder / "bench.json")]


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
        yield f"{name}: missing: {count_text(len(missing), 'run')}; the same command makes them"


def _cost_of_recording(runs: BenchRuns, content: Content) -> Iterator[str]:
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
        launches = count_text(int(by_strategy.count()[name]), "launch")
        yield f"  {name:<12} {ratio} [{', '.join(ends)}], {launches}"


def _besides_steps(runs: BenchRuns, content: Content) -> Iterator[str]:
    good = runs.good
    overhead_s = _wall_s(runs) - good["warmup_s"] - good["measured_s"]
    costs = {
        "bring_up_s": good["bring_up_s"],
        "launch_s": overhead_s - good["build_s"] - good["first_step_s"],
        "overhead_per_run_s": overhead_s,
    }
    told, targets = [], _TARGETS.get(runs.launcher, {})
    for name, values in costs.items():
        content.setdefault(name, {})[runs.launcher] = float(values.median())
        content.setdefault(f"{name}_all", {})[runs.launcher] = list(map(float, values))
        told.append(f"{_COSTS[name]} {values.median():.2f} s{targets.get(name, '')}")
    yield f"{runs.launcher}: {', '.join(told)}, n={len(good)}"


def _useful_time(runs: BenchRuns, content: Content) -> Iterator[str]:
    """How much of the time of a sweep's runs is warm-up and measured steps; and their clocks."""
    useful_s = runs.good[["warmup_s", "measured_s"]].sum().sum()
    fraction = float(useful_s / _wall_s(runs).sum())
    content["useful_fraction"] = {"standard, small network, one launch per point": fraction}
    yield f"useful fraction of a standard sweep: {fraction:.2f} (target: at least 0.60)"
    by_strategy = runs.good.groupby("strategy", observed=True)["clock_ratio"]
    ratios = {str(strategy): own for strategy, each in by_strategy if len(own := each.dropna())}
    content["clocks"] = {name: float(each.mean()) for name, each in ratios.items()}
    yield "clocks: time of all steps by the driving task over that by their own timestamps"
    for name, each in ratios.items():
        yield f"  {name:<12} {each.mean():.4f}, {count_text(len(each), 'run')}"


def _wall_s(runs: BenchRuns) -> pd.Series:
    """From asking for each good run until it was over."""
    good = runs.good
    return (good["finished_at"] - good["started_at"]).dt.total_seconds()


_PARTS: Mapping[str, Callable[[BenchRuns, Content], Iterator[str]]] = {
    RECORDING: _cost_of_recording,
    OVERHEAD: _besides_steps,
    STANDARD_SWEEP: _useful_time,
}
