"""What docs/architecture.md says about adding something is true: a copy of the checkout with one of
each, made with exactly the files that the page names, runs.

Help, lists, a dry run and a report need no TensorFlow; tests/real/test_additions.py trains.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.goldens.made_sweeps import SWEEPS

ROOT = Path(__file__).resolve().parents[1]

STRATEGY = '''"""All-reduce of whole gradients, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ps_allreduce.point.strategies.base import Strategy, StrategySide


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAllReduce(Strategy):
    """Has no settings."""

    kind: ClassVar[str] = "plain_allreduce"
    label: ClassVar[str] = "all-reduce, plain"
    side: ClassVar[StrategySide] = StrategySide.ALL_REDUCE
    replicated: ClassVar[bool] = True
'''

BACKEND = '''"""The backend of PlainAllReduce."""

from __future__ import annotations

import tensorflow as tf

from ps_allreduce.backends.local_worker import MirroredWorker
from ps_allreduce.exchange.steps import Exchanged


class PlainAllReduceBackend(MirroredWorker):
    """Averages by the context of the replica."""

    def exchange(
        self, gradients: list[tf.Tensor], table_gradient: tf.IndexedSlices | None = None
    ) -> Exchanged:
        """Apply the mean over all workers."""
        context = tf.distribute.get_replica_context()
        mean = list(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients))
        return self.apply(gradients, mean, mean)
'''

SITE = '''"""This machine once more."""

from __future__ import annotations

from launchers.site import SiteKind
from launchers.sites.local import LocalSite

HERE = SiteKind(name="here", make=lambda settings: LocalSite(), several_hosts=False)
'''

STUDY = '''"""One worker against two of a new strategy.

Axes: the strategy.

Method: one worker, and two.

Cost: two points.

It should show that a study is added by a module and a line.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.studies.study import Study
from experiments.sweep.sweep import Profile
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.strategies import PlainAllReduce, Single

BRIEF = Measurement(warmup=FixedWarmup(least_steps=1, least_s=0.0), measured_steps=3)


def _points(scope: Scope) -> list[Experiment]:
    (workload,) = scope.workloads
    points = scope.point(workload, Single, 1), scope.point(workload, PlainAllReduce, 2)
    return [replace(point, measurement=BRIEF) for point in points]


ONCE = {"quick": Profile(name="quick", repetitions=1)}

STUDY = Study(about=__doc__, points=_points, profiles=ONCE)
'''

MODEL = '''def _linear(shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """One dense layer."""
    image = keras.Input(shape)
    tensor = keras.layers.Flatten()(image)
    return keras.Model(image, keras.layers.Dense(num_classes)(tensor), name="linear")


'''

FIGURE = '''"""The number of points, as a bar."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.data.cases import Case


def number_data(case: Case) -> pd.DataFrame:
    """How many points there are."""
    return pd.DataFrame({"points": [len(case.points)]})


def plot_number(case: Case) -> Figure | None:
    """A bar as high as there are points."""
    figure = Figure()
    figure.subplots().bar([0], [len(case.points)])
    return figure
'''

#: The strategy once more, with a setting.
WITH_SETTING = STRATEGY.replace('"""Has no settings."""', '"""Has a setting."""').replace(
    "bool] = True\n", "bool] = True\n\n    half_life: int = 5\n", 1
)

PAGE = """def _tasks(results: SweepResults) -> list[PagePart]:
    return [PagePart(sentences=[f"There were {results.block.table['num_tasks'].sum()} tasks."])]


"""

#: For each thing, the new files and their text, and the lines that go before a line of a file.
NEW = {
    "a strategy": {
        "ps_allreduce/point/strategies/plain_all_reduce.py": STRATEGY,
        "ps_allreduce/backends/plain_all_reduce.py": BACKEND,
    },
    "a launcher": {"launchers/sites/here.py": SITE},
    "a model": {},
    "a study": {"experiments/studies/new_strategy.py": STUDY},
    "a figure": {"analysis/figures/number.py": FIGURE},
    "a page": {},
    "a setting": {"ps_allreduce/point/strategies/plain_all_reduce.py": WITH_SETTING},
    "a column": {},
}

#: For each thing and file, what is replaced by what.
CHANGED = {
    "a strategy": {
        "ps_allreduce/point/strategies/__init__.py": [
            (
                "from ps_allreduce.point.strategies.with_servers",
                "from ps_allreduce.point.strategies.plain_all_reduce import PlainAllReduce\n"
                "from ps_allreduce.point.strategies.with_servers",
            ),
            ("| AllReduce\n", "| AllReduce | PlainAllReduce\n"),
        ],
        "ps_allreduce/backends/__init__.py": [
            (
                '    "allreduce": (',
                '    "plain_allreduce": ("plain_all_reduce", "PlainAllReduceBackend"),\n'
                '    "allreduce": (',
            ),
        ],
    },
    "a launcher": {
        "launchers/sites/kinds.py": [
            (
                "from launchers.sites.local",
                "from launchers.sites.here import HERE\nfrom launchers.sites.local",
            ),
            ("(LOCAL, ", "(HERE, LOCAL, "),
        ],
    },
    "a model": {
        "ps_allreduce/point/models/trained.py": [
            (
                "    SMALL_CNN: Architecture(",
                '    "Linear": Architecture(minimum_image_size=1, designed_image_size=32),\n'
                "    SMALL_CNN: Architecture(",
            ),
        ],
        "ps_allreduce/workloads/keras_models.py": [
            ("#: Image models that Keras does not", f"{MODEL}#: Image models that Keras does not"),
            ("    SMALL_CNN: _small_cnn,", '    "Linear": _linear,\n    SMALL_CNN: _small_cnn,'),
        ],
    },
    "a study": {
        "experiments/studies/catalogue.py": [
            (
                "from experiments.studies.study",
                "from experiments.studies import new_strategy\nfrom experiments.studies.study",
            ),
            (
                '    "compare": compare.STUDY,\n',
                '    "compare": compare.STUDY,\n    "new-strategy": new_strategy.STUDY,\n',
            ),
        ],
    },
    "a figure": {
        "analysis/figures/save.py": [
            (
                "from analysis.figures.style",
                "from analysis.figures.number import number_data, plot_number\n"
                "from analysis.figures.style",
            ),
            (
                "KINDS = (\n",
                'KINDS = (\n    FigureKind(name="number", title="Points", caption="How many there '
                'are.", plot=plot_number, data=number_data),\n',
            ),
        ],
    },
    "a page": {
        "analysis/report/pages/pages.py": [
            ("#: Of the whole sweep.\n", f"{PAGE}#: Of the whole sweep.\n"),
            ('    ("failed", "What', '    ("tasks", "Tasks"): _tasks,\n    ("failed", "What'),
        ],
    },
    "a setting": {
        "ps_allreduce/point/strategies/stated.py": [
            (
                "    cycle_ms: float",
                '    half_life: int | None = setting("steps of half a life.")\n    cycle_ms: float',
            ),
        ],
        "analysis/data/columns.txt": [("cycle_ms:f = ", "cycle_ms:f half_life:i = ")],
    },
    "a column": {
        "analysis/data/rows.py": [
            (
                '        "busy": busy',
                '        "num_tasks": len(record.tasks),\n        "busy": busy',
            ),
        ],
        "analysis/data/columns.txt": [
            ("hot_shard:f = ", "num_tasks:i = tasks that have told of themselves\nhot_shard:f = "),
        ],
    },
}


#: Tests of what holds for every strategy, study and module.
CONTRACTS = (
    *("tests/ps_allreduce/point/test_strategies.py", "tests/experiments/suite/test_gate.py"),
    *("tests/experiments/suite/test_accept_gpu.py", "tests/experiments/studies/test_studies.py"),
    "tests/experiments/suite/test_emulation_check.py::test_every_strategy_bursts_at_the_whole_rate_on_two_hosts_and_on_all",
    *("tests/test_results_format.py", "tests/test_architecture.py"),
)


@pytest.mark.parametrize("what", NEW)
def test_the_page_names_the_files_that_have_to_be_touched(what: str) -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {what}[^|]* \| (.*) \|$", page, re.MULTILINE)
    named = re.findall(r"`([^`]+)`", row)
    touched = {f"{Path(new).parent.as_posix()}/" for new in NEW[what]} | set(CHANGED[what])
    assert set(named) == touched


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy") / "checkout"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "results", "wheelhouse")
    shutil.copytree(ROOT, copy, ignore=left_out)
    for files in NEW.values():
        for path, text in files.items():
            (copy / path).write_text(text, encoding="utf-8")
    for changes in CHANGED.values():
        for path, replaced in changes.items():
            text = (copy / path).read_text(encoding="utf-8")
            for old, new in replaced:
                assert text.count(old) == 1, f"{path}: {old!r}"
                text = text.replace(old, new)
            (copy / path).write_text(text, encoding="utf-8")
    return copy


def run(checkout: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "PYTHONPATH": str(checkout)},
        capture_output=True,
        check=False,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_help_lists_and_make_know_what_was_added(checkout: Path) -> None:
    shown = run(checkout, "experiments", "run-one", "--help-all")
    assert "plain_allreduce: steps of half a life. [default: 5]" in " ".join(shown.split())
    assert "[here|local|" in shown
    assert "Linear" in run(checkout, "experiments", "models")
    assert "new-strategy: One worker against two" in run(checkout, "experiments", "list")
    done = subprocess.run(["make"], cwd=checkout, capture_output=True, check=True, text=True)
    assert "make new-strategy" in done.stdout


def test_what_holds_for_all_strategies_and_studies_holds(checkout: Path) -> None:
    assert " passed" in run(checkout, "pytest", "-q", "-x", "-p", "no:cacheprovider", *CONTRACTS)


def test_a_report_has_the_figure_the_page_and_the_columns(checkout: Path) -> None:
    SWEEPS["quick"](checkout / "results/quick")
    run(checkout, "analysis", "report", "results/quick")
    summary = pd.read_csv(checkout / "results/quick/summary.csv")
    assert {"half_life", "num_tasks"} <= set(summary)
    report = (checkout / "results/quick/report.html").read_text(encoding="utf-8")
    assert f"There were {summary.num_tasks.sum()} tasks." in report
    assert (checkout / "results/quick/number.png").stat().st_size > 1000
    assert (checkout / "results/quick/number.csv").read_text().startswith("points")
