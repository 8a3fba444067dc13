"""Errors on others' measurements, as the document has them: what was fitted predicts the rest."""

from __future__ import annotations

import pytest

from analysis.__main__ import main
from analysis.predict import predict_commands
from analysis.predict.literature import HeldOut, held_out


@pytest.fixture(scope="module")
def found() -> tuple[HeldOut, ...]:
    return held_out()


def test_rows_that_are_fitted_are_not_predicted(found: tuple[HeldOut, ...]) -> None:
    for each in found:
        assert not set(each.fitted.split(", ")) & set(each.predicted.split(", "))
    assert [each.rows for each in found] == [48, 60, 192]


def test_asynchronous_servers_are_predicted_within_seven_percent(
    found: tuple[HeldOut, ...],
) -> None:
    small, saturated, _ = found
    assert small.own.mape < 0.07
    assert saturated.own.mape < 0.05
    assert small.own.mape < min(other.mape for other in small.others.values())
    assert small.coverage_90 > 0.7


def test_rings_are_predicted_within_nine_percent(found: tuple[HeldOut, ...]) -> None:
    rings = found[-1]
    assert rings.own.mape < 0.09
    assert rings.own.mape < min(other.mape for other in rings.others.values())
    assert rings.by_workers[6].mape < rings.by_workers[16].mape
    assert rings.own.bias < 0
    assert 0.8 < rings.coverage_90 < 0.98


def test_the_command_prints_every_data_set(
    found: tuple[HeldOut, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(predict_commands, "held_out", lambda: found)
    assert main(["literature"]) == 0
    shown = capsys.readouterr().out
    for each in found:
        assert each.name in shown
        assert f"{each.own.mape:.1%}" in shown
        assert each.unknown in shown.replace("\n", " ")
