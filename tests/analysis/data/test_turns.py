"""Only launches that were made in a row are pairs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analysis.data.cases import turns_of
from analysis.stats.statistics import compare
from ps_allreduce.point.strategies import AllReduce, Single
from ps_allreduce.record.records import Phases, RunRecord, Status
from tests.analysis.builders import case_of, run, table_of
from tests.fakes import make_experiment

ONE, OTHER = make_experiment(Single), make_experiment(AllReduce, 2)


def at(second: float) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).isoformat()


def made(second: float, repetition: int, lasted: float = 20.0, **changes: Any) -> RunRecord:
    rate = 100.0 if changes.get("status", Status.OK) is Status.OK else None
    times = {"started_at": at(second), "finished_at": at(second + lasted)}
    return run(ONE, rate, repetition, **(times | changes))


def interrupted(second: float, repetition: int, total_s: float | None) -> RunRecord:
    """Recorded an hour later, by the session that found its note."""
    return made(
        second, repetition, 3600.0, status=Status.INTERRUPTED, phases=Phases(total_s=total_s)
    )


@pytest.mark.parametrize(
    ("records", "turns"),
    [
        pytest.param([made(0, 0), made(21, 0), made(45, 1), made(70, 1)], [0, 0, 1, 1], id="whole"),
        pytest.param([made(0, 0), made(25, 1), made(50, 0, attempt=2)], [0, 1, 2], id="retried"),
        pytest.param([made(0, 0), made(25, 0, 900.0), made(930, 0)], [0, 0, 0], id="a long run"),
        pytest.param([made(0, 0), made(25, 0), made(106, 0)], [0, 0, 1], id="a pause"),
        pytest.param([made(0, 0), interrupted(25, 0, 5.0), made(40, 0)], [0, 0, 0], id="no pause"),
        pytest.param([made(0, 0), interrupted(25, 0, None), made(3625, 0)], [0, 0, 1], id="killed"),
        pytest.param(
            [made(0, 0, job_id="7"), made(5, 1000, job_id="8"), made(25, 0, job_id="7")],
            [0, 1, 0],
            id="jobs side by side",
        ),
    ],
)
def test_runs_of_a_repetition_in_a_row_are_a_turn(
    records: Sequence[RunRecord], turns: list[int]
) -> None:
    table, named = table_of(records)
    assert [turns_of(table)[path] for path in named] == turns


def test_a_launch_that_was_made_again_later_is_no_pair() -> None:
    again = run(OTHER, 200.0, 0, started_at=at(600), finished_at=at(620))
    others = [run(OTHER, 200.0, repetition) for repetition in (1, 2, 3)]
    alone = [run(ONE, 100.0, repetition) for repetition in range(4)]
    one, other = case_of(alone, [again, *others]).points
    found = compare(other.rates, one.rates)
    assert (found.n_first, found.n_second) == (3, 3)
    assert other.lost_repetitions == 0
