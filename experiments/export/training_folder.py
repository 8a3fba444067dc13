"""The command `export`: from a record to a folder, written as a whole or not at all.

Decides what is in the folder, and what is said about it.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from analysis.planning.choice import MeasuredSetting, choose
from experiments.export.exported import Start, Training, environment_of, task_lines
from experiments.export.render import STARTS, Rendered, render
from experiments.surroundings import this_machine
from experiments.sweep.folder import check_folder
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import Stack
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import PATTERN, Digits
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.placement import Plan
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.serialization import to_json

#: Modules that are taken along as they are.
EXCHANGE = ROOT / "ps_allreduce" / "exchange"
TAKEN = Path(__file__).resolve().parent / "taken"

#: The package of the exported training that holds them.
PACKAGE = "gradient_exchange"

LICENCE = "# Of ps-allreduce, as it is there.  Licence: Apache-2.0, see LICENSE.\n"


def check_free(target: Path) -> None:
    """See that a training can be written there.

    Raises:
        UserError: there is something already, or the folder around it cannot be written.
    """
    check_folder(target.parent)
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} is there already and not empty: choose another --into.")


def write_training(training: Training, target: Path) -> None:
    """Write all files, under another name until they are complete.

    Raises:
        UserError: there is something already, a file is gone, or the disk refuses.
    """
    check_free(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as made:
            folder = Path(made) / "training"
            folder.mkdir()
            _fill(folder, training)
            if target.is_dir():
                target.rmdir()
            folder.replace(target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}.") from error


def _fill(folder: Path, training: Training) -> None:
    rendered = render(training)
    for each in rendered:
        _write(folder, each)
    _take_modules(folder, next(each.text for each in rendered if each.name == "train.py"))
    for name in ("launch.py", *(["launch_ssh.py"] if training.start is Start.SSH else [])):
        shutil.copyfile(TAKEN / name, folder / name)
    shutil.copyfile(ROOT / "LICENSE", folder / PACKAGE / "LICENSE")
    _copy_user_files(folder, training)
    for name, value in _values(training):
        (folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _write(folder: Path, file: Rendered) -> None:
    path = folder / file.name
    path.write_text(file.text, encoding="utf-8")
    if file.runs:
        path.chmod(0o755)


def _values(training: Training) -> Iterator[tuple[str, object]]:
    """The files that hold values."""
    record = training.measured.record
    tasks = [asdict(task) for task in training.tasks]
    yield "tasks.json", {"tasks": tasks, "environment": environment_of(record)}
    setting = {
        "experiment": to_json(record.experiment),
        "experiment_id": record.experiment_id,
        "provenance": to_json(record.provenance),
        "rate": training.measured.rate.ends,
        "launches": training.measured.launches,
    }
    yield "setting.json", setting
    if training.plan is not None:
        yield "placement.json", placement_rows(training.plan)


def placement_rows(plan: Plan) -> list[dict[str, int | None]]:
    """Every part of every variable as plain numbers."""
    names = ("variable", "server", "axis", "start", "length")
    return [{name: getattr(shard, name) for name in names} for shard in plan.shards]


def _take_modules(folder: Path, train: str) -> None:
    """Copy the modules that the training needs, and no others."""
    package = folder / PACKAGE
    package.mkdir()
    for path in modules_for(train):
        text = path.read_text(encoding="utf-8")
        (package / path.name).write_text(LICENCE + text, encoding="utf-8")


def modules_for(train: str) -> list[Path]:
    """The modules that a training imports, and those that they import, sorted by name."""
    waiting, found = {"__init__", *_imported(train, absolute=True)}, set[str]()
    while waiting:
        name = waiting.pop()
        found.add(name)
        text = _source(name).read_text(encoding="utf-8")
        waiting |= set(_imported(text, absolute=False)) - found
    return [_source(name) for name in sorted(found)]


def _source(name: str) -> Path:
    folders = (TAKEN, EXCHANGE, ROOT / "ps_allreduce" / "workloads")
    return next(path for folder in folders if (path := folder / f"{name}.py").exists())


def _imported(text: str, *, absolute: bool) -> Iterable[str]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if absolute and node.module == PACKAGE:
            yield from (alias.name for alias in node.names)
        elif absolute and node.module.startswith(f"{PACKAGE}."):
            yield node.module.removeprefix(f"{PACKAGE}.")
        elif not absolute and node.level == 1:
            yield node.module


def _copy_user_files(folder: Path, training: Training) -> None:
    """The user's own code, and input that the suite made."""
    workload = training.experiment.workload
    if isinstance(workload.model, OwnModel):
        _copy_tree(workload.model.folder(training.data_dir), folder / "model", workload.model.name)
    if isinstance(workload.data, Digits):
        source = training.data_dir / Digits.kind
        _copy_tree(source, folder / "data", f"the files {PATTERN} of {workload.data.name}")
    if isinstance(workload.data, ImageFiles):
        listed = workload.data.listed_in(training.data_dir)
        if not listed.is_file():
            raise UserError(f"the list of images {listed} is gone; run its sweep once more.")
        shutil.copyfile(listed, folder / "images.txt")


def _copy_tree(source: Path, target: Path, what: str) -> None:
    if not source.is_dir():
        raise UserError(f"{what}: the copies in {source} are gone; run its sweep once more.")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def export(results: Path, setting: str, model: str | None, start: Start | None, into: Path) -> str:
    """Write the training of a setting; return what to do with it.

    Raises:
        UserError: there is no such setting, or it cannot be written as a training.
    """
    check_free(into)
    measured = choose(results, setting, model)
    experiment = measured.record.experiment
    start = start or Start.of(experiment)
    plan, stack = _placed(experiment, measured.sweep.parent)
    training = Training(
        measured=measured,
        start=start,
        plan=plan,
        stack=stack,
        tasks=task_lines(experiment, one_machine=start is Start.LOCAL),
        data_dir=LauncherSettings(results=measured.sweep.parent).data_dir,
    )
    write_training(training, into)
    return "\n".join([f"Written: {into}", *_told(measured), _next(training, into)])


def _placed(experiment: Experiment, results: Path) -> tuple[Plan | None, Stack | None]:
    """Where variables and rows go; the model is built once to see which there are."""
    servers = experiment.strategy.servers
    if servers is None:
        return None, None
    with this_machine(results) as launcher:
        variables = launcher.describe(experiment.workload)
    return servers.plan(variables), servers.stack(variables)


def _told(measured: MeasuredSetting) -> list[str]:
    experiment = measured.record.experiment
    lines = [
        f"{experiment.title} ({experiment.experiment_id}): {measured.rate.mean:.1f} "
        f"{measured.unit}/s in {measured.launches_text}.",
        *filter(None, [measured.better_alone, measured.unread]),
    ]
    if experiment.workload.emulated is not None:
        lines.append(
            "An accelerator was emulated in the measurement: the model really computes in this "
            "training, so its rate will be another."
        )
    return lines


def _next(training: Training, into: Path) -> str:
    hosts = " hosts.txt" if training.start is Start.SSH else ""
    begin = "sbatch " if training.start is Start.SLURM else "./"
    return f"Start it: cd {shlex.quote(str(into))} && {begin}{STARTS[training.start]}{hosts}"
