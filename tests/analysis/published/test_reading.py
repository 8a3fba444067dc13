"""What the studies of storage, Ohio State and CLAIX show of made-up launches; costs of reading."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from analysis.data.cases import Case
from analysis.published.beside import PIZ_DAINT
from analysis.published.claix import CLAIX, PATCHES
from analysis.published.osu import OSU
from analysis.published.storage import STORAGE
from analysis.published.study import PublishedStudy
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Data, RecordFiles, Synthetic
from ps_allreduce.point.inputs.data_set import ExampleForm, Pipeline
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Measurement
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import AllReduce, Horovod, Single, SynchronousServers
from ps_allreduce.point.workload import Scaling, Workload
from ps_allreduce.record.evaluation_timings import EvaluationTimes
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import cases_of, changed, runs, times
from tests.analysis.published.test_tables import emulated, on_hosts
from tests.fakes import make_experiment


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
        "ResNet50, V100: 0.90 of the rate with synthetic images from TFRecord files, 0.50 "
        "from TFRecord files, badly set."
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


@pytest.mark.parametrize("study", [STORAGE, OSU, CLAIX])
def test_a_sweep_without_a_launch_shows_nothing_and_does_not_fail(study: PublishedStudy) -> None:
    failed = on_hosts(make_experiment(AllReduce, 2), 1e9)
    shown = study.show(cases_of(runs(failed, {0: None})))
    assert (len(shown.tables), len(shown.figures)) == (0, 0)
