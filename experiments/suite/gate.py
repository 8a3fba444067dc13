"""The correctness gate for a model: `python -m experiments gate`.

Decides the order of the runs, which are made anew at every call, what is said of what cannot agree,
and what is kept.  Which runs are compared is decided in `gate_arms`, and when they agree in
`agreement`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.wording import workers_text
from experiments import surroundings
from experiments.cli.requests import SpreadRequest
from experiments.models.settle_model import settle_model
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.defaults import default_cores
from experiments.studies.scope import Scale, Scope, check_servers
from experiments.suite import gate_arms
from experiments.suite.gate_arms import LIMIT, GateArm, GateVerdict, compare, render_arms
from experiments.sweep.folder import check_writable
from experiments.sweep.progress import plain_console
from experiments.sweep.session import Session, Workplace, open_session, run_uninterrupted
from experiments.sweep.sweep import Profile
from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings
from launchers.sites.kinds import network_of
from ps_allreduce.errors import LaunchError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.optimizers import OnRows
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Scaling, Workload
from ps_allreduce.record.choices import GATE
from ps_allreduce.record.files import write_json
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.record.variables import RunWeights, load_weights
from ps_allreduce.scratch import scratch_parent
from ps_allreduce.terminal import Terminal

#: Tracing a large model may take minutes.
PROFILE = Profile(name=GATE, measurement=gate_arms.MEASUREMENT, repetitions=1, deadline_s=1200.0)

#: A table is as wide as its words; a terminal that is narrower folds the lines.
MOST_COLUMNS = 250

#: So many variables are named of each kind.
MOST_NAMED = 3

#: How Keras calls the state of a generator of random numbers.
SEED = "seed_generator_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """Everything that was asked for of a gate."""

    num_workers: int = 2
    num_ps: int = 2
    launcher: LauncherSettings
    spread: SpreadRequest
    workload: WorkloadRequest

    def __post_init__(self) -> None:
        Servers(num_ps=self.num_ps)
        if self.num_workers < 2:
            raise UserError(
                f"a single worker agrees with itself: num_workers must be 2 or more, got "
                f"{self.num_workers}."
            )
        if self.workload.scaling is Scaling.STRONG:
            raise UserError("every worker of the gate has a batch of its own: leave --scaling out.")
        if self.workload.emulate is not None:
            raise UserError(
                "an emulated accelerator computes no gradients that could be wrong: leave "
                "--emulate out."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What is kept of a gate.

    Attributes:
        limit: of distances, relative to the distance trained.
        notes: what is switched off, not compared or left out, a sentence each.
    """

    workload: Workload
    num_workers: int
    num_ps: int
    steps: int
    limit: float
    arms: tuple[GateArm, ...]
    notes: tuple[str, ...]
    provenance: Provenance

    @property
    def holds(self) -> bool:
        """All arms agree."""
        return all(arm.verdict is GateVerdict.AGREES for arm in self.arms)


def run_gate(request: GateRequest) -> int:
    """Make all runs, compare their weights and show what was found.

    Returns:
        The exit status: 0 if all agree.

    Raises:
        UserError: it cannot be run here, or the model cannot be kept from drawing random numbers.
        LaunchError: a single worker cannot be trained.
    """
    folder = request.launcher.results / GATE
    check_writable(folder)
    workload = settle_model(request.workload, request.launcher.results, plain_console())
    request = replace(request, workload=workload)
    with surroundings.workplace(request.launcher, folder) as place:
        result, path = _passed_through(request, place)
    _show(result, path)
    return 0 if result.holds else 1


def _passed_through(request: GateRequest, place: Workplace) -> tuple[GateResult, Path]:
    workload = gate_arms.gate_workload(request.workload)
    variables = place.launcher.describe(workload)
    scope = _scope(request, workload, place.launcher, variables)
    points = gate_arms.arms(scope, request.num_ps)
    check_servers(points, place.launcher.describe)
    references = list(dict.fromkeys(map(gate_arms.reference_of, points)))
    for point in (*references, *points):
        place.launcher.check(point)
    place.launcher.prepare(workload)
    trainable = [spec.name for spec in variables if spec.trainable]
    with open_session(place, GATE, PROFILE) as session:
        place.listener.begin(len(references) + len(points), 0)
        found = tuple(compared(session, points, trainable))
        result = GateResult(
            workload=workload,
            num_workers=request.num_workers,
            num_ps=request.num_ps,
            steps=gate_arms.STEPS,
            limit=LIMIT,
            arms=found,
            notes=tuple(notes(scope, variables)),
            provenance=session.made[0].provenance,
        )
        path = place.sweep_dir / f"{references[0].experiment_id}.json"
        write_json(path, result)
    return result, path


def _scope(
    request: GateRequest,
    workload: Workload,
    launcher: HostsLauncher,
    variables: Sequence[VariableSpec],
) -> Scope:
    spread, workers = request.spread.spread(request.launcher.launcher), (request.num_workers,)
    cores = default_cores(workers, spread, launcher.capacity())
    split_bytes = gate_arms.gate_split_bytes(variables, request.num_ps)
    return Scope(
        workloads=(workload,),
        measurement=PROFILE.measurement,
        scale=Scale(workers=workers, cores_per_worker=cores),
        launcher=request.launcher.launcher,
        device=request.workload.device,
        spread=spread,
        network=network_of(request.launcher),
        interface=request.launcher.interface,
        settings=StrategySettings(split_bytes=split_bytes),
        describe=launcher.describe,
    )


def compared(
    session: Session, points: Sequence[Experiment], names: Sequence[str]
) -> Iterator[GateArm]:
    """Every point beside its reference, as soon as both have trained.

    Args:
        names: of the trainable variables.
    """
    references = [gate_arms.reference_of(point) for point in points]
    for reference in dict.fromkeys(references):  # one after the other: weights take memory
        base, weights = train(session, reference)
        if base.status is not Status.OK or weights is None:
            raise LaunchError(f"a single worker cannot be trained: {_why(base)}")
        for point, wanted in zip(points, references, strict=True):
            if wanted == reference:
                yield _arm(session, point, base, weights, names)


def _arm(
    session: Session,
    point: Experiment,
    base: RunRecord,
    reference: RunWeights,
    names: Sequence[str],
) -> GateArm:
    record, weights = train(session, point)
    arm = GateArm(name=_name_of(point), run=record.run_id, reference=base.run_id)
    if record.status is not Status.OK or weights is None:
        return replace(arm, reason=_why(record))
    found = compare(weights.final, reference, names)
    if not math.isfinite(found.distance):
        return replace(arm, reason="the weights are not finite")
    return replace(arm, agreement=found)


def _why(record: RunRecord) -> str:
    return record.reason or "; ".join(record.warnings)


def _name_of(point: Experiment) -> str:
    workers = workers_text(point.num_workers)
    return ", ".join([str(point.strategy), workers, *point.strategy.title_parts()])


def notes(scope: Scope, variables: Sequence[VariableSpec]) -> Iterator[str]:
    """What is switched off, not compared or left out, a sentence each."""
    kept = [spec.name for spec in variables if not spec.trainable]
    drawing = [name.removesuffix(f"/{SEED}") for name in kept if name.endswith(SEED)]
    local = [name for name in kept if not name.endswith(SEED)]
    if drawing:
        yield f"Switched off, because they draw random numbers: {_some(drawing)}."
    if local:
        yield (
            f"Not compared, because they are not trained and every worker keeps its own: "
            f"{_some(local)}."
        )
        yield (
            "Plain TensorFlow rounds updates in another way, which batch norm may make large: "
            "where a stock arm differs, look at it with altered optimizer (docs/gate.md)."
        )
    (workload,), (workers,) = scope.workloads, scope.scale.workers
    if gate_arms.squares_parts(workload):
        yield (
            f"Left out, because Keras' {workload.optimizer.keras_class} squares each part of a "
            "sparse gradient, and the suite their sum: stock_ps, stock_allreduce."
        )
    if any(spec.is_table for spec in variables):
        yield from _about_rows(workload)
    if not gate_arms.aggregates(workers, scope.spread):
        yield (
            "Left out, because it needs hosts with equally many workers and more than one "
            "(--workers-per-host): host_aggregation."
        )


def _about_rows(workload: Workload) -> Iterator[str]:
    """Of a model with tables: why none is exchanged by rows, or what such settings agree with."""
    if refusal := workload.sparse_refusal():
        yield f"Left out, sparse embeddings: {refusal}"
    elif workload.optimizer.on_rows is OnRows.LAZY:
        yield (
            f"Sparse embeddings are compared with a single worker that has them too: "
            f"{workload.optimizer.kind} changes the rows of a step alone, and whole tables train "
            "other weights (docs/embeddings.md)."
        )


def _some(names: Sequence[str]) -> str:
    further = len(names) - MOST_NAMED
    shown = ", ".join(names[:MOST_NAMED])
    return f"{shown} and {further} more" if further > 0 else shown


def _show(result: GateResult, path: Path) -> None:
    console = Terminal(highlight=False, markup=False, soft_wrap=True, width=MOST_COLUMNS)
    console.print(
        f"Weights of {result.workload.model.name} after {result.steps} steps, compared with a "
        "single worker that takes the same batches:"
    )
    console.print(render_arms(result.arms))
    agreed = sum(arm.verdict is GateVerdict.AGREES for arm in result.arms)
    console.print(
        f"{agreed} of {len(result.arms)} settings agree: their weights differ by at most "
        f"{result.limit:.0e} of the distance trained."
    )
    reasons = [f"{arm.name}: {arm.reason}." for arm in result.arms if arm.reason]
    for sentence in (*reasons, *result.notes, f"Kept: {path}"):
        console.print(sentence)


def launch_again(session: Session, point: Experiment, weights: Path | None = None) -> RunRecord:
    """One more run of a point; every one is recorded.

    Args:
        weights: file that takes the weights.

    Raises:
        UserError: it cannot be run here, or the folder cannot be used.
        LaunchError: the host has a fault that does not pass.
        KeyboardInterrupt: somebody has ended the run.
    """
    session.place.launcher.check(point)
    return run_uninterrupted(session, point, weights)


def train(session: Session, point: Experiment) -> tuple[RunRecord, RunWeights | None]:
    """The same, with the weights; None if it did not get so far."""
    with tempfile.TemporaryDirectory(dir=scratch_parent()) as folder:
        path = Path(folder) / "weights.npz"
        record = launch_again(session, point, path)
        return record, load_weights(path) if path.exists() else None
