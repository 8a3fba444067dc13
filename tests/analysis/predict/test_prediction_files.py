"""Predictions are dated, never overwritten, found out when changed, and held against later runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.predict.predict_commands import CHECK
from analysis.predict.prediction_check import check_predictions, figures
from analysis.predict.prediction_file import (
    PredictionFile,
    head_of,
    prediction_file,
    read_prediction,
    read_predictions,
    save_predictions,
)
from analysis.predict.predictions import Question, predict
from experiments.__main__ import main as experiments
from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.point.strategies import AllReduce, StockServers, SynchronousServers
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import save_all
from tests.analysis.predict.simulated import launch, point, sweep

QUESTION = Question(workers=(8,))


def later(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The same launches, begun when every prediction of these tests is made."""
    begun = datetime.now(UTC) + timedelta(hours=1)
    moment = begun.isoformat()
    return [replace(each, started_at=moment, finished_at=moment) for each in records]


@pytest.fixture(scope="module")
def small() -> list[RunRecord]:
    return list(sweep((SynchronousServers,), (1, 2, 4)))


@pytest.fixture(scope="module")
def made(small: list[RunRecord]) -> PredictionFile:
    return prediction_file(QUESTION, small, predict(small, QUESTION))


def test_a_file_is_what_was_written_and_never_overwritten(
    made: PredictionFile, tmp_path: Path
) -> None:
    path = save_predictions(made, tmp_path)
    assert path.parent == tmp_path / "predictions"
    assert read_prediction(path) == made
    assert read_predictions(tmp_path) == [made]
    with pytest.raises(UserError, match="never overwritten"):
        save_predictions(made, tmp_path)
    with pytest.raises(UserError, match="never overwritten"):
        save_predictions(made, tmp_path, into=path)


def test_a_file_that_was_changed_is_found_out(made: PredictionFile, tmp_path: Path) -> None:
    path = save_predictions(made, tmp_path)
    content = json.loads(path.read_text())
    content["predicted"]["points"][0]["rate"] *= 1.01
    path.write_text(json.dumps(content))
    with pytest.raises(RecordFormatError, match="was changed"):
        read_prediction(path)
    for text in ("{", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(RecordFormatError, match=r"no readable predictions \(.* Move the"):
            read_prediction(path)
    with pytest.raises(UserError, match="holds no predictions"):
        read_predictions(tmp_path / "elsewhere")


def test_the_digest_is_that_of_launches_and_question(
    made: PredictionFile, small: list[RunRecord]
) -> None:
    again = prediction_file(QUESTION, small, predict(small, QUESTION))
    assert again.digest == made.digest
    other = Question(workers=(9,))
    assert prediction_file(other, small, predict(small, other)).digest != made.digest


def test_predictions_are_held_against_later_launches_only(made: PredictionFile) -> None:
    target = point(SynchronousServers, 8)
    before = [launch(target)]
    with pytest.raises(UserError, match="after its prediction"):
        check_predictions([made], before)
    found = check_predictions([made], [*before, *later(launch(target, n) for n in range(3))])
    (checked,) = found.points
    assert checked.launches == 3
    assert checked.inside
    assert found.coverage_90 == 1.0
    assert found.mape == abs(checked.error) < 0.05
    assert found.others["linear"].mape > 3 * found.mape
    assert found.not_measured == 0


def test_what_lies_outside_costs_twenty_times_its_distance(made: PredictionFile) -> None:
    target = point(SynchronousServers, 8)
    (near,) = check_predictions([made], later([launch(target)])).points
    (far,) = check_predictions([made], later([launch(target, noise=3.0)])).points
    assert near.inside
    assert not far.inside
    assert far.error == pytest.approx((near.error + 1) / 3 - 1) or far.error < -0.6
    assert far.score > near.score + 10


def test_figures_of_errors() -> None:
    found = figures([-0.1, 0.1, 0.3])
    assert found.mape == pytest.approx(0.5 / 3)
    assert found.bias == pytest.approx(0.1)
    assert found.p90 == pytest.approx(0.26)


def test_the_commands_predict_before_and_check_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_all(tmp_path / "small", sweep((AllReduce,), (1, 2, 4)))
    file = str(tmp_path / "predictions" / "first.json")
    words = ["predict", str(tmp_path), "--workers", "8,64", "--into", file]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "8 workers" in shown
    assert "bound only" in shown
    assert "up to 4 workers" in shown
    assert main(words) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert main(["predict", str(tmp_path), "--workers", "8", "--bandwidth", "1bit"]) == 2
    assert "the rate of an emulated link is" in capsys.readouterr().err
    assert main(["check-predictions", str(tmp_path)]) == 2
    assert "make these runs" in capsys.readouterr().err
    save_all(tmp_path / "later", later([launch(point(AllReduce, 8))]))
    assert main(["check-predictions", str(tmp_path)]) == 0
    assert "inside their 90 % intervals" in capsys.readouterr().out
    found = json.loads((tmp_path / CHECK).read_text())
    assert found["mape"] < 0.1
    assert found["coverage_90"] == 1.0
    assert len(found["points"]) == 1


def test_launches_of_what_is_asked_are_not_learned_from(tmp_path: Path) -> None:
    save_all(tmp_path / "small", sweep((AllReduce,), (1, 2)))
    first = tmp_path / "first.json"
    assert main(["predict", str(tmp_path), "--workers", "4", "--into", str(first)]) == 0
    save_all(tmp_path / "more", later([launch(point(AllReduce, 4), noise=9.0)]))
    second = tmp_path / "second.json"
    assert main(["predict", str(tmp_path), "--workers", "4", "--into", str(second)]) == 0
    assert read_prediction(first).digest == read_prediction(second).digest


def test_launches_that_were_not_learned_from_are_counted_and_doubts_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = launch(point(StockServers, 2), gradient_bytes=None)
    busy = launch(point(AllReduce, 2), 3, machine_busy=0.97)
    busy = replace(busy, hosts=tuple(replace(each, foreign_load=0.12) for each in busy.hosts))
    save_all(tmp_path, [*sweep((AllReduce,), (1, 2, 4)), shipped, busy])
    assert main(["predict", str(tmp_path), "--workers", "4"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Learned from 10 launches" in shown
    assert (
        "not learned from: 3 of what is asked about, 1 that do not tell what they send where."
    ) in shown
    assert (
        "In 1 of 4 launches that send gradients, shared processors were 90% busy or more" in shown
    )
    assert (
        "went to other programs in 1 of 4 launches that send gradients (known of 1; up to 12%)"
        in shown
    )


def test_files_that_cannot_be_read_are_told_by_all_that_learn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_all(tmp_path / "small", sweep((AllReduce,), (1, 2, 4)))
    save_all(tmp_path / "later", later([launch(point(AllReduce, 8))]))
    two_workers = tmp_path / "small" / "runs" / point(AllReduce, 2).experiment_id
    next(two_workers.glob("*.json")).write_text("{")
    told = f"1 file of {tmp_path / 'small'} could not be read"
    folder = str(tmp_path)
    assert main(["predict", folder, "--workers", "8"]) == 0
    *_, doubt, path = capsys.readouterr().out.splitlines()
    assert doubt.startswith(told)
    assert path.startswith("Predictions: ")
    assert main(["check-predictions", folder]) == 0
    assert told in capsys.readouterr().out
    assert experiments(["advise", folder, "--hosts", "4"]) == 0
    assert told in capsys.readouterr().out


def test_the_commit_is_what_git_left(tmp_path: Path) -> None:
    assert head_of(tmp_path) == "unknown"
    git = tmp_path / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert head_of(tmp_path) == "unknown"
    (git / "packed-refs").write_text(f"# pack\n{'a' * 40} refs/heads/main\n")
    assert head_of(tmp_path) == "a" * 12
    (git / "refs/heads/main").write_text(f"{'b' * 40}\n")
    assert head_of(tmp_path) == "b" * 12
    (git / "HEAD").write_text(f"{'c' * 40}\n")
    assert head_of(tmp_path) == "c" * 12
