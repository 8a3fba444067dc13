"""Published numbers beside those of made-up launches of the sweeps that repeat them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.data.cases import Case
from analysis.published.beside import CURVE, P2, PIZ_DAINT, table_beside
from analysis.published.claix import CLAIX, PATCHES
from analysis.published.embeddings import EMBEDDINGS, crossing
from analysis.published.incast import INCAST
from analysis.published.network import NETWORK, device_name
from analysis.published.osu import OSU
from analysis.published.pcad import PCAD
from analysis.published.storage import STORAGE
from analysis.published.study import PublishedStudy
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Data, RecordFiles, Synthetic
from ps_allreduce.point.inputs.data_set import ExampleForm, Pipeline
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Measurement
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.optimizers import Sgd
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    Horovod,
    Hybrid,
    Single,
    StockAllReduce,
    SynchronousServers,
)
from ps_allreduce.point.strategies.base import Embeddings
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import EmulatedCompute, Scaling, Workload
from ps_allreduce.record.evaluation_timings import EvaluationTimes
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.variables import RowsAsked
from tests.analysis.builders import (
    case_of,
    cases_of,
    changed,
    invoke,
    on_own_hosts,
    reported,
    runs,
    save_all,
    times,
)
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


def behind_ports(strategy: type[AnyStrategy], buffer: int, control: str) -> Experiment:
    network = EmulatedNetwork(
        num_hosts=4, bits_per_s=2e8, congestion=control, port_buffer_bytes=buffer
    )
    return replace(on_hosts(make_experiment(strategy, 4), 2e8), network=network)


def test_every_port_stands_beside_the_deepest_with_the_same_senders_and_control() -> None:
    factors = {
        behind_ports(AllReduce, 1 << 15, "cubic"): 0.9,
        behind_ports(AllReduce, 1 << 22, "cubic"): 1.0,
        behind_ports(SynchronousServers, 1 << 15, "cubic"): 0.25,
        behind_ports(SynchronousServers, 1 << 22, "cubic"): 0.5,
        behind_ports(SynchronousServers, 1 << 15, "reno"): 0.2,
    }
    shown = INCAST.show(cases_of(*[runs(p, times(f)) for p, f in factors.items()]))
    (table,) = shown.tables
    kept = {
        (row["sent"].partition(",")[0], row["port"]): row["kept"].partition(" ")[0]
        for _, row in table.rows.iterrows()
    }
    assert kept == {
        ("all-reduce", "32 KiB"): "0.90",
        ("all-reduce", "4.1943 MB"): "1.00",
        ("ps_sync", "32 KiB"): "0.50",
        ("ps_sync", "4.1943 MB"): "1.00",
    }
    assert "Reno and BBR not measured" in shown.sentences[-1]
    assert len(shown.figures) == 1


def towers(rows: int) -> Iterator[list[RunRecord]]:
    """A gather takes 300 rows a worker, whole tables all of them; both take the link's time."""
    load = Workload(
        model=RecommenderModel(name=f"TwoTower-{rows}x32"), optimizer=Sgd(learning_rate=1.0)
    )
    asked = RowsAsked(row_bytes=128, asked=900.0, unique=300.0, longest=320.0, union=700.0)
    for embeddings, found, rate in (("sparse", asked, 1000.0), ("dense", None, 1e6 / rows)):
        own = make_experiment(
            AllReduce,
            4,
            workload=load,
            wire=Wire(),
            embeddings=Embeddings(embeddings),
            spread=Spread(),
        )
        whole = 128 * (300 if found else 2 * rows)
        settings = {"gradient_bytes": whole, "rows_asked": found, "num_messages": 1}
        yield runs(own, times(rate), **settings, **on_own_hosts(4, 1e8))
    mixed = make_experiment(Hybrid, 4, workload=load, spread=Spread())
    yield runs(mixed, times(2000.0))


def test_rows_and_whole_tables_cross_where_bytes_say_it() -> None:
    cases = cases_of(*[group for rows in (200, 800, 2000) for group in towers(rows)])
    shown = EMBEDDINGS.show(cases)
    gather = shown.tables[0].rows.query("sent == 'all-reduce, rows'")
    assert [*gather["share"]] == ["0.75", "0.19", "0.07"]
    assert [each.partition(" ")[0] for each in gather["over whole tables"]] == [
        "0.20",
        "0.80",
        "2.00",
    ]
    # 3 x 320 x 136 bytes against 1.5 x 128 x 2 x rows: equal at 340 rows of each table.
    told = "equal to whole tables at 0.15 of the rows, by bytes at 0.44 (-66%)."
    assert shown.sentences[0] == f"all-reduce, rows (4 workers): {told}"
    assert len(shown.figures) == 1


def test_lines_cross_on_logarithmic_scales() -> None:
    line = pd.DataFrame({"share": [0.1, 1.0], "ratio": [2.0, 0.5]})
    assert crossing(line, "ratio") == pytest.approx(0.1**0.5)
    assert crossing(line.assign(ratio=[0.5, 0.2]), "ratio") is None


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
    assert (
        "ResNet50, ctl: an epoch on 3 hosts is so many times as fast as on 1 host: 3.00 ["
        in (shown.sentences[2])
    )
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

    assert "ResNet50, sync: an epoch on 3 hosts is so many" in sentences([32])[3]
    assert "with a batch of 32" not in sentences([32])[3]
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


def records(place: str | None = "/data/a") -> RecordFiles:
    return RecordFiles(
        path="/data/a",
        num_files=4,
        num_bytes=400,
        checksum="ab" * 8,
        form=ExampleForm(num_outputs=2, image_size=64),
        place=place,
    )


def loose(place: str | None = "/data/b") -> ImageFiles:
    return ImageFiles(
        path="/data/b", num_files=4, num_bytes=400, num_classes=2, checksum="cd" * 8, place=place
    )


def reading(data: Data, pipeline: Pipeline | None = None) -> Experiment:
    own = pipeline or Pipeline(read_size=64 if isinstance(data, ImageFiles) else None)
    load = replace(emulated("ResNet50", 64, 64 / 412, 32), data=data, pipeline=own)
    return on_hosts(make_experiment(AllReduce, 2, workload=load), 1e9)


def test_every_way_to_read_is_held_against_synthetic_images() -> None:
    bad = Pipeline(parallel_reads=1, parallel_maps=1, prefetch=0)
    factors = {
        reading(Synthetic()): 1.0,
        reading(records()): 0.9,
        reading(records(), bad): 0.5,
        reading(loose()): 0.8,
    }
    shown = STORAGE.show(cases_of(*[runs(p, times(f)) for p, f in factors.items()]))
    (table,) = shown.tables
    relative = dict(zip(table.rows["input"], table.rows["relative"], strict=True))
    assert {name: text.partition(" ")[0] for name, text in relative.items()} == {
        "TFRecord files": "0.90",
        "TFRecord files, badly set": "0.50",
        "loose images": "0.80",
    }
    assert {*table.rows["model, device"]} == {"ResNet50, V100"}
    assert shown.sentences == [
        "ResNet50, V100: means of 0.90 [0.90, 0.90] from TFRecord files to 0.50 [0.50, 0.50] from "
        "TFRecord files, badly set, of the rate with synthetic images."
    ]
    assert len(shown.figures) == 1


def test_files_at_two_places_are_two_experiments_only_where_places_are_compared() -> None:
    assert reading(records("/nfs")).experiment_id != reading(records("/local")).experiment_id
    moved = replace(records(None), path="/elsewhere")
    assert reading(moved).experiment_id == reading(records(None)).experiment_id


def test_what_real_images_cost_stands_beside_what_they_cost_there() -> None:
    def served(data: Data) -> Experiment:
        load = replace(emulated("InceptionV3", 64, 1.0, 32), data=data)
        point = make_experiment(
            SynchronousServers, 2, num_ps=2, placement=Policy.PARTITIONED, workload=load
        )
        return on_hosts(point, 1e8)

    shown = PIZ_DAINT.show(
        cases_of(runs(served(Synthetic()), times(1.0)), runs(served(records(None)), times(0.75)))
    )
    beside, cost = shown.tables
    assert beside.rows["workers"].tolist()[:2] == ["1", "2"]
    assert cost.title == "What real images cost"
    (row,) = cost.rows.to_dict("records")
    assert str(row["cost here"]).startswith("0.25 [")
    assert row["cost there"] == "0.01"


def epoch(
    point: Experiment, rate: float, evaluated: float, mode: EvaluationMode
) -> list[RunRecord]:
    evaluation = Evaluation(batches=4 * point.num_workers, mode=mode)
    assert isinstance(point.measurement, Measurement)
    own = replace(point, measurement=replace(point.measurement, evaluation=evaluation))
    figures = EvaluationTimes(
        seconds=1.0,
        examples_per_sec=evaluated,
        input_wait_s=0.0,
        loss=1.0,
        batches_per_worker=evaluation.shares(point.num_workers),
    )
    return runs(own, times(rate / 100), evaluation=figures)


def claix_cases() -> tuple[Case, ...]:
    """One worker trains 100/s and evaluates 300/s, four train 400/s, and evaluate 300 or 1200/s."""
    load = emulated("ResNet50", 64, 0.6, 32)
    alone = on_hosts(make_experiment(Single, 1, workload=load), 1e8)
    four = on_hosts(make_experiment(AllReduce, 4, workload=load), 1e8)
    fused = changed(on_hosts(make_experiment(Horovod, 4, workload=load), 1e8), fusion_bytes=10)
    sequential, distributed = EvaluationMode
    return cases_of(
        epoch(alone, 100, 300, sequential),
        epoch(four, 400, 300, sequential),
        epoch(four, 400, 1200, distributed),
        epoch(fused, 390, 1200, distributed),
    )


def test_a_sequential_evaluation_bounds_the_speed_up_of_an_epoch() -> None:
    shown = CLAIX.show(claix_cases())
    epochs, pop, fusion = shown.tables
    # 60 % at 100/s and 20 % at 300/s; four workers train four times as fast.
    training, evaluating = PATCHES * 0.6 / 100, PATCHES * 0.2 / 300
    speed_up = (training + evaluating) / (training / 4 + evaluating)
    rows = {(row["workers"], row["evaluation"]): row for row in epochs.rows.to_dict("records")}
    assert str(rows["4, weak", "sequential"]["speed-up"]).startswith(f"{speed_up:.2f} [")
    assert str(rows["4, weak", "distributed"]["speed-up"]).startswith("4.00 [")
    assert rows["1, weak", "of one"]["speed-up"] == "1.00"
    bound = (training + evaluating) / evaluating
    assert f"A sequential evaluation bounds it by {bound:.2f}." in shown.sentences[0]
    assert {*pop.rows[""]} >= {"here, weak", "published, GPUs"}
    assert [*fusion.rows["workers"]] == ["4"]
    (figure,) = shown.figures
    (axes,) = figure.figure.axes
    heights = [np.unique(np.asarray(line.get_ydata())) for line in axes.get_lines()]
    assert any(each == pytest.approx([bound], rel=0.01) for each in heights)


def osu_cases() -> tuple[Case, ...]:
    real = Workload(model=ImageModel(image_size=32), batch_per_worker=32)
    halves = replace(real, batch_per_worker=16)
    one = on_hosts(make_experiment(Single, 1, workload=real), 1e9)
    two = on_hosts(make_experiment(AllReduce, 2, workload=halves), 1e9, per_host=2)
    groups = [runs(one, times(1.0)), runs(two, times(1.5))]
    weak = emulated("ResNet50", 128, 0.35, 128)
    for load, hosts in itertools.product((weak, replace(weak, scaling=Scaling.STRONG)), (1, 8)):
        strategy = Single if hosts == 1 else AllReduce
        point = on_hosts(make_experiment(strategy, hosts, workload=load), 1e9)
        rate = {1: 1.0, 8: 7.0 if load is weak else 5.0}[hosts]
        groups.append(runs(point, times(rate)))
    return cases_of(*groups)


def test_processes_of_a_host_and_speed_up_over_hosts_stand_beside_published_ones() -> None:
    shown = OSU.show(osu_cases())
    host, more = shown.tables
    assert [*host.rows["processes x threads"]] == ["1 x 1", "2 x 1"]
    assert {*host.rows["batch"]} == {"32"}
    rows = {row["hosts"]: row for row in more.rows.to_dict("records")}
    assert str(rows["8, weak"]["efficiency"]).startswith("0.87 [")
    assert rows["8, weak"]["there"] == "0.86, 0.96"
    assert str(rows["8, strong"]["efficiency"]).startswith("0.62 [")
    assert rows["8, strong"]["there"] == "0.90"
    assert "SmallCNN 2 x 1" in shown.sentences[0]
    assert shown.sentences[1].startswith(
        "Weak scaling on 8 hosts, speed-up over one: ResNet50 7.00"
    )


@pytest.mark.parametrize("study", [STORAGE, OSU, CLAIX, INCAST])
def test_a_sweep_without_a_launch_shows_nothing_and_does_not_fail(study: PublishedStudy) -> None:
    failed = on_hosts(make_experiment(AllReduce, 2), 1e9)
    shown = study.show(cases_of(runs(failed, {0: None})))
    assert (len(shown.tables), len(shown.figures)) == (0, 0)


def served(workers: int, num_ps: int, policy: Policy) -> Experiment:
    return make_experiment(SynchronousServers, workers, num_ps=num_ps, placement=policy)


MEASURED: Mapping[Experiment, float] = {
    make_experiment(Single, 1): 1.0,
    served(2, 1, Policy.ROUND_ROBIN): 1.8,
    served(4, 3, Policy.ROUND_ROBIN): 2.0,
    served(4, 4, Policy.PARTITIONED): 3.6,
}


RECORDS = [
    replace(record, sweep="piz-daint")
    for point, factor in MEASURED.items()
    for record in runs(point, times(factor))
]


def repeated() -> Case:
    return case_of(RECORDS)


def test_the_numbers_are_those_that_the_original_tells() -> None:
    """Its slides: 80.46 % of 64, 52.11 % of 128, synthetic images."""
    rows = CURVE.rows().set_index("workers")
    assert rows.loc[64, "efficiency"] == pytest.approx(0.8046, abs=5e-5)
    assert rows.loc[128, "efficiency"] == pytest.approx(0.5211, abs=5e-5)


def test_a_row_of_the_table_holds_both_at_as_many_workers() -> None:
    rows = {row["workers"]: row for row in table_beside(CURVE, repeated()).to_dict("records")}
    assert [*rows] == ["1", "2", "4", "8", "16", "32", "64", "128"]
    two, four = rows["2"], rows["4"]
    assert four["efficiency there"] == "0.95"
    assert four["servers there"] == "3"
    assert re.fullmatch(r"0\.50 \[.*\], 3 ps", four["here, round robin"])
    assert re.fullmatch(r"0\.90 \[.*\], 4 ps", four["here, partitioned"])
    # One server stands for every placement.
    assert two["here, partitioned"] == two["here, round robin"]
    assert re.fullmatch(r"0\.90 \[.*\], 1 ps", two["here, partitioned"])
    assert rows["8"]["here, partitioned"] == ""


def test_all_curves_are_drawn_from_the_data_of_the_figure() -> None:
    shown = PIZ_DAINT.show([repeated()])
    (figure,) = shown.figures
    assert [*figure.data["curve"].unique()] == [CURVE.system, *CURVE.series]
    own = figure.data[figure.data["curve"] == "here, partitioned"]
    assert [*own["num_workers"]] == [1, 2, 4]
    assert [*own["mean"].round(2)] == [1.0, 0.9, 0.9]
    drawn = [line.get_label() for line in figure.figure.axes[0].get_lines()]
    assert {CURVE.system, *CURVE.series} <= {*drawn}


def test_a_sweep_without_launches_has_a_table_and_no_figure() -> None:
    failed = runs(make_experiment(Single), {0: None})
    shown = PIZ_DAINT.show([case_of(failed)])
    assert shown.figures == []
    assert len(shown.tables) == 1


def test_the_report_of_the_study_begins_with_its_page_and_picture(tmp_path: Path) -> None:
    page = reported(tmp_path, RECORDS)
    assert page.index('id="published"') < page.index('id="results"')
    assert "The original: Bugliarello" in page
    assert page.count("published.svg") == 1
    for kind in ("png", "svg", "pdf", "csv"):
        assert (tmp_path / f"published.{kind}").exists()


def test_the_report_answers_the_question_of_the_study(tmp_path: Path) -> None:
    """It has no all-reduce, so it has no verdict between two sides."""
    save_all(tmp_path, RECORDS)
    told = " ".join(invoke("report", str(tmp_path)).split())
    page = " ".join((tmp_path / "report.html").read_text().split())
    answer = "Efficiency with 4 workers: here, round robin 0.50 ["
    assert answer in told
    assert f"<strong>{answer}" in page
    assert "No verdict" not in told + page
    # The table beside the published numbers stands on the screen as well.
    assert "There is the original, here this sweep." in told
