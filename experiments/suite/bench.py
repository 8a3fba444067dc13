"""What the suite itself costs: recording, launching, and time that is not measurement.

Numbers go to `bench/bench.json` below the results folder, those of every launcher beside those of
the others.  They are for comparing versions of the suite on one machine, and launchers with each
other, not for judging a cluster; on emulated links every strategy is held against the bound that
the links set (`wire_bench`).
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.suite.wire_bench import check_room, render_wire, run_wire_bench
from experiments.suite.wire_grid import Point, wire_grid
from experiments.sweep.execute import Follower, Stop, execute
from experiments.sweep.profiles import PROFILES, WORKLOADS
from experiments.sweep.sweep import Sweep
from launchers import LOCAL
from launchers.run.launcher import HostsLauncher
from ps_allreduce.errors import LaunchError
from ps_allreduce.point.architectures import SMALL_CNN
from ps_allreduce.point.experiment import Collective, Experiment, Profile, server_settings
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.provenance import collect
from ps_allreduce.record.records import Status
from ps_allreduce.runner.results import OverheadResult
from ps_allreduce.serialization import to_json

RECORDING_ROUNDS = 60

LAUNCHES = 5

BRIEF = Profile(name="bench", warmup_steps=1, warmup_s=0.0, measured_steps=10, repetitions=1)


def _points(profile: Profile) -> dict[str, Experiment]:
    """Four tasks each under parameter servers: one server, two workers, the chief."""
    workload = WORKLOADS[SMALL_CNN]
    served: dict[str, Any] = server_settings(1, Policy.ROUND_ROBIN)
    reduced: dict[str, Any] = {"collective": Collective.RING}
    settings: dict[Strategy, dict[str, Any]] = {
        Strategy.SINGLE: {},
        Strategy.ALLREDUCE: {"num_workers": 2, **reduced},
        Strategy.PS_ASYNC: {"num_workers": 2, **served},
        Strategy.PS_SYNC: {"num_workers": 2, **served},
    }
    return {
        str(strategy): Experiment(
            strategy=strategy, workload=workload, profile=profile, **of_strategy
        )
        for strategy, of_strategy in settings.items()
    }


def run_bench(
    launcher: HostsLauncher, name: str, network: EmulatedNetwork | None, where: Where
) -> str:
    """Run the benchmarks that make sense with a launcher; return a summary for the screen.

    What other launchers left in the file stays.

    Raises:
        KeyboardInterrupt: the operator ended it; parts that were over are written.
        LaunchError: a run failed.
        UserError: there are too few hosts, or the results cannot be written.
    """
    points = wire_grid(network) if network is not None else []
    check_room(launcher, points)
    launcher.prepare(WORKLOADS[SMALL_CNN])
    content = read_bench(where.path)
    lines: list[str] = []
    if name == LOCAL:
        lines += _bench_recording(launcher, content, where)
    lines += _bench_overhead(launcher, name, network, content, where)
    _write(content, where)
    if network is not None:
        lines += _bench_wire(launcher, network, points, content, where)
    if name == LOCAL:
        where.console.print("useful fraction of a standard sweep", highlight=False)
        useful = _useful_fraction(launcher, where)
        content["useful_fraction"] = {"standard, small network, one launch per point": useful}
        lines.append(f"useful fraction of a standard sweep: {useful:.2f} (target: at least 0.60)")
    content.setdefault("provenance", {})[name] = to_json(collect(where.commit))
    _write(content, where)
    return "\n".join([*lines, str(where.path)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where benchmarks report to."""

    results: Path
    commit: str
    console: Console

    @property
    def path(self) -> Path:
        """The file of all numbers."""
        return self.results / "bench" / "bench.json"


def read_bench(path: Path) -> dict[str, Any]:
    """What earlier benchmarks left; nothing if there are none or they cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _bench_recording(launcher: HostsLauncher, content: dict[str, Any], where: Where) -> list[str]:
    recording = {}
    for name, experiment in _points(replace(BRIEF, deadline_s=300.0)).items():
        where.console.print(f"recording, {name}", highlight=False)
        overhead = launcher.measure_recording(experiment, RECORDING_ROUNDS)
        recording[name] = summarise_overhead(overhead)
    content["recording_overhead"] = max(entry["ratio"] for entry in recording.values())
    content["recording_overhead_by_strategy"] = recording
    return render_recording(recording)


def _bench_overhead(
    launcher: HostsLauncher,
    name: str,
    network: EmulatedNetwork | None,
    content: dict[str, Any],
    where: Where,
) -> list[str]:
    """Bringing tasks up, and all of a run that is neither warm-up nor measured."""
    where.console.print("overhead per run", highlight=False)
    point = _points(BRIEF)[Strategy.PS_SYNC]
    if name != LOCAL:
        point = replace(point, launcher=name, spread=Spread(), network=network)
    bring_up, overhead = [], []
    for _ in range(LAUNCHES):
        begin = time.monotonic()
        run = launcher.launch(point, progress=lambda _: None)
        wall_s = time.monotonic() - begin
        if run.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if run.status is not Status.OK or run.phases.bring_up_s is None:
            raise LaunchError(f"a run of the benchmark failed: {run.reason}")
        bring_up.append(run.phases.bring_up_s)
        overhead.append(wall_s - (run.phases.warmup_s or 0.0) - (run.phases.measured_s or 0.0))
    content.setdefault("bring_up_s", {})[name] = statistics.median(bring_up)
    content.setdefault("bring_up_s_all", {})[name] = bring_up
    content.setdefault("overhead_per_run_s", {})[name] = statistics.median(overhead)
    content.setdefault("overhead_per_run_s_all", {})[name] = overhead
    target = " (target: at most 3)" if name == LOCAL else ""
    return [
        f"{name}: bring-up of four tasks {statistics.median(bring_up):.2f} s{target}, everything "
        f"but warm-up and measured steps {statistics.median(overhead):.2f} s, n={LAUNCHES}"
    ]


def _bench_wire(
    launcher: HostsLauncher,
    network: EmulatedNetwork,
    points: Sequence[Point],
    content: dict[str, Any],
    where: Where,
) -> list[str]:
    """How close strategies come to what the links allow; rows are written as they come.

    Rows of other networks stay.
    """
    others = [row for row in content.get("wire", ()) if row["network"] != to_json(network)]

    def save(rows: list[dict[str, Any]]) -> None:
        content["wire"] = others + rows
        _write(content, where)

    return render_wire(run_wire_bench(launcher, points, save, where.console))


def _write(content: dict[str, Any], where: Where) -> None:
    write_atomically(where.path, (json.dumps(content, indent=1) + "\n").encode())


def summarise_overhead(overhead: OverheadResult) -> dict[str, float]:
    """Median ratio of recorded to bare stretches, with the 95 % interval of the median.

    The interval is that of the sign test: order statistics at n/2 -+ 0.98 sqrt(n).  Source:
    Conover, Practical Nonparametric Statistics, section 3.2 (normal approximation of the
    binomial).
    """
    pairs = zip(overhead.recorded_s, overhead.bare_s, strict=True)
    ratios = sorted(recorded / bare for recorded, bare in pairs)
    margin = math.ceil(0.98 * math.sqrt(len(ratios)))
    middle = len(ratios) // 2
    return {
        "ratio": statistics.median(ratios),
        "low": ratios[max(middle - margin, 0)],
        "high": ratios[min(middle + margin, len(ratios) - 1)],
        "pairs": len(ratios),
        "steps_per_stretch": overhead.steps_per_stretch,
    }


def _useful_fraction(launcher: HostsLauncher, where: Where) -> float:
    profile = replace(PROFILES["standard"], repetitions=1)
    sweep = Sweep(name="standard", points=tuple(_points(profile).values()), seed=1)
    folder = where.results / "bench" / "standard"
    result = execute(sweep, sweep.runs(), launcher, folder, where.commit, Follower())
    if result.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return result.useful_fraction


def render_recording(recording: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What recording costs, beside its target."""
    lines = ["recording: step time with recording over without (target: at most 1.01)"]
    return lines + [
        f"  {name:<12} {e['ratio']:.4f} [{e['low']:.4f}, {e['high']:.4f}], {e['pairs']:.0f} pairs"
        for name, e in recording.items()
    ]
