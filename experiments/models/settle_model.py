"""The user's own model: found where it lies, copied, tried on this machine, and told of.

Decides that all of this happens before any host is touched, in processes of their own, and that
what goes wrong there is the user's mistake, in a sentence; and what is said of a model.  How it is
typed is decided in `model_text`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from experiments import surroundings
from experiments.models.model_text import ModelCode, in_order, is_own, model_code
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.defaults import OwnTraining
from launchers.run.launcher import HostsLauncher
from launchers.settings import LauncherSettings
from ps_allreduce.errors import HostFault, LaunchError, TookTooLong, UserError
from ps_allreduce.inspection.model_facts import FoundModel, TriedModel, trainable_parameters
from ps_allreduce.model_files import copy_files
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import OnRows, optimizer_text
from ps_allreduce.point.placement import Policy, VariableSpec, default_split_bytes, make_plan
from ps_allreduce.record.variables import MADE_DENSE
from ps_allreduce.scratch import open_regular

#: For building a model, and for building it again with some steps.
DEADLINE_S = 300.0


def settle_model(request: WorkloadRequest, results: Path, console: Console) -> WorkloadRequest:
    """The request with the user's own model tried, if it is for one; else as it is.

    Args:
        results: the copies of the model's files go below it.

    Raises:
        UserError: there is no such model, or it cannot be trained.
        HostFault: this machine cannot try it.
    """
    if not isinstance(request.model, str) or not is_own(request.model):
        return request
    code = model_code(request.model, Path.cwd())
    arguments = in_order(request.model_args)
    if arguments and not code.function:
        raise UserError(f"--model-arg: {code.name} is no function; leave it out.")
    _see_there(code)
    console.print(f"Trying {code.name} on this machine, with one worker.")
    with surroundings.this_machine(results) as launcher:
        with _in_a_sentence(code, f"{code.maker} did not return within {DEADLINE_S:.0f} s"):
            found = launcher.find_model(
                code.root, code.module, code.function, arguments, DEADLINE_S
            )
        digest = copy_files(code.root, found.files, LauncherSettings(results=results).data_dir)
        model = _model(code, arguments, digest, found)
        return _tried(request, code, model, launcher, console)


def _model(code: ModelCode, arguments: tuple[str, ...], digest: str, found: FoundModel) -> OwnModel:
    return OwnModel(
        name=code.name,
        module=code.module,
        function=code.function,
        arguments=arguments,
        digest=digest,
        unit=found.unit,
        tokens_per_example=found.tokens_per_example,
        has_dataset=found.has_dataset,
        learning=found.learning,
    )


def _tried(
    request: WorkloadRequest,
    code: ModelCode,
    model: OwnModel,
    launcher: HostsLauncher,
    console: Console,
) -> WorkloadRequest:
    """Try a model as it is to be trained, but for what stands in for its computation."""
    asked = replace(request, model_args=(), precision=None)
    real = replace(asked, emulate=None, worker_factors=None, jitter=None)
    workload = real.workload(OwnTraining(model=model))
    late = f"{code.name} was not built and did not make some steps within {DEADLINE_S:.0f} s"
    with _in_a_sentence(code, late):
        tried = launcher.try_model(workload, DEADLINE_S)
    console.print(render_tried(model.name, tried, workload.examples_per_step))
    training = OwnTraining(
        model=replace(model, notes=tried.notes, only_whole=tried.only_whole),
        optimizer=tried.optimizer,
        precision=tried.precision,
    )
    settled = replace(asked, model=training, precision=request.precision)
    settled.workload(training)  # refuses what does not suit the model
    return settled


@contextmanager
def _in_a_sentence(code: ModelCode, late: str) -> Iterator[None]:
    """What ends a process of the user's code, or never does, is the user's mistake."""
    try:
        yield
    except TookTooLong as error:
        raise UserError(f"{late}: it has to return a model, and to train nothing.") from error
    except HostFault:
        raise
    except LaunchError as error:
        raise UserError(f"{code.name} cannot be used: {error}") from error


def _see_there(code: ModelCode) -> None:
    for path in code.files:
        try:
            open_regular(path).close()
            return
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    names = [str(path.relative_to(code.root)) for path in code.files]
    missing = f"--model {code.name}: there is no {' and no '.join(names)} in {code.root}."
    if len(names) > 1:
        missing += (
            " A module is looked for in the present folder only, and not in PYTHONPATH; of one "
            "elsewhere, write path/file.py:function."
        )
    raise UserError(missing)


#: For so many servers the balance of every placement is told.
SERVERS = (2, 4, 8)


def render_tried(name: str, tried: TriedModel, examples: int) -> str:
    """A paragraph about a model, the balance of every placement, and every note.

    Args:
        examples: of a step of one worker.
    """
    trainable = [spec for spec in tried.variables if spec.trainable]
    largest = max(trainable, key=lambda spec: spec.num_bytes)
    parameters = trainable_parameters(trainable)
    total = sum(spec.num_bytes for spec in trainable)
    servers = ", ".join(map(str, SERVERS))
    lines = [
        f"{name}: {parameters:,} trainable parameters in {len(trainable)} variables, "
        f"{total / 1e6:.3g} MB; largest {largest.name} with {largest.num_bytes / 1e6:.3g} MB. A "
        f"step with {examples} examples takes {tried.step_s * 1e3:.3g} ms here, and a worker "
        f"{tried.peak_memory_bytes / 1e9:.1f} GB of memory. It is trained with "
        f"{optimizer_text(tried.optimizer)}, in {tried.precision}. Bytes of the hottest server "
        f"over the mean (1.00 is balanced), with {servers} servers:",
        *(_balance_line(policy, tried.variables) for policy in Policy),
        *(f"{note[:1].upper()}{note[1:]}." for note in _told_notes(tried)),
        *_about_tables(tried),
    ]
    return "\n".join(lines)


def _told_notes(tried: TriedModel) -> list[str]:
    """Without a note for the gradient of each table, of which the last line tells."""
    if not _about_tables(tried):
        return list(tried.notes)
    return [note for note in tried.notes if MADE_DENSE not in note]


def _about_tables(tried: TriedModel) -> list[str]:
    """Whether rows of tables can be exchanged alone; nothing of a model without tables."""
    tables = sum(spec.is_table for spec in tried.variables)
    if not tables:
        return []
    if tried.only_whole:
        return [f"No rows of tables can be exchanged alone: {tried.only_whole}."]
    if tried.optimizer.on_rows is None:
        return [
            f"No rows of tables can be exchanged alone: {tried.optimizer.kind} changes those that "
            "nobody has looked up too."
        ]
    lazily = tried.optimizer.on_rows is OnRows.LAZY
    return [
        f"Rows of {tables} table{'s' * (tables > 1)} can be exchanged alone (--embeddings sparse)"
        + (f"; {tried.optimizer.kind} then changes no others." if lazily else ".")
    ]


def _balance_line(policy: Policy, variables: Sequence[VariableSpec]) -> str:
    shares = (_max_over_mean(policy, variables, count) for count in SERVERS)
    return f"  {policy:<14}" + "".join(f"{share:>6}" for share in shares)


def _max_over_mean(policy: Policy, variables: Sequence[VariableSpec], num_ps: int) -> str:
    try:
        plan = make_plan(policy, variables, num_ps, default_split_bytes(variables, num_ps))
    except UserError:  # fewer variables than servers
        return "-"
    return f"{plan.max_over_mean:.2f}"
