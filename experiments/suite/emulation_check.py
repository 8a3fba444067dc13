"""Find the rate of links up to which emulated hosts can be trusted on this machine.

Axes: rates of links, halved one to three times while durations of computation, delays and TCP's
least timeout are doubled.  And at the whole rate all strategies that communicate, on two hosts and
on all, with gradients of three sizes.

Method: all-reduce on all hosts, and synchronous servers with one host for the server.  Every launch
at one rate has one at half the rate; those of the first two rates are made in an order that mixes
them.  The next rate is tried only where the last two do not agree; when they do is decided in
`analysis.suite.envelope`.  Before that, workers that only communicate send all gradients at once,
with a server beside every worker, and what ports lose is counted; plain TCP sends from one host to
another, and from all others to one.

Cost: 30 points with one launch each, 4 with three, and 2 more for every further rate.

It should show from which rate on the processors of this machine are part of a result, and that
ports lose no packet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product

from analysis.suite.envelope import (
    EMULATION_CHECK,
    PlainTcp,
    check_envelope,
    plain_tcp_path,
    render_envelope,
    slowed_down,
)
from analysis.suite.json_lines import write_lines
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
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import STRATEGIES, AllReduce, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.terminal import echo

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
    name="emulation-check",
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
    write_lines(plain_tcp_path(launcher.results), _plain_tcp(launcher, network.bits_per_s))
    for scale in SCALES[1:]:
        if status := _run(launcher, network.num_hosts, partial(_points, scale), repetitions):
            return status
        table = check_envelope(launcher.results)
        is_last = table["bits_per_s"] == network.bits_per_s * 2 / scale
        judged = table[is_last & (table["num_hosts"] == network.num_hosts) & table["holds"].notna()]
        if judged["holds"].all():
            break
    echo("\n".join(render_envelope(table)))
    return 0


def _plain_tcp(launcher: LauncherSettings, bits_per_s: float) -> list[PlainTcp]:
    """What streams of one host to another, and of all others to one, make of the rate."""
    return [
        PlainTcp(
            num_hosts=flows.senders + 1,
            bits_per_s=bits_per_s,
            reached=flows.bits_per_s / bits_per_s,
            port_drops=flows.dropped,
        )
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
