"""How far can emulated hosts be trusted on this machine?

A network at half the rate with computation of twice the duration must make every step take exactly
twice as long; where it does not, this machine's processors were part of the result.  The check
halves the rate until two neighbouring scales agree: that is the envelope.  The idea is time
dilation, as in Gupta et al., To Infinity and Beyond: Time-Warped Network Emulation, NSDI 2006.

Decides which points are repeated and when two scales agree.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.sweep.execute import Follower, Session, run_once
from experiments.sweep.folder import locked
from experiments.sweep.history import read_history
from experiments.sweep.sweep import PlannedRun
from launchers import EMULATED, make_launcher
from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Collective, Experiment, Profile, server_settings
from ps_allreduce.point.network import EmulatedNetwork, render_rate
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import LayoutKind, Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.provenance import collect
from ps_allreduce.record.records import RunRecord

TOLERANCE = 0.03

SCALES = (1, 2, 4, 8)

#: About as long as this model's gradients take at 1 Gbit/s, so that both parts matter.
COMPUTE = EmulatedCompute(forward_s=0.04, backward_s=0.08)

WORKLOAD = Workload(model="MobileNetV2", image_size=64, batch_per_worker=4)

PROFILE = Profile(
    name="emulation-check",
    warmup_steps=3,
    warmup_s=1.0,
    measured_steps=20,
    repetitions=3,
    deadline_s=300.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A point at one scale against the next one.

    Attributes:
        ratio: step time at half the rate over twice that at the whole one; 1 is perfect.
        low, high: smallest and largest ratio of the launches' pairs.
    """

    strategy: str
    bits_per_s: float
    ratio: float
    low: float
    high: float
    num_pairs: int

    @property
    def holds(self) -> bool:
        """The two agree."""
        return abs(self.ratio - 1) <= TOLERANCE


def points_at(network: EmulatedNetwork, scale: int, profile: Profile) -> dict[str, Experiment]:
    """All-reduce on all hosts; synchronous servers with one host for the server."""
    compute = replace(
        COMPUTE, forward_s=COMPUTE.forward_s * scale, backward_s=COMPUTE.backward_s * scale
    )
    workload = replace(WORKLOAD, emulated=compute)
    scaled = network.scaled(1 / scale)
    reduced = Experiment(
        strategy=Strategy.ALLREDUCE,
        num_workers=network.num_hosts,
        collective=Collective.RING,
        launcher=EMULATED,
        spread=Spread(),
        network=scaled,
        workload=workload,
        profile=profile,
    )
    servers = server_settings(1, Policy.ROUND_ROBIN, LayoutKind.DEDICATED)
    served = Experiment(
        strategy=Strategy.PS_SYNC,
        num_workers=network.num_hosts - 1,
        launcher=EMULATED,
        spread=Spread(),
        network=scaled,
        workload=workload,
        profile=profile,
        **servers,  # type: ignore[arg-type]
    )
    return {str(point.strategy): point for point in (reduced, served)}


def compare_scales(
    bits_per_s: float, scale: int, whole: Sequence[float], half: Sequence[float], strategy: str
) -> Agreement:
    """Pairs of step times in seconds, in the order of their launches."""
    ratios = [slow / (2 * fast) for fast, slow in zip(whole, half, strict=True)]
    return Agreement(
        strategy=strategy,
        bits_per_s=bits_per_s / scale,
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        num_pairs=len(ratios),
    )


def check_emulation(
    network: EmulatedNetwork,
    results: Path,
    commit: str,
    follower: Follower,
    *,
    repetitions: int,
    allow_login_node: bool,
) -> list[Agreement]:
    """Halve the rate until every strategy agrees with itself, or four times.

    Raises:
        UserError: the network has no rate to be halved, or too few hosts.
    """
    if network.bits_per_s is None or network.num_hosts < 2:
        raise UserError("the emulation is checked with --bandwidth and 2 or more --hosts.")
    profile = replace(PROFILE, repetitions=repetitions)
    sweep_dir = results / "emulation-check"
    agreements: list[Agreement] = []
    most_runs = (len(SCALES) - 1) * 2 * len(points_at(network, 1, profile)) * repetitions
    with locked(sweep_dir):
        follower.begin(most_runs, 0)
        for scales in itertools.pairwise(SCALES):
            with ExitStack() as stack:
                sessions = {}
                for scale in scales:
                    launcher = _launcher(network.scaled(1 / scale), results, allow_login_node)
                    stack.enter_context(launcher)
                    sessions[scale] = _session(launcher, sweep_dir, commit, follower)
                found = _compare(sessions, network, network.bits_per_s, profile)
            agreements += found
            save_agreements(agreements, results)  # the next pair of scales takes twice as long
            if all(agreement.holds for agreement in found):
                break
    return agreements


def _compare(
    sessions: Mapping[int, Session], network: EmulatedNetwork, bits_per_s: float, profile: Profile
) -> list[Agreement]:
    scale, next_scale = sessions
    points = points_at(network, scale, profile)
    times = _measure(sessions, network, profile)
    return [
        compare_scales(bits_per_s, scale, times[scale, s], times[next_scale, s], s) for s in points
    ]


def _launcher(network: EmulatedNetwork, results: Path, allow_login_node: bool) -> HostsLauncher:
    settings = LauncherSettings(
        data_dir=(results / "data").resolve(), network=network, allow_login_node=allow_login_node
    )
    return make_launcher(EMULATED, settings)


def _session(launcher: HostsLauncher, sweep_dir: Path, commit: str, follower: Follower) -> Session:
    return Session(
        launcher=launcher,
        sweep_name="emulation-check",
        sweep_dir=sweep_dir,
        commit=commit,
        hosts=(),
        history=read_history(sweep_dir, collect(commit).fingerprint),
        follower=follower,
    )


def _measure(
    sessions: Mapping[int, Session], network: EmulatedNetwork, profile: Profile
) -> dict[tuple[int, str], list[float]]:
    """Step times by scale and strategy; the two scales take turns."""
    times: dict[tuple[int, str], list[float]] = {}
    for repetition in range(profile.repetitions):
        for scale, session in sessions.items():
            for strategy, point in points_at(network, scale, profile).items():
                number = session.history.next_repetition(point.experiment_id)
                record = run_once(session, PlannedRun(experiment=point, repetition=number))
                times.setdefault((scale, strategy), []).append(_step_time(record, repetition))
    return times


def _step_time(record: RunRecord, repetition: int) -> float:
    if record.metrics is None or record.reason:
        raise UserError(f"launch {repetition + 1} of {record.experiment.title}: {record.reason}")
    return record.metrics.step_time_p50_s


def render_agreements(agreements: Sequence[Agreement]) -> str:
    """A table, and the envelope in a sentence per strategy."""
    lines = ["strategy         rate   ratio (1 is perfect)"]
    lines += [
        f"{a.strategy:<12} {render_rate(a.bits_per_s):>8}   {a.ratio:.3f} "
        f"[{a.low:.3f}, {a.high:.3f}], n={a.num_pairs}"
        for a in agreements
    ]
    for strategy in dict.fromkeys(a.strategy for a in agreements):
        mine = [a for a in agreements if a.strategy == strategy]
        good = [a.bits_per_s for a in mine if a.holds]
        lines.append(
            f"{strategy}: emulation can be trusted within {TOLERANCE:.0%} up to "
            f"{render_rate(max(good))} on this machine"
            if good
            else f"{strategy}: emulation cannot be trusted at {render_rate(mine[-1].bits_per_s)} "
            "or above on this machine: its processors are the limit"
        )
    return "\n".join(lines)


def save_agreements(agreements: Sequence[Agreement], results: Path) -> Path:
    """Write `emulation-check/envelope.json`."""
    path = results / "emulation-check" / "envelope.json"
    content = [
        {
            "strategy": a.strategy,
            "bits_per_s": a.bits_per_s,
            "ratio": a.ratio,
            "low": a.low,
            "high": a.high,
            "num_pairs": a.num_pairs,
            "holds": a.holds,
        }
        for a in agreements
    ]
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
    return path
