"""What the studies of p2, PCAD and the network show of made-up launches."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from analysis.data.cases import Case
from analysis.published.beside import P2
from analysis.published.network import NETWORK, device_name
from analysis.published.pcad import PCAD
from analysis.published.study import PublishedStudy
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce, Single, StockAllReduce, SynchronousServers
from ps_allreduce.point.workload import EmulatedCompute, Workload
from tests.analysis.builders import cases_of, runs, times
from tests.fakes import make_experiment


def emulated(
    model: str, batch: int, step_s: float, divisor: int = 1, accumulation: int = 1
) -> Workload:
    return Workload(
        model=ScaledModel(base=model, divisor=divisor),
        batch_per_worker=batch,
        emulated=EmulatedCompute(forward_s=step_s / 3, backward_s=step_s * 2 / 3),
        accumulation=accumulation,
    )


def on_hosts(point: Experiment, bits_per_s: float, per_host: int = 1) -> Experiment:
    return replace(
        point,
        launcher="emulated",
        spread=Spread(workers_per_host=per_host),
        network=EmulatedNetwork(num_hosts=8, bits_per_s=bits_per_s),
    )


def test_hosts_of_one_and_of_eight_workers_stand_beside_their_own_instances() -> None:
    points = {
        (per_host, workers): on_hosts(
            make_experiment(Single, 1)
            if workers == 1
            else make_experiment(SynchronousServers, workers, num_ps=1 + (per_host == 1)),
            1e8,
            per_host,
        )
        for per_host, workers in itertools.product((1, 8), (1, 8))
    }
    factors = {1: 1.0, 8: 4.0}
    shown = P2.show(cases_of(*[runs(p, times(factors[n])) for (_, n), p in points.items()]))
    by_host = {table.title.rpartition(" ")[2]: table.rows for table in shown.tables}
    assert {*by_host} == {"1", "8"}
    one, eight = (by_host[key].set_index("workers") for key in ("1", "8"))
    assert one.loc["128", "efficiency there"] == "0.28"
    assert eight.loc["128", "efficiency there"] == "0.85"
    assert eight.loc["8", "real images cost there"] == "0.18"
    assert str(one.loc["8", "here, round robin"]).startswith("0.50 [")
    assert "here, partitioned" not in one
    assert len(shown.figures) == 2


def network_cases() -> tuple[Case, ...]:
    fast = make_experiment(AllReduce, 4, workload=emulated("ResNet50", 64, 64 / 412, 32))
    mixed = make_experiment(AllReduce, 4, workload=emulated("ResNet50", 64, 64 / 1270, 32))
    other = make_experiment(AllReduce, 4, workload=emulated("VGG16", 64, 0.2, 32))
    points = [
        on_hosts(fast, 10e9 / 32),
        on_hosts(fast, 1e9 / 32),
        on_hosts(mixed, 1e9 / 32),
        on_hosts(other, 1e9 / 32),
    ]
    return cases_of(*[runs(point, times(1.0)) for point in points])


def test_devices_and_links_are_named_by_what_they_stand_for() -> None:
    (table,) = NETWORK.show(network_cases()).tables
    names = [tuple(row) for row in table.rows[["model, device", "link"]].to_numpy()]
    assert names == [
        ("ResNet50, V100", "1 Gbit/s"),
        ("ResNet50, V100", "10 Gbit/s"),
        ("ResNet50, V100, mixed precision", "1 Gbit/s"),
        ("VGG16, emulated, 320 images/s", "1 Gbit/s"),
    ]
    assert [*table.rows["highest"]] == ["102"] * 4
    # 4 workers of 64 images at 100 images/s.
    assert {each.partition(" ")[0] for each in table.rows["step"]} == {"2560"}


def test_a_real_device_has_its_own_name() -> None:
    assert device_name(make_experiment(AllReduce, 2)) == "cpu, float32"


def pcad_cases(most_hosts: int = 3) -> tuple[Case, ...]:
    """Epochs that take longer with more hosts if every batch is exchanged, and less if not."""
    groups = []
    for model, loop, batch, hosts in itertools.product(
        ("ResNet50", "EfficientNetB0"), ("sync", "ctl"), (32, 64, 100), range(1, most_hosts + 1)
    ):
        load = emulated(model, batch, 0.1, accumulation=1 if loop == "sync" else 4)
        strategy = StockAllReduce if loop == "sync" else AllReduce
        rate = batch / 32 * (hosts if loop == "ctl" else hosts**-0.5)
        point = on_hosts(make_experiment(strategy, hosts, workload=load), 1e9)
        groups.append(runs(point, times(rate)))
    return cases_of(*groups)


def test_times_of_an_epoch_and_models_of_them_are_shown() -> None:
    shown = PCAD.show(pcad_cases())
    times_, fits, *variances = shown.tables
    rows = times_.rows.set_index(["model", "loop", "batch"])
    assert str(rows.loc[("ResNet50", "ctl", "32"), "2 hosts"]).startswith("500 [")
    assert [*rows.columns] == ["1 host", "2 hosts", "3 hosts"]
    assert len(rows) == 12
    assert [*fits.rows["model"]] == ["linear", "quadratic", "quadratic, of the logarithm"]
    assert {*variances[0].rows["term"]} >= {"model", "loop x hosts", "residuals"}
    assert "batch\N{SUPERSCRIPT TWO}" in {*variances[1].rows["term"]}
    assert "ResNet50, ctl: 3 hosts take an epoch 3.00 to 3.00 times as fast" in shown.sentences[2]
    assert [figure.name for figure in shown.figures] == ["time-of-an-epoch", "residuals"]


def test_missing_cells_are_left_out_of_what_more_hosts_bring() -> None:
    def lacks(own: Experiment, batches: Collection[int]) -> bool:
        sync = own.strategy.as_shipped and own.num_workers == 3
        load = own.workload
        return sync and "ResNet50" in load.model.name and load.batch_per_worker in batches

    def sentences(batches: Collection[int]) -> Sequence[str]:
        cases = [
            replace(case, points=tuple(p for p in case.points if not lacks(p.experiment, batches)))
            for case in pcad_cases()
        ]
        return PCAD.show(cases).sentences

    assert "ResNet50, sync: 3 hosts take an epoch 0.58 to 0.58 times" in sentences([32])[3]
    assert sentences([32, 64, 100])[3] == (
        "ResNet50, sync: no batch was measured on 1 host and on 3 hosts."
    )


def test_few_settings_fit_no_model_and_say_so() -> None:
    shown = PCAD.show(pcad_cases(most_hosts=1))
    assert shown.sentences == ["Too few settings were measured to fit models of the time."]
    assert len(shown.tables) == 1


@pytest.mark.parametrize(("study", "tables"), [(NETWORK, 0), (PCAD, 0), (P2, 1)])
def test_a_sweep_without_a_launch_has_no_figure(study: PublishedStudy, tables: int) -> None:
    failed = on_hosts(make_experiment(AllReduce, 2), 1e9)
    shown = study.show(cases_of(runs(failed, {0: None})))
    assert (len(shown.tables), len(shown.figures)) == (tables, 0)
