"""The advised setting is that of the highest rate, and its command measures just that."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from analysis.data.prices import Prices
from analysis.predict.advice import advise, known_tellers, tried_numbers
from analysis.predict.calibration_file import SHIPPED, published_tellers, save_calibration
from analysis.predict.predictions import Question, Teller, asked
from experiments.__main__ import main
from experiments.tuning.advise import unlike_trainings
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.layout import is_apart, num_hosts
from ps_allreduce.point.models.trained import TextModel
from ps_allreduce.point.optimizers import Adam
from ps_allreduce.point.placement import Shard
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, SynchronousServers
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.record.variables import PlacementUsed
from tests.analysis.builders import save_all
from tests.analysis.learners import MODEL, trained
from tests.analysis.predict.simulated import RATE, SIZE, launch, point, sweep

DEDICATED = LayoutKind.DEDICATED


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


@pytest.fixture(scope="module")
def known(launches: list[RunRecord]) -> tuple[Teller, ...]:
    return known_tellers(launches)


def true_rate(record: RunRecord) -> float:
    assert record.metrics is not None
    return record.metrics.examples_per_sec


def test_the_best_setting_is_the_one_that_launches_would_find(known: tuple[Teller, ...]) -> None:
    found = advise(known, 8)
    rates = [true_rate(launch(each.experiment)) for each in found.ranked]
    assert rates == sorted(rates, reverse=True)
    # Servers beside workers, and on hosts of their own.
    assert len(rates) == 3
    assert [type(each.experiment.strategy) for each in found.asynchronous] == [AsynchronousServers]


def test_servers_are_as_many_as_suit_the_setting(known: tuple[Teller, ...]) -> None:
    beside, apart = [each for each in advise(known, 8).ranked if each.experiment.num_ps]
    if is_apart(beside.experiment):
        beside, apart = apart, beside
    assert beside.experiment.num_ps == 8
    assert num_hosts(apart.experiment) == 8
    by_count = {
        count: launch(point(SynchronousServers, 8 - count, num_ps=count, layout=DEDICATED))
        for count in range(1, 8)
    }
    assert apart.experiment.num_ps == max(by_count, key=lambda each: true_rate(by_count[each]))


def test_what_limits_is_what_helps(known: tuple[Teller, ...]) -> None:
    slow, fast = advise(known, 8), advise(known, 8, bits_per_s=200 * RATE)
    assert slow.best.limit == "links"
    assert slow.helps["links twice as fast"] > 0.2
    assert list(slow.helps.values()) == sorted(slow.helps.values(), reverse=True)
    assert fast.best.limit == "computation"
    assert "links twice as fast" not in fast.helps
    assert fast.enough_hosts == 8


def test_what_costs_least_for_an_example_may_be_fewer_hosts(known: tuple[Teller, ...]) -> None:
    found = advise(known, 8, prices=Prices(host=1.0, ps_host=1.0))
    assert found.cheapest is not None
    # Each further worker adds traffic here, so a lone one costs least.
    assert found.cheapest.experiment.num_workers == 1
    named = advise(known, 8, prices=Prices(host=1.0, ps_host=1e-3))
    layouts = {s.layout for each in named.ranked if (s := each.experiment.strategy.servers)}
    assert layouts == {LayoutKind.COLOCATED, LayoutKind.PS_HOSTS}


def test_more_hosts_do_not_pay_beyond_a_hot_server() -> None:
    served = list(sweep((SynchronousServers,), (1, 2, 4)))
    hot = known_tellers([replace(each, placement=_on_one_server(each)) for each in served])
    found = advise(hot, 8)
    assert {each.experiment.num_ps for each in found.ranked} == {1}
    assert found.enough_hosts < 8
    assert found.helps["variables cut into parts, a server beside each worker"] > 0.0
    named = advise(hot, 8, prices=Prices(host=1.0, ps_host=1e-3))
    assert is_apart(named.best.experiment) is ("variables cut into parts" in named.helps)
    with pytest.raises(UserError, match="nothing to rank"):
        advise(known_tellers(list(sweep((AsynchronousServers,), (1, 2, 4)))), 8)
    with pytest.raises(UserError, match="rate of an emulated link"):
        advise(known_tellers(served), 8, bits_per_s=1e15)


def test_fewer_hosts_are_weighed_where_a_cluster_takes_a_list_of_what_hosts_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = list(sweep((SynchronousServers,), (1, 2, 4)))
    hot = known_tellers([replace(each, placement=_on_one_server(each)) for each in served])
    monkeypatch.setattr("analysis.predict.advice.symmetric", lambda *_: None)
    assert advise(hot, 8).enough_hosts < 8


def test_of_large_clusters_few_sizes_are_weighed(capsys: pytest.CaptureFixture[str]) -> None:
    for last in (1, 127, 65535):
        tried = tried_numbers(1, last, 128)
        assert (tried[0], tried[-1], *tried[:127]) == (1, last, *range(1, min(last, 127) + 1))
        assert all(after - before <= 1 + before / 64 for before, after in pairwise(tried))
    assert len(tried) < 1000
    assert main(["advise", "piz-daint", "--hosts", "65536"]) == 2
    assert "--hosts must be at most 65535" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "# Read me"])
def test_a_file_that_is_no_calibration_is_told(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    assert main(["advise", str(path), "--hosts", "8"]) == 2
    told = capsys.readouterr().err
    assert f"{path}: no readable calibration (" in told
    assert "Name a folder of results" in told


def test_rows_of_tables_with_adam_are_told_to_train_otherwise(known: tuple[Teller, ...]) -> None:
    dense = advise(known, 8).best
    load = Workload(model=MODEL, data=OwnDataset(), optimizer=Adam())
    dense = replace(dense, experiment=replace(dense.experiment, workload=load))
    rows = AllReduce(embeddings=Embeddings.SPARSE)
    sparse = replace(dense, experiment=replace(dense.experiment, strategy=rows))
    (told,) = unlike_trainings([dense, sparse])
    assert "Adam changes only the rows that a step looks up" in told
    assert not list(unlike_trainings([sparse, sparse]))


def test_launches_that_all_failed_advise_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sweep((AllReduce,), (1, 2))
    failed: dict[str, Any] = {"status": Status.FAILED, "reason": "gone", "metrics": None}
    save_all(tmp_path, [replace(each, **failed) for each in made])
    assert main(["advise", str(tmp_path), "--hosts", "4"]) == 2
    assert "no launch that measures a rate ended well" in capsys.readouterr().err


def test_processors_that_were_the_limit_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_all(tmp_path, [replace(each, machine_busy=0.97) for each in sweep((AllReduce,), (1, 2))])
    assert main(["advise", str(tmp_path), "--hosts", "4"]) == 0
    assert "In 3 of 3 launches that send gradients, shared processors" in capsys.readouterr().out


def test_rates_of_text_are_of_whole_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for each in sweep((AllReduce,), (1, 2)):
        load = replace(each.experiment.workload, model=TextModel())
        own = replace(each.experiment, workload=load)
        made.append(replace(each, experiment=own, experiment_id=own.experiment_id))
    save_all(tmp_path, made)
    assert main(["advise", str(tmp_path), "--hosts", "4"]) == 0
    shown = capsys.readouterr().out
    assert " examples/s" in shown
    assert "tokens/s" not in shown


def test_the_command_says_it_with_a_command_to_paste(
    launches: list[RunRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_all(tmp_path / "made", launches)
    assert main(["advise", str(tmp_path), "--hosts", "8"]) == 0
    shown = capsys.readouterr().out
    assert "Best on 8 hosts: " in shown
    assert "behind" in shown
    assert "Asynchronous, so of another kind" in shown
    assert "in 95 launches" in shown
    assert "per thousand images" not in shown
    assert "measured: " not in shown
    assert "Not all of them train alike" not in shown
    assert "run-one --strategy" in shown
    assert "--num-workers 8" in shown
    assert "--emulate 0.05,0.1" in shown
    assert "--batch-per-worker 8" in shown
    assert main(["advise", str(tmp_path), "--hosts", "8", "--host-price", "3.6"]) == 0
    assert "per thousand images" in capsys.readouterr().out
    assert main(["advise", str(tmp_path)]) == 2
    assert main(["advise", str(tmp_path), "--hosts", "hosts.txt"]) == 2
    assert main(["advise", str(tmp_path), "--hosts", "0"]) == 2
    assert main(["advise", str(tmp_path), "--hosts", "8", "--model", "mine.py:build"]) == 2
    refused = capsys.readouterr().err
    assert "make advise HOSTS=16" in refused
    assert "model mine.py:build was not measured: state with --model one of " in refused
    assert main(["advise", str(tmp_path), "--hosts", "200"]) == 0
    told = capsys.readouterr().out
    assert "too far from what was measured" in told
    # Bounds have no intervals.
    assert "intervals" not in told
    assert main(["advise", str(tmp_path), "--hosts", "4"]) == 0
    assert " images/s (measured: " in capsys.readouterr().out
    assert main(["advise", str(tmp_path / "nowhere"), "--hosts", "8"]) == 2


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_what_comes_with_the_suite_answers_without_a_cluster(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(path, SHIPPED[name]())
    assert main(["advise", name, "--hosts", "8"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Not from your cluster, a first answer: ")
    assert main(["advise", str(path), "--hosts", "8"]) == 0
    # A file may be that of the reader's own cluster.
    first, *answer = capsys.readouterr().out.splitlines()
    assert first.startswith("From ")
    assert answer == shown.splitlines()[1 : 1 + len(answer)]
    assert main(["advise", name, "--hosts", "8", "--model", "VGG16"]) == 2


def test_published_rates_are_learned_and_clusters_are_weighed_quickly() -> None:
    served, ring = published_tellers("piz-daint")
    for workers, num_ps, rate in ((64, 40, 7118.31), (128, 116, 9219.7)):
        target = asked(served.largest, Question(workers=(workers,), num_ps=num_ps), workers)
        assert served.rate(target) == pytest.approx(rate, rel=0.1)
    before = process_time()
    assert advise((served, ring), 512).weighed > 10_000
    assert process_time() - before < 8  # under 2 s where nothing else runs


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ([5.0, 5.5, 5.2], "Advised where a loss counts: ps_async"),
        ([9.0, 12.0, 10.0], "Not advised: the seconds to a loss of ps_sync"),
    ],
)
def test_an_asynchronous_setting_is_advised_by_its_measured_time_to_a_loss(
    launches: list[RunRecord],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seconds: list[float],
    said: str,
) -> None:
    model = replace(MODEL, name=launches[0].experiment.workload.model.name)
    alike: dict[str, Any] = {
        "workload": Workload(model=model, data=OwnDataset()),
        "spread": Spread(),
        "rate": 100.0,
    }
    save_all(tmp_path / "made", launches)
    save_all(
        tmp_path / "learned",
        trained(SynchronousServers, [10.0, 10.5, 10.2], **alike),
        trained(AsynchronousServers, seconds, **alike),
    )
    assert main(["advise", str(tmp_path), "--hosts", "2"]) == 0
    shown = capsys.readouterr().out
    assert said in shown
    assert "without its time to a loss" not in shown
