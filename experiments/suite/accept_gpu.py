"""The checklist for a first use on GPUs: `python -m experiments accept-gpu`.

Decides how many workers there are, which experiments show what has to be shown, the order of the
items, what is said at the end, and what is kept to be sent.  What an item asks for is decided in
`gpu_checks`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from experiments import surroundings
from experiments.cli.requests import SpreadRequest
from experiments.studies.scope import Describe, Scale, Scope
from experiments.suite import gpu_checks
from experiments.suite.gate import launch_again, train
from experiments.suite.gpu_checks import Item, ItemVerdict
from experiments.sweep.folder import check_writable
from experiments.sweep.session import Session, open_session
from experiments.sweep.sweep import Profile
from launchers.settings import LauncherSettings
from launchers.sites.kinds import network_of
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.resources import Device, Resources
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    NoCommunication,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.wire import Collective
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import RunFiles, write_json
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.records import Status
from ps_allreduce.record.variables import Values
from ps_allreduce.terminal import Terminal, echo

#: A first run on a new kind of GPU may compile for minutes.
PROFILE = Profile(
    name="accept-gpu",
    measurement=Measurement.of_steps(11),
    repetitions=1,
    deadline_s=1200.0,
)

#: Long enough for ten samples.
SECONDS = replace(PROFILE.measurement, measured_s=5.0, measured_steps=20)

#: For workers that do not wait for each other: some steps of all have to fall into one window.
MANY_STEPS = replace(
    PROFILE.measurement,
    warmup=FixedWarmup(least_steps=1, least_s=1.0),
    measured_s=2.0,
    measured_steps=20,
)

#: Images of a step of all workers together, whatever their number.
GLOBAL_BATCH = 16

#: What ResNet50 keeps of an image of 224 pixels until the backward pass, at least.
BYTES_PER_IMAGE = 78e6

#: Above it the largest tensor has more elements than cuDNN counts.
MOST_IMAGES = 2500

IMAGE_BYTES = 224 * 224 * 3 * 4

#: Batches that the synthetic input keeps in the host's memory, and as many on their way.
BATCHES_ON_HOST = 8

ONE_SERVER = StrategySettings(num_ps=1)


def gpu_scope(
    reference: Experiment, hosts: Sequence[HostFacts], cores_per_host: int, describe: Describe
) -> Scope:
    """Two workers on two hosts, or on the two GPUs of one; else one worker.

    Args:
        reference: the point on processors, on the same hosts.
    """
    per_host = 1 if len(hosts) > 1 else min(2, len(hosts[0].gpus))
    spread = reference.spread
    return Scope(
        workloads=(),
        measurement=PROFILE.measurement,
        scale=Scale(
            workers=(min(2, per_host * len(hosts)),),
            cores_per_worker=max(1, min(8, cores_per_host // per_host)),
        ),
        launcher=reference.launcher,
        device=Device.GPU,
        spread=spread and replace(spread, workers_per_host=per_host),
        interface=reference.interface,
        describe=describe,
    )


def _small(
    scope: Scope,
    strategy: type[AnyStrategy],
    workers: int = 1,
    settings: StrategySettings | None = None,
) -> Experiment:
    """The small model in few steps."""
    workload = Workload(batch_per_worker=GLOBAL_BATCH // workers)
    return scope.point(workload, strategy, workers, settings)


def compared(scope: Scope) -> dict[str, Experiment]:
    """Points whose weights must be those of a single worker on processors."""
    (count,) = scope.scale.workers
    points = {
        "single": _small(scope, Single),
        "ps_async, 1 worker": _small(scope, AsynchronousServers, 1, ONE_SERVER),
        f"ps_sync, {count} workers": _small(scope, SynchronousServers, count, ONE_SERVER),
    }
    for collective in (Collective.RING, Collective.NCCL) if count > 1 else (Collective.RING,):
        one_pack = StrategySettings(collective=collective, bytes_per_pack=0)
        name = f"allreduce over {collective.upper()}, {count} workers"
        points[name] = _small(scope, AllReduce, count, one_pack)
    return points


def trained(scope: Scope) -> dict[str, Experiment]:
    """Points that have no weights to be compared with."""
    (count,) = scope.scale.workers
    points = {f"no_communication, {count} workers": _small(scope, NoCommunication, count)}
    if count > 1:
        served = _small(scope, AsynchronousServers, count, ONE_SERVER)
        points[f"ps_async, {count} workers"] = served
    return {name: replace(point, measurement=MANY_STEPS) for name, point in points.items()}


def sampled(scope: Scope) -> Experiment:
    """Some seconds of work that a GPU notices."""
    model = ImageModel(name="ResNet50", image_size=64)
    point = scope.point(Workload(model=model, batch_per_worker=64), Single, 1)
    return replace(point, measurement=SECONDS)


def beyond_memory(scope: Scope, host: HostFacts) -> Experiment | None:
    """A batch that no step of fits on the GPU; None if the host could not even hold it."""
    memory = host.gpus[0].memory_bytes
    if memory is None:
        return None
    images = min(MOST_IMAGES, math.ceil(1.5 * memory / BYTES_PER_IMAGE))
    if images * IMAGE_BYTES * BATCHES_ON_HOST > host.memory_bytes / 2:
        return None
    model = ImageModel(name="ResNet50", image_size=224, num_classes=1000)
    return scope.point(Workload(model=model, batch_per_worker=images), Single, 1)


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
        with open_session(place, NAME, PROFILE) as session:
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
    scope = gpu_scope(point, hosts, cores, launcher.describe)
    yield from _same_weights(session, scope, reference.final)
    for name, point in trained(scope).items():
        yield gpu_checks.judge_run(name, launch_again(session, point))
    yield gpu_checks.judge_samples(launch_again(session, sampled(scope)))
    too_large = beyond_memory(scope, hosts[0])
    ran_out = launch_again(session, too_large) if too_large else None
    yield gpu_checks.judge_out_of_memory(ran_out)


def _same_weights(session: Session, scope: Scope, reference: Values) -> Iterator[Item]:
    points = compared(scope)
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
        measurement=PROFILE.measurement,
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
