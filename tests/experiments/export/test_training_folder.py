"""What is written is complete, is Python, needs nothing of the suite, and is refused if useless."""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from analysis.planning.choice import MeasuredSetting
from analysis.stats.statistics import Estimate
from experiments.export.exported import Start, Training, task_lines
from experiments.export.render import STARTS, arguments_text, quoted, render
from experiments.export.training_folder import PACKAGE, check_free, write_training
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import RowRule, Stack
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, OwnDataset, RecordFiles
from ps_allreduce.point.inputs.data_set import Cache, Encoding, ExampleForm, Pipeline, Target
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models.trained import (
    SMALL_GPT,
    SMALL_VIT,
    ImageModel,
    OwnModel,
    TextModel,
    Unit,
)
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.optimizers import Adam, AdamW, Sgd
from ps_allreduce.point.placement import Plan, Policy, Shard
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    NoCommunication,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload
from ps_allreduce.record.provenance import ROOT
from ps_allreduce.record.variables import MADE_DENSE
from tests.examples import experiments, fast
from tests.fakes import make_experiment, make_record

HOSTILE = 'it\'s "$HOME" `x` -n\n# {{ 7 }}'

OWN = OwnModel(
    name="mine.py:build",
    module="mine",
    function="build",
    arguments=("name=it's", "width=3"),
    digest="d1",
    has_dataset=True,
    unit=Unit.TOKENS,
    tokens_per_example=7,
    notes=("trained with SGD, not your Lion",),
)


def training(
    experiment: Experiment, start: Start = Start.LOCAL, data_dir: Path = Path()
) -> Training:
    """A training of an experiment that is said to be measured."""
    shard = Shard(variable=0, axis=1, start=2, length=3, server=0, num_bytes=12)
    plan = Plan(policy=Policy.ROUND_ROBIN, num_ps=1, shards=(shard,))
    sparse = experiment.strategy.is_sparse
    return Training(
        measured=MeasuredSetting(
            sweep=Path("results/compare"),
            unit="images",
            rate=Estimate(mean=100.0, low=None, high=None),
            launches=1,
            record=make_record(experiment=experiment),
        ),
        start=start,
        plan=plan if experiment.strategy.uses_servers else None,
        stack=Stack(rows=(3, 4)) if experiment.strategy.uses_servers and sparse else None,
        tasks=task_lines(experiment, one_machine=start is Start.LOCAL),
        data_dir=data_dir,
    )


def makes_sense(experiment: Experiment) -> bool:
    """It trains one model."""
    return experiment.num_workers == 1 or experiment.strategy.communicates()


@fast
@given(experiments().filter(makes_sense))
def test_any_setting_becomes_a_python_program(experiment: Experiment) -> None:
    for start in Start:
        try:
            written = training(experiment, start)
        except UserError:  # it does not fit on hosts
            continue
        program, launch, about = render(written)
        ast.parse(program.text)
        assert launch.name == STARTS[start]
        assert experiment.experiment_id in about.text
        assert len(program.text.splitlines()) < 380


@pytest.mark.parametrize("name", ["own", "rows, own", "plain, own"])
def test_gradients_are_called_dense_only_where_whole_tables_are_sent(name: str) -> None:
    example = EXAMPLES[name]
    model = replace(OWN, notes=(*OWN.notes, f"the gradient of t {MADE_DENSE}"))
    own = replace(example, workload=replace(example.workload, model=model))
    _, _, about = render(training(own))
    assert "not your Lion" in about.text
    assert (MADE_DENSE in about.text) is (name == "own")


LOOSE = ImageFiles(path="/images", num_files=9, num_bytes=99, num_classes=2, checksum="0123")

LABELS = Workload(
    data=RecordFiles(
        path="/records",
        num_files=2,
        num_bytes=99,
        checksum="0123",
        form=ExampleForm(
            encoding=Encoding.UINT16,
            channels=12,
            image_size=120,
            target=Target.LABELS,
            num_outputs=19,
        ),
        num_records=50,
    ),
    model=ImageModel(target=Target.LABELS, channels=12, num_classes=19),
    pipeline=Pipeline(cache=Cache.MEMORY, flips=True),
)

EXAMPLES = {
    "all-reduce": make_experiment(AllReduce, bytes_per_pack=None),
    "packs": make_experiment(AllReduce, workload=Workload(data=Digits())),
    "labels": make_experiment(AllReduce, workload=LABELS),
    "loose images": make_experiment(SynchronousServers, workload=Workload(data=LOOSE)),
    "servers": make_experiment(
        SynchronousServers, 4, host_aggregation=True, workload=Workload(optimizer=AdamW())
    ),
    "asynchronous": make_experiment(AsynchronousServers, staleness=2),
    "alone": make_experiment(Single, workload=Workload(precision=Precision.MIXED_FLOAT16)),
    "plain": make_experiment(StockAllReduce, 2),
    "plain, own": make_experiment(
        StockAllReduce,
        2,
        workload=Workload(model=OWN, data=OwnDataset(), optimizer=AdamW()),
    ),
    "rows, own": make_experiment(
        AllReduce,
        bytes_per_pack=None,
        embeddings=Embeddings.SPARSE,
        workload=Workload(model=OWN, data=OwnDataset(), optimizer=Adam()),
    ),
    "rows on servers": make_experiment(
        AsynchronousServers,
        embeddings=Embeddings.SPARSE,
        table_rows=RowRule.WHOLE,
        workload=Workload(model=replace(OWN, has_dataset=False), optimizer=Sgd()),
    ),
    "own": make_experiment(AllReduce, workload=Workload(model=OWN, data=OwnDataset())),
    "saved": make_experiment(
        SynchronousServers,
        workload=Workload(model=replace(OWN, module="mine.keras", function="", has_dataset=False)),
    ),
    "image transformer": make_experiment(
        AllReduce, workload=Workload(model=ImageModel(name=SMALL_VIT))
    ),
    "text": make_experiment(SynchronousServers, workload=Workload(model=TextModel(name=SMALL_GPT))),
    "Keras": make_experiment(AllReduce, workload=Workload(model=ImageModel(name="VGG16"))),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_folder_is_complete_tidy_and_needs_nothing_of_the_suite(
    name: str, tmp_path: Path
) -> None:
    for folder in ("models/d1", "digits"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "models/d1/mine.py").write_text("")
    LOOSE.listed_in(tmp_path).parent.mkdir()
    LOOSE.listed_in(tmp_path).write_text("0000000cat/a.jpg\n")
    target = tmp_path / HOSTILE.replace("/", "")
    write_training(training(EXAMPLES[name], data_dir=tmp_path), target)
    there = {path.name for path in target.iterdir()}
    assert {"train.py", "launch.py", "launch.sh", "README.md", "tasks.json", PACKAGE} <= there
    assert ("model" in there) == (isinstance(EXAMPLES[name].workload.model, OwnModel))
    assert ("images.txt" in there) == (name == "loose images")
    assert ("placement.json" in there) == EXAMPLES[name].strategy.uses_servers
    sources = [target / "train.py", *(target / PACKAGE).glob("*.py")]
    for path in sources:
        text = path.read_text(encoding="utf-8")
        compile(text, path.name, "exec")
        assert "ps_allreduce" not in text.replace("Of ps-allreduce", "")
    imported = {
        alias.name if node.module == PACKAGE else str(node.module).removeprefix(f"{PACKAGE}.")
        for node in ast.walk(ast.parse((target / "train.py").read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PACKAGE)
        for alias in node.names
    }
    assert imported <= {path.stem for path in (target / PACKAGE).glob("*.py")}
    assert (target / PACKAGE / "LICENSE").exists()
    words = [
        "check",
        "--config",
        str(ROOT / "pyproject.toml"),
        "--ignore",
        "I001,EXE",
        "--no-cache",
    ]
    said = subprocess.run(
        [sys.executable, "-m", "ruff", *words, str(target / "train.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".export")]


def test_values_are_written_as_they_are(tmp_path: Path) -> None:
    write_training(training(make_experiment(SynchronousServers)), tmp_path / "mine")
    rows = json.loads((tmp_path / "mine/placement.json").read_text())
    assert rows == [{"variable": 0, "server": 0, "axis": 1, "start": 2, "length": 3}]
    setting = json.loads((tmp_path / "mine/setting.json").read_text())
    assert setting["experiment_id"] == make_experiment(SynchronousServers).experiment_id


def test_tasks_get_cores_as_measured_side_by_side_on_one_machine() -> None:
    settings = {"num_ps": 1, "layout": LayoutKind.DEDICATED, "spread": Spread()}
    experiment = make_experiment(SynchronousServers, 2, **settings)
    here = task_lines(experiment, one_machine=True)
    assert {task.host for task in here} == {0}
    assert [task.cores for task in here if task.kind != "chief"] == [(0,), (1,), (2,)]
    there = task_lines(experiment, one_machine=False)
    assert [(task.kind, task.host, task.cores) for task in there] == [
        ("ps", 2, (0,)),
        ("worker", 0, (0,)),
        ("worker", 1, (0,)),
        ("chief", 0, (0,)),
    ]
    assert [task.drives for task in there] == [False, False, False, True]
    unspread = task_lines(make_experiment(AllReduce, 2), one_machine=False)
    assert [task.host for task in unspread] == [0, 1]


def test_what_is_no_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="these workers do not train one model"):
        training(make_experiment(NoCommunication, 2))
    with pytest.raises(UserError, match="of plain TensorFlow only its all-reduce is written"):
        training(make_experiment(StockServers, 2))
    compute = EmulatedCompute(forward_s=0.01, backward_s=0.01)
    tensors = Workload(model=TensorSet(count=2, num_bytes=800), emulated=compute)
    with pytest.raises(UserError, match="computes nothing"):
        training(make_experiment(AllReduce, workload=tensors))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    with pytest.raises(UserError, match="is there already and not empty"):
        check_free(tmp_path / "full")
    (tmp_path / "empty").mkdir()
    check_free(tmp_path / "empty")
    with pytest.raises(UserError, match=r"cannot write to .*: .*full/mine is no folder\."):
        check_free(tmp_path / "full" / "mine" / "new")
    own = Workload(model=OWN, data=OwnDataset())
    with pytest.raises(UserError, match=r"mine\.py:build: the copies in .* are gone"):
        write_training(
            training(make_experiment(AllReduce, workload=own), data_dir=tmp_path), tmp_path / "new"
        )
    assert not (tmp_path / "new").exists()


def test_an_emulated_accelerator_is_told(tmp_path: Path) -> None:
    compute = EmulatedCompute(forward_s=0.01, backward_s=0.01)
    written = training(make_experiment(AllReduce, workload=Workload(emulated=compute)))
    assert "its rate will be another" in render(written)[2].text


@pytest.mark.parametrize(
    ("words", "is_taken"),
    [
        ([], True),
        (["--epochs", "3", "--steps-per-epoch", "5", "--checkpoint-every", "2"], True),
        (["--epochs", "0"], False),
        (["--steps-per-epoch", "-1"], False),
        (["--checkpoint-every", "-1"], False),
    ],
)
def test_a_training_that_would_make_no_step_does_not_begin(
    words: list[str], is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = next(e.text for e in render(training(make_experiment(Single))) if e.name == "train.py")
    tree = ast.parse(text)
    tree.body = [e for e in tree.body if getattr(e, "name", "") == "read_arguments"]
    module: dict[str, Any] = {"argparse": argparse, "Path": Path, "HERE": Path()}
    exec(compile(tree, "train.py", "exec"), module)
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    with nullcontext() if is_taken else pytest.raises(SystemExit, match="2"):
        module["read_arguments"]()


@given(texts=...)
def test_texts_are_literals(texts: tuple[str, int | float | bool | None]) -> None:
    for value in texts:
        if value == value:  # not a number is no literal
            assert ast.literal_eval(quoted(value).replace("inf", "1e999")) == value


def test_words_become_arguments() -> None:
    assert arguments_text(("a=3", "b=[1, 'x']", "c=it's")) == "a=3, b=[1, 'x'], c=\"it's\""
