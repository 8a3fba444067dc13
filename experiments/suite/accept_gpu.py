"""The checklist for a first use on GPUs: `python -m experiments accept-gpu`.

Decides the order of the items, what is said at the end, and what is kept to be sent.  What an item
asks for is decided in `gpu_checks`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from experiments import surroundings
from experiments.cli.requests import SpreadRequest
from experiments.studies.scope import Scope
from experiments.suite import gpu_checks, gpu_points
from experiments.suite.gate import launch_again, train
from experiments.suite.gpu_checks import Item, ItemVerdict
from experiments.sweep.folder import check_writable
from experiments.sweep.session import Session, open_session
from launchers.settings import LauncherSettings
from launchers.sites.kinds import network_of
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.strategies import Single
from ps_allreduce.point.wire import Collective
from ps_allreduce.record.files import RunFiles, write_json
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.records import Status
from ps_allreduce.record.variables import Values
from ps_allreduce.terminal import Terminal, echo

NAME = "accept-gpu"

#: TF32 would round the inputs of every product to ten bits; NCCL tells in the log that it is there.
SETTINGS = {"NVIDIA_TF32_OVERRIDE": "0", "NCCL_DEBUG": "VERSION"}


def accept_gpu(settings: LauncherSettings) -> int:
    """Go through the checklist; return the exit status, 0 if no item failed.

    Raises:
        UserError: there is no GPU.
        LaunchError: the reference cannot be trained.
    """
    os.environ.update(SETTINGS)
    check_writable(settings.results / NAME)
    folder = (settings.results / NAME).resolve()
    with surroundings.workplace(settings, folder, Terminal(quiet=True)) as place:
        _require_gpus(place.launcher.host_facts())
        place.launcher.check(replace(_reference(settings), resources=Resources(device=Device.GPU)))
        items = []
        with open_session(place, NAME, gpu_points.PROFILE) as session:
            for item in go_through(session, settings):
                echo(item)
                items.append(item)
            path = folder / "accept_gpu.json"
            write_json(path, items)
    echo(conclusion(items, folder))
    return 1 if any(item.verdict is ItemVerdict.FAILED for item in items) else 0


def go_through(session: Session, settings: LauncherSettings) -> Iterator[Item]:
    """All items, each as soon as it is known."""
    launcher, point = session.place.launcher, _reference(settings)
    record, reference = train(session, point)
    # A cluster's hosts can be asked; this machine tells of itself in a run.
    hosts = session.hosts or tuple(host.facts for host in record.hosts)
    _require_gpus(hosts)
    if record.status is not Status.OK or reference is None:
        raise LaunchError(f"the reference on processors cannot be trained: {record.reason}")
    yield gpu_checks.judge_driver(hosts)
    cores = launcher.capacity().cores_per_host
    scope = gpu_points.gpu_scope(point, hosts, cores, launcher.describe)
    yield from _same_weights(session, scope, reference.final)
    for name, trained in gpu_points.trained(scope).items():
        yield gpu_checks.judge_run(name, launch_again(session, trained))
    yield gpu_checks.judge_samples(launch_again(session, gpu_points.sampled(scope)))
    too_large = gpu_points.beyond_memory(scope, hosts[0])
    ran_out = launch_again(session, too_large) if too_large else None
    yield gpu_checks.judge_out_of_memory(ran_out)


def _same_weights(session: Session, scope: Scope, reference: Values) -> Iterator[Item]:
    points = gpu_points.compared(scope)
    for name, point in points.items():
        record, weights = train(session, point)
        final = () if weights is None else weights.final
        item = gpu_checks.judge_weights(name, record, final, reference)
        if point.strategy.uses_servers and point.strategy.synchronous:
            yield gpu_checks.judge_visibility(record)
        if point.strategy.columns().get("collective") == Collective.NCCL:
            log = RunFiles(session.place.sweep_dir / "runs" / f"{record.run_id}.json").log
            item = gpu_checks.judge_nccl(item, log.read_text(encoding="utf-8", errors="replace"))
        yield item
    if max(point.num_workers for point in points.values()) < 2:
        name = "trains: allreduce over RING and NCCL, 2 workers"
        yield gpu_checks.impossible(name, "there is one GPU")


def _require_gpus(hosts: Sequence[HostFacts]) -> None:
    without = [host.name for host in hosts if not host.gpus]
    if without:
        raise UserError(f"{', '.join(without)}: there is no GPU that CUDA would show here.")


def _reference(settings: LauncherSettings) -> Experiment:
    """The same model on one worker's processors."""
    return Experiment(
        strategy=Single(),
        launcher=settings.launcher,
        spread=SpreadRequest().spread(settings.launcher),
        network=network_of(settings),
        interface=settings.interface,
        measurement=gpu_points.PROFILE.measurement,
    )


def conclusion(items: Sequence[Item], folder: Path) -> str:
    """How it went, and what to send."""
    counts = {verdict: sum(item.verdict is verdict for item in items) for verdict in ItemVerdict}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    failed = [item.run for item in items if item.verdict is ItemVerdict.FAILED and item.run]
    logs = "".join(f"\n  {folder}/runs/{run}.log" for run in dict.fromkeys(failed))
    return (
        f"{told}. Please send this to the project, passed or not, as nobody of it has a GPU:"
        f"\n  {folder}/accept_gpu.json\n  the records, {folder}/runs/*/*.json{logs}"
    )
