"""The advised setting is that of the highest rate, and its command measures just that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.predict.advice import advise
from experiments.__main__ import main
from ps_allreduce.errors import UserError
from ps_allreduce.point.placement import Shard
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, SynchronousServers
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.variables import PlacementUsed
from tests.analysis.builders import save_all
from tests.analysis.predict.simulated import RATE, SIZE, launch, sweep


def _on_one_server(record: RunRecord) -> PlacementUsed | None:
    """All in one variable, so that further servers hold nothing."""
    used = record.placement
    return used and replace(
        used,
        shards=(Shard(variable=0, server=0, num_bytes=SIZE),),
        variables=("all",),
    )


@pytest.fixture(scope="module")
def launches() -> list[RunRecord]:
    return list(sweep((SynchronousServers, AsynchronousServers, AllReduce), (1, 2, 4)))


def true_rate(record: RunRecord) -> float:
    assert record.metrics is not None
    return record.metrics.examples_per_sec


def test_the_best_setting_is_the_one_that_launches_would_find(launches: list[RunRecord]) -> None:
    found = advise(launches, 8)
    rates = [true_rate(launch(each.experiment)) for each in found.ranked]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == 2
    assert [type(each.experiment.strategy) for each in found.asynchronous] == [AsynchronousServers]


def test_servers_are_as_many_as_suit_the_setting(launches: list[RunRecord]) -> None:
    found = advise(launches, 8)
    (served,) = [each for each in found.ranked if each.experiment.num_ps]
    assert served.experiment.num_ps == 8


def test_what_limits_is_what_helps(launches: list[RunRecord]) -> None:
    slow, fast = advise(launches, 8), advise(launches, 8, bits_per_s=200 * RATE)
    assert slow.best.limit == "links"
    assert slow.helps["links twice as fast"] > 0.2
    assert list(slow.helps.values()) == sorted(slow.helps.values(), reverse=True)
    assert fast.best.limit == "computation"
    assert "links twice as fast" not in fast.helps
    assert fast.enough_workers == 8


def test_more_hosts_do_not_pay_beyond_a_hot_server() -> None:
    served = list(sweep((SynchronousServers,), (1, 2, 4)))
    hot = [replace(each, placement=_on_one_server(each)) for each in served]
    assert advise(hot, 8).best.experiment.num_ps == 1
    assert advise(hot, 8).enough_workers < 8
    with pytest.raises(UserError, match="nothing to rank"):
        advise(list(sweep((AsynchronousServers,), (1, 2, 4))), 8)
    with pytest.raises(UserError, match="rate of an emulated link"):
        advise(served, 8, bits_per_s=1e15)


def test_the_command_says_it_with_a_command_to_paste(
    launches: list[RunRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_all(tmp_path / "made", launches)
    assert main(["advise", str(tmp_path), "--workers", "8"]) == 0
    shown = capsys.readouterr().out
    assert "Best of the synchronous settings" in shown
    assert "behind" in shown
    assert "Asynchronous, so of another kind" in shown
    assert "in 78 launches" in shown
    assert "run-one --strategy" in shown
    assert "--num-workers 8" in shown
    assert "--emulate 0.05,0.1" in shown
    assert "--batch-per-worker 8" in shown
    assert main(["advise", str(tmp_path)]) == 2
    assert main(["advise", str(tmp_path), "--workers", "8", "--model", "mine.py:build"]) == 2
    refused = capsys.readouterr().err
    assert "make advise HOSTS=16" in refused
    assert f"which one of {launches[0].experiment.workload.model.name} is" in refused
    assert main(["advise", str(tmp_path), "--workers", "200"]) == 0
    assert "too far from what was measured" in capsys.readouterr().out
    assert main(["advise", str(tmp_path / "nowhere"), "--workers", "8"]) == 2
