"""A user's own model goes from its file to a record, on this machine."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from experiments.models import settle_model as settling
from experiments.models.settle_model import settle_model
from experiments.models.workload_request import WorkloadRequest
from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import OwnModel
from ps_allreduce.point.optimizers import Adam
from ps_allreduce.record.files import load_record
from ps_allreduce.record.provenance import ROOT
from tests.real.users_model import run_one, write_model

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.usefixtures("need_tensorflow", "two_cores"),
]


@pytest.mark.parametrize("words", [("allreduce",), ("ps_sync", "--num-ps", "2")])
def test_a_users_file_is_trained(tmp_path: Path, words: tuple[str, ...]) -> None:
    model = write_model(tmp_path / "mine")
    line = run_one(model, tmp_path / "results", "--strategy", *words)
    assert (line["status"], line["reason"]) == ("ok", "")
    workload = load_record(Path(line["record_path"])).experiment.workload
    assert isinstance(workload.model, OwnModel)
    assert workload.model.name == model
    assert workload.optimizer == Adam(learning_rate=1e-3)
    copies = workload.model.folder(tmp_path / "results" / "data")
    assert {path.name for path in copies.iterdir()} == {"mine.py", "blocks.py", "files.json"}
    # Nothing is left where the user's files are.
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"mine.py", "blocks.py"}


def test_the_placement_of_the_documents_example_is_shown() -> None:
    model = "docs/examples/clicks.py:build"
    words = ("-m", "experiments", "placement", "--model", model, "--num-ps", "4")
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Suggested: " in done.stdout


def test_a_function_that_never_returns_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "DEADLINE_S", 20.0)
    model = write_model(tmp_path).replace("build", "hang")
    with pytest.raises(UserError, match=r"^hang\(\) of .*/mine\.py did not return within 20 s"):
        settle_model(WorkloadRequest(model=model), tmp_path, Console(file=io.StringIO()))
