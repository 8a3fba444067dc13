"""The checklist for a first use on GPUs: `python -m experiments accept-gpu`.

Decides the order of the items, what is said at the end, and what is kept to be sent.  What an item
asks for is decided in `gpu_checks`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.suite.gpu_checks import (
    Item,
    Verdict,
    Weights,
    judge_driver,
    judge_nccl,
    judge_out_of_memory,
    judge_run,
    judge_samples,
    judge_visibility,
    judge_weights,
    render,
)
from experiments.suite.gpu_points import STEPS, Ground
from experiments.sweep.execute import Follower, Session, open_session, run_once
from experiments.sweep.folder import locked
from experiments.sweep.sweep import PlannedRun
from launchers import EMULATED, LOCAL
from launchers.run.launcher import HostsLauncher
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.experiment import Collective, Experiment
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.hosts import HostFacts
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.serialization import to_json

NAME = "accept-gpu"

#: TF32 would round the inputs of every product to ten bits; NCCL tells in the log that it is there.
SETTINGS = {"NVIDIA_TF32_OVERRIDE": "0", "NCCL_DEBUG": "VERSION"}


@dataclass(slots=True)
class Checklist:
    """Makes runs for the items; every one is recorded."""

    session: Session
    folder: Path

    def run(self, experiment: Experiment, weights: Path | None = None) -> RunRecord:
        """One more run of a point."""
        repetition = self.session.history.next_repetition(experiment.experiment_id)
        run = PlannedRun(experiment=experiment, repetition=repetition)
        self.session.launcher.check(experiment)
        record = run_once(self.session, run, weights)
        if record.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return record

    def run_for_weights(self, experiment: Experiment) -> tuple[RunRecord, Weights]:
        """The same, with the weights that it ended with."""
        path = self.folder / "weights.npz"
        path.unlink(missing_ok=True)
        record = self.run(experiment, path)
        if not path.exists():
            return record, ()
        with np.load(path, allow_pickle=False) as archive:
            weights = [archive[name] for name in sorted(archive.files)]
        path.unlink()
        return record, weights


def accept_gpu(
    launcher: HostsLauncher,
    given: dict[str, Any],
    commit: str,
    follower: Follower,
    say: Callable[[str], None],
) -> int:
    """Go through the checklist; return the exit status, 0 if no item failed.

    Raises:
        UserError: there is no GPU.
        LaunchError: the reference cannot be trained.
    """
    if given["launcher"] == EMULATED:
        raise UserError("emulated hosts have no GPUs; use another launcher.")
    folder = (given["results"] / NAME).resolve()
    with locked(folder):
        session = open_session(launcher, NAME, folder, commit, follower)
        items = []
        for item in go_through(Checklist(session, folder), given, launcher):
            say(render(item))
            items.append(item)
        path = folder / "accept_gpu.json"
        write_atomically(path, (json.dumps(to_json(items), indent=1) + "\n").encode())
    say(conclusion(items, folder))
    return 1 if any(item.verdict is Verdict.FAILED for item in items) else 0


def go_through(
    checklist: Checklist, given: dict[str, Any], launcher: HostsLauncher
) -> Iterator[Item]:
    """All items, each as soon as it is known."""
    _require_gpus(launcher.host_facts())
    record, reference = checklist.run_for_weights(_reference(given))
    # A cluster's hosts can be asked; this machine tells of itself in a run.
    hosts = launcher.host_facts() or tuple(host.facts for host in record.hosts)
    _require_gpus(hosts)
    if record.status is not Status.OK:
        raise LaunchError(f"the reference on processors cannot be trained: {record.reason}")
    yield judge_driver(hosts)
    cores = launcher.capacity().cores_per_host
    ground = Ground.of(given["launcher"], given["interface"], hosts, cores)
    for name, point in ground.compared().items():
        record, weights = checklist.run_for_weights(point)
        if point == ground.synchronous():
            yield judge_visibility(record)
        yield judge_weights(name, record, weights, reference)
    for name, point in ground.trained().items():
        yield judge_run(name, checklist.run(point))
    yield _nccl(checklist, ground, reference)
    yield judge_samples(checklist.run(ground.sampled()))
    yield _out_of_memory(checklist, ground)


def _require_gpus(hosts: Sequence[HostFacts]) -> None:
    without = [host.name for host in hosts if not host.gpus]
    if without:
        raise UserError(f"{', '.join(without)}: there is no GPU that CUDA would show here.")


def _reference(given: dict[str, Any]) -> Experiment:
    """The same network on one worker's processors."""
    return Experiment(
        strategy=Strategy.SINGLE,
        launcher=given["launcher"],
        spread=None if given["launcher"] == LOCAL else Spread(),
        interface=given["interface"],
        workload=Workload(),
        profile=STEPS,
    )


def _nccl(checklist: Checklist, ground: Ground, reference: Weights) -> Item:
    name = f"allreduce over NCCL, {ground.num_workers} workers"
    if ground.num_workers < 2:
        return Item(
            name="trains: allreduce over RING and NCCL, 2 workers",
            verdict=Verdict.IMPOSSIBLE,
            detail="there is one GPU",
        )
    record, weights = checklist.run_for_weights(ground.reduced(Collective.NCCL))
    log = checklist.folder / "runs" / f"{record.run_id}.log"
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return judge_nccl(judge_weights(name, record, weights, reference), said)


def _out_of_memory(checklist: Checklist, ground: Ground) -> Item:
    point = ground.beyond_memory()
    if point is None:
        return Item(
            name="want of memory is told as such",
            verdict=Verdict.IMPOSSIBLE,
            detail="the GPU's memory is not known, or the host has too little for such a batch",
        )
    return judge_out_of_memory(checklist.run(point))


def conclusion(items: Sequence[Item], folder: Path) -> str:
    """How it went, and what to send."""
    counts = {verdict: sum(item.verdict is verdict for item in items) for verdict in Verdict}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    failed = [item.run for item in items if item.verdict is Verdict.FAILED and item.run]
    logs = "".join(f"\n  {folder}/runs/{run}.log" for run in dict.fromkeys(failed))
    return (
        f"{told}. Please send this to the project, passed or not, as nobody of it has a GPU:"
        f"\n  {folder}/accept_gpu.json\n  the records, {folder}/runs/*/*.json{logs}"
    )
