"""What the suite says, plans and writes is what the files hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.__main__ import cli
from analysis.figures import style
from experiments.cli import plan
from experiments.cli.requests import StudyRequest, SweepRequest
from experiments.cli.settle import in_small_form
from experiments.export.exported import Start
from experiments.export.training_folder import TAKEN, write_training
from experiments.studies import incast
from experiments.studies.catalogue import STUDIES
from experiments.sweep.definition import Choices
from experiments.sweep.sweep import QUICK
from launchers.run.launcher import Capacity
from launchers.settings import LauncherSettings
from ps_allreduce.errors import UserError
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.shapes import known_variables
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Workload
from ps_allreduce.terminal import Terminal
from tests.analysis.conftest import blank
from tests.analysis.report.pages.test_page import Balance
from tests.experiments.conftest import pretend_machines, run
from tests.experiments.export.test_training_folder import EXAMPLES, training
from tests.goldens import golden
from tests.goldens.made_sweeps import SWEEPS

LAUNCHERS = ("local", "emulated", "slurm")

#: Hosts of a plan, where a study does not say how many it wants.
HOSTS = 4

DRY_RUNS = {
    "local": "compare --launcher local",
    "emulated": "ps-sweep --launcher emulated --hosts 4 --bandwidth 1gbit",
    "slurm": "compare --launcher slurm --hosts 4 --cores-per-worker 4 --partition batch",
    "slurm-by-size": "allreduce-sweep --launcher slurm --hosts 4 --cores-per-worker 4 "
    "--jobs-by-size",
}

EXPORTS = {"servers": Start.SLURM}

#: What tests of rooms hold sentences of.
SENTENCES = (
    *("batch_scripts", "cells", "contenders", "doctor", "findings", "labels", "layouts", "make"),
    *("names", "networks", "one_line", "placements", "plans", "records", "refusals", "texts"),
    *("equal_hosts", "tried", "validity"),
    *(f"published/{name}" for name, study in STUDIES.items() if study.small),
    *(
        f"verdict/{group}"
        for group in ("sides", "as_shipped", "transports", "models", "circumstances", "losses")
    ),
)

NAMES = {
    *(f"sweeps/{n}/{file}" for n in SWEEPS for file in ("summary.csv", "report.txt", "screen.txt")),
    *(f"identities/{name}.txt" for name in STUDIES),
    *(f"dry_runs/{name}.txt" for name in DRY_RUNS),
    *(f"exports/{name}.txt" for name in EXPORTS),
    *(f"sentences/{name}.txt" for name in SENTENCES),
}


class PageText(Balance):
    """The text of a page, a line for each paragraph and each row of a table."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if tag in ("td", "th"):
            self.text.append("|")
        elif tag not in ("strong", "code", "a", "dd"):
            self.text.append("\n")


def page_text(html: str) -> str:
    page = PageText()
    page.feed(html)
    return re.sub(r"\s*\n\s*", "\n", " ".join(page.text)).lstrip() + "\n"


def rounded(text: str) -> str:
    """Without the digits in which processors of another kind add up otherwise."""
    return re.sub(r"\d+\.\d{9,}(e[+-]\d+)?", lambda found: f"{float(found[0]):.12g}", text)


@pytest.mark.parametrize("name", SWEEPS)
def test_what_is_said_of_a_sweep(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(style, "render_figure", blank)
    folder = Path(name)
    SWEEPS[name](folder)
    said = CliRunner().invoke(cli, ["report", name], catch_exceptions=False)
    golden.check(
        {
            f"sweeps/{name}/screen.txt": f"{said.output}Exit status: {said.exit_code}\n",
            f"sweeps/{name}/report.txt": rounded(page_text((folder / "report.html").read_text())),
            f"sweeps/{name}/summary.csv": rounded((folder / "summary.csv").read_text()),
        }
    )


@cache
def variables_of(workload: Workload) -> Sequence[VariableSpec]:
    """Those of a model that takes TensorFlow to be built are InceptionV3's, beside its tables."""
    model = workload.model
    found: Sequence[VariableSpec] = getattr(model, "variables", None) or known_variables(
        "InceptionV3"
    )
    if not isinstance(model, RecommenderModel):
        return found
    width = model.tables.width
    tables = [
        VariableSpec(
            name="table", shape=(rows, width), dtype="float32", trainable=True, is_table=True
        )
        for rows in model.tables.rows
    ]
    return [*tables, *found]


def points_of(name: str, profile: str, launcher: str) -> Iterator[str]:
    """The points that a study has on hosts with four cores each, as `make` asks for it."""
    study = STUDIES[name]
    small = study.small if profile == QUICK else None
    hosts = small.hosts if small else HOSTS
    emulated = launcher == "emulated"
    settings = LauncherSettings(
        launcher=launcher,
        hosts=None if launcher == "local" else hosts,
        bandwidth=1e9 if emulated and not small else None,
    )
    sweep = SweepRequest(profile=study.profiles[profile])
    request = StudyRequest(name=name, study=study, launcher=settings, sweep=sweep)
    capacity = Capacity(
        num_hosts=hosts if settings.hosts else 1,
        cores_per_host=1 if emulated else 4,
        shared_cores=hosts if emulated else None,
    )
    try:
        planned = plan.plan_sweep(
            in_small_form(request), capacity, variables_of, Choices(), Terminal(quiet=True)
        )
    except UserError as error:
        yield f"refused: {error}"
        return
    yield from (f"{point.experiment_id} {point.title}" for point in planned.points)


@pytest.mark.parametrize("name", STUDIES)
def test_the_points_of_a_study(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Strategies that not every environment can train are there, and all of TCP.
    monkeypatch.setattr(plan, "absence", lambda _: "")
    monkeypatch.setattr(incast, "AVAILABLE", tmp_path / "available")
    incast.AVAILABLE.write_text("reno bbr cubic")
    lines = [
        line
        for profile, launcher in product(STUDIES[name].profiles, LAUNCHERS)
        for line in (f"# {profile}, {launcher}", *points_of(name, profile, launcher))
    ]
    golden.check({f"identities/{name}.txt": "\n".join(lines) + "\n"})


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which nothing tells of this machine."""
    monkeypatch.setattr(sys, "executable", "/suite/.venv/bin/python")
    monkeypatch.setenv("PYTHONPATH", "/suite")
    return tmp_path


@pytest.mark.parametrize("name", DRY_RUNS)
def test_a_dry_run(
    name: str,
    nowhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretend_machines(monkeypatch, nowhere).num_hosts = HOSTS if name == "emulated" else 1
    words = [*DRY_RUNS[name].split(), "--dry-run"]
    monkeypatch.setattr(sys, "argv", ["experiments", *words])
    status = run(*words)
    told = "".join(capsys.readouterr()).replace(str(nowhere), "/home/ann")
    told = re.sub(r"\d{8}-\d{6}", "20260101-000000", told)
    golden.check({f"dry_runs/{name}.txt": f"{told}Exit status: {status}\n"})


@pytest.mark.parametrize("name", EXPORTS)
def test_an_exported_training(name: str, nowhere: Path) -> None:
    """The names of all files, and what is in those that were made for it."""
    target = nowhere / "training"
    write_training(training(EXAMPLES[name], EXPORTS[name], nowhere), target)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    lines = [path.relative_to(target).as_posix() for path in files]
    for path in files:
        if path.parent == target and not (TAKEN / path.name).exists():
            lines += [f"==> {path.name} <==", path.read_text(encoding="utf-8")]
    golden.check({f"exports/{name}.txt": "\n".join(lines)})


def test_no_file_is_left_over() -> None:
    left = golden.there() - NAMES
    if golden.is_renewing():
        for name in left:
            (golden.FILES / name).unlink()
    else:
        assert left == set()
