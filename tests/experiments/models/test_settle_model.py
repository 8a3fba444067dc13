"""The user's own model: tried before anything runs, told of, and the same ever after."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.models.settle_model import render_tried
from ps_allreduce.errors import HostFault, LaunchError, TookTooLong, UserError
from ps_allreduce.model_files import is_whole
from ps_allreduce.point.inputs.data import OwnDataset, Synthetic
from ps_allreduce.point.models.trained import OwnModel, Unit
from ps_allreduce.point.optimizers import Adam, Momentum, Sgd
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.record.files import iter_record_paths, load_record
from ps_allreduce.record.variables import MADE_DENSE
from tests.experiments.conftest import run
from tests.fakes import FOUND, TRIED, TWO_LAYERS, FakeLauncher
from tests.goldens import golden

MODEL = ("--model", "mine.py:build")

RUN_ONE = ("run-one", "--strategy", "single")

SWEEP = ("allreduce-sweep", "--workers", "1", "--repetitions", "1")


def model_of(launcher: FakeLauncher) -> OwnModel:
    (model,) = {point.workload.model for point in launcher.launched}
    assert isinstance(model, OwnModel)
    return model


def test_a_model_is_found_copied_tried_and_told_of_before_a_run(
    own: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*RUN_ONE, *MODEL, "--model-arg", "width=64", "--model-arg", "depth=a=b"]
    assert run(*words) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["model"] == "mine.py:build"
    assert err.startswith("Trying mine.py:build on this machine, with one worker.\nmine.py:build: ")
    assert "5,480 trainable parameters" in err
    assert "Trained with SGD, not your Lion." in err
    found, tried = own.asked
    assert found == (tmp_path, "mine", "build", ("depth=a=b", "width=64"))
    assert isinstance(tried, Workload)
    assert (tried.data, tried.batch_per_worker) == (OwnDataset(), 16)
    assert (tried.optimizer, tried.precision) == (Momentum(), Precision.FLOAT32)
    model = model_of(own)
    assert (model.name, model.module, model.function) == ("mine.py:build", "mine", "build")
    assert (model.arguments, model.unit) == (("depth=a=b", "width=64"), Unit.TOKENS)
    assert (model.tokens_per_example, model.notes) == (64, TRIED.notes)
    copies = model.folder(tmp_path / "results" / "data")
    assert is_whole(copies, model.digest)
    (record,) = iter_record_paths(tmp_path / "results" / "run-one")
    workload = load_record(record).experiment.workload
    assert (workload.optimizer, workload.data) == (Adam(), OwnDataset())


@pytest.mark.parametrize(
    ("words", "data", "precision"),
    [
        ((), OwnDataset(), Precision.MIXED_BFLOAT16),
        (("--input", "synthetic"), Synthetic(), Precision.MIXED_BFLOAT16),
        (("--precision", "mixed_bfloat16"), OwnDataset(), Precision.MIXED_BFLOAT16),
        (("--emulate", "0.02,0.04"), OwnDataset(), Precision.FLOAT32),
    ],
)
def test_the_model_says_what_it_is_trained_with(
    own: FakeLauncher, words: tuple[str, ...], data: object, precision: Precision
) -> None:
    own.tried = replace(TRIED, precision=Precision.MIXED_BFLOAT16)
    assert run(*RUN_ONE, *MODEL, *words, "--batch-per-worker", "4") == 0
    (workload,) = {point.workload for point in own.launched}
    assert (workload.data, workload.precision) == (data, precision)
    assert workload.batch_per_worker == 4
    _, tried = own.asked
    assert isinstance(tried, Workload)
    assert (tried.emulated, tried.data, tried.batch_per_worker) == (None, data, 4)


def test_a_model_without_a_dataset_has_made_up_examples(own: FakeLauncher) -> None:
    own.found = replace(FOUND, has_dataset=False)
    assert run(*RUN_ONE, *MODEL) == 0
    assert own.launched[0].workload.data == Synthetic()


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (
            TookTooLong("x"),
            2,
            "build() of mine.py did not return within 300 s: it has to return a model, and to",
        ),
        (UserError("mine.py:build returns a str."), 2, "mine.py:build returns a str."),
        (
            LaunchError("its process was killed."),
            2,
            "mine.py:build cannot be used: its process was killed.",
        ),
        (HostFault("the fork server ended."), 1, "the fork server ended."),
    ],
)
def test_what_the_users_code_does_is_the_users_mistake(
    own: FakeLauncher,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    status: int,
    told: str,
) -> None:
    own.found = error
    assert run("compare", *MODEL) == status
    assert f"Error: {told}" in capsys.readouterr().err
    assert (own.launched, (tmp_path / "results").exists()) == ([], False)


def test_a_step_that_does_not_end_is_told(
    own: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    own.tried = TookTooLong("x")
    assert run("compare", *MODEL) == 2
    assert "mine.py:build was not built and did not make" in capsys.readouterr().err


def test_a_dry_run_tries_the_model_and_runs_nothing(
    own: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*SWEEP, *MODEL, "--dry-run") == 0
    out, err = capsys.readouterr()
    assert "5,480 trainable parameters" in err
    assert "  allreduce, mine.py:build, 1 worker" in out
    assert own.launched == []
    assert not (tmp_path / "results" / "allreduce-sweep").exists()


def test_the_placement_of_an_own_model_is_shown(
    own: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("placement", *MODEL, "--model-arg", "width=64") == 0
    assert capsys.readouterr().out.startswith("mine.py:build: 4 trainable variables")
    assert not (tmp_path / "results").exists()


def test_a_sweep_goes_on_with_the_same_file_from_whatever_place(
    own: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*SWEEP, *MODEL) == 0
    before = len(own.launched)
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "mine.py").write_bytes((tmp_path / "mine.py").read_bytes())
    for text in ("./mine.py:build", "moved/mine.py:build", str(tmp_path / "mine.py:build")):
        capsys.readouterr()
        assert run(*SWEEP, "--model", text) == 0
        err = capsys.readouterr().err
        assert f"{before} were made before" in err
        assert "has changed" not in err
    assert len(own.launched) == before


def test_a_sweep_with_a_changed_file_says_so_and_begins_anew(
    own: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*SWEEP, *MODEL) == 0
    before = len(own.launched)
    (tmp_path / "mine.py").write_text("def build(): return 1")
    capsys.readouterr()
    assert run(*SWEEP, *MODEL) == 0
    assert (
        "mine.py:build has changed since the last call of this sweep: it is another model"
        in capsys.readouterr().err
    )
    assert len(own.launched) == 2 * before
    assert run(*SWEEP, *MODEL, "--model-arg", "width=64") == 0
    assert "has changed" not in capsys.readouterr().err
    assert len(own.launched) == 3 * before


TABLE = VariableSpec(name="t", shape=(90, 4), dtype="float32", trainable=True, is_table=True)


NUMBER = VariableSpec(name="w", shape=(), dtype="float32", trainable=True)
WITH_TABLE = replace(
    TRIED,
    variables=(*TWO_LAYERS, TABLE),
    optimizer=Sgd(),
    only_whole="",
    notes=(f"the gradient of t {MADE_DENSE}", "without your clipnorm 1.0"),
)

TOLD = {
    "sizes, time, balance and notes": TRIED,
    "one number, which nothing balances": replace(TRIED, variables=(NUMBER,), notes=()),
    "rows of a table": WITH_TABLE,
    "rows, with adam": replace(WITH_TABLE, optimizer=Adam()),
    "rows, with momentum": replace(WITH_TABLE, optimizer=Momentum()),
    "a table that is used whole": replace(WITH_TABLE, only_whole="it is so"),
}


def test_what_is_told_of_a_model_that_was_tried() -> None:
    told = {title: render_tried(MODEL[1], tried, 16) for title, tried in TOLD.items()}
    texts = [f"# {title}\n{text}\n" for title, text in told.items()]
    golden.check({"sentences/tried.txt": "\n".join(texts)})
