"""What the suite itself costs: recording, bringing tasks up, and time that is not measurement.

Numbers go to `bench/bench.json` below the results folder.  They are for comparing versions of the
suite on one machine, not for judging a cluster.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.execute import Follower, execute
from experiments.profiles import PROFILES, WORKLOADS
from experiments.sweep import Sweep
from launchers.hosts_launcher import HostsLauncher
from ps_allreduce.experiment import Collective, Experiment, Profile, server_settings
from ps_allreduce.models import SMALL_CNN
from ps_allreduce.placement import Policy
from ps_allreduce.provenance import collect
from ps_allreduce.records import Status, write_atomically
from ps_allreduce.runner.results import OverheadResult
from ps_allreduce.serialization import to_json
from ps_allreduce.strategies import Strategy

RECORDING_ROUNDS = 60

BRING_UP_LAUNCHES = 5

BRIEF = Profile(name="bench", warmup_steps=1, warmup_s=0.0, measured_steps=10, repetitions=1)


def _points(profile: Profile) -> dict[str, Experiment]:
    """Four tasks each under parameter servers: one server, two workers, the chief."""
    workload = WORKLOADS[SMALL_CNN]
    served: dict[str, Any] = server_settings(1, Policy.ROUND_ROBIN)
    reduced: dict[str, Any] = {"collective": Collective.RING, "bytes_per_pack": 0}
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


def run_bench(launcher: HostsLauncher, results: Path, commit: str, console: Console) -> str:
    """Run all benchmarks; return a summary for the screen.

    Raises:
        LaunchError: a run failed.
        UserError: the results cannot be written.
    """
    launcher.prepare(WORKLOADS[SMALL_CNN])
    recording = {}
    for name, experiment in _points(replace(BRIEF, deadline_s=300.0)).items():
        console.print(f"recording, {name}", highlight=False)
        overhead = launcher.measure_recording(experiment, RECORDING_ROUNDS)
        recording[name] = summarise_overhead(overhead)
    console.print("bring-up", highlight=False)
    bring_up = _bring_up(launcher, _points(BRIEF)[Strategy.PS_SYNC])
    console.print("useful fraction of a standard sweep", highlight=False)
    useful = _useful_fraction(launcher, results / "bench" / "standard", commit)
    content = {
        "recording_overhead": max(entry["ratio"] for entry in recording.values()),
        "recording_overhead_by_strategy": recording,
        "bring_up_s": {"local": statistics.median(bring_up)},
        "bring_up_s_all": {"local": bring_up},
        "useful_fraction": {"standard, small network, one launch per point": useful},
        "provenance": to_json(collect(commit)),
    }
    path = results / "bench" / "bench.json"
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
    return render_bench(recording, bring_up, useful, path)


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


def _bring_up(launcher: HostsLauncher, experiment: Experiment) -> list[float]:
    seconds = []
    for _ in range(BRING_UP_LAUNCHES):
        run = launcher.launch(experiment, progress=lambda _: None)
        if run.status is Status.OK and run.phases.bring_up_s is not None:
            seconds.append(run.phases.bring_up_s)
    return seconds


def _useful_fraction(launcher: HostsLauncher, folder: Path, commit: str) -> float:
    profile = replace(PROFILES["standard"], repetitions=1)
    sweep = Sweep(name="standard", points=tuple(_points(profile).values()), seed=1)
    return execute(sweep, launcher, folder, commit, Follower()).useful_fraction


def render_bench(
    recording: dict[str, dict[str, float]], bring_up: Sequence[float], useful: float, path: Path
) -> str:
    """The benchmarks' results as text, each beside its target."""
    lines = ["recording: step time with recording over without (target: at most 1.01)"]
    lines += [
        f"  {name:<12} {e['ratio']:.4f} [{e['low']:.4f}, {e['high']:.4f}], {e['pairs']:.0f} pairs"
        for name, e in recording.items()
    ]
    median = statistics.median(bring_up)
    lines.append(f"bring-up of four tasks: {median:.2f} s, n={len(bring_up)} (target: at most 3)")
    lines.append(f"useful fraction of a standard sweep: {useful:.2f} (target: at least 0.60)")
    return "\n".join([*lines, str(path)])
