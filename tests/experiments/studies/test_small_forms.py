"""The studies from the literature whose small forms have several workloads, spreads or links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.studies.literature import (
    network_study,
    osu,
    p2,
    pcad,
    piz_daint,
    storage,
)
from experiments.studies.study import Study
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Data, InputFiles, RecordFiles
from ps_allreduce.point.inputs.data_set import Pipeline
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Device, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    Horovod,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.workload import Precision, Workload
from tests.experiments.studies.scopes import make_scope
from tests.fakes import TWO_LAYERS


def small(study: Study, workers_per_host: int = 1, host_cores: int = 1) -> list[Experiment]:
    form = study.small
    assert form is not None
    scope = make_scope(
        form.workers,
        workloads=form.workloads,
        launcher="emulated",
        spread=Spread(workers_per_host=workers_per_host),
        network=EmulatedNetwork(num_hosts=form.hosts, bits_per_s=form.bandwidth),
        settings=form.settings,
        describe=lambda workload: getattr(workload.model, "variables", TWO_LAYERS),
        brief=True,
        host_cores=host_cores,
    )
    return [*study.points(scope)]


def test_workers_of_a_host_send_one_gradient_to_one_server_for_each_host() -> None:
    apart = [p for p in small(p2.STUDY) if isinstance(p.strategy, SynchronousServers)]
    assert [(p.num_workers, p.num_ps) for p in apart] == [(4, 4), (8, 8)]
    assert not any(p.strategy.host_aggregation for p in apart)
    beside = [p for p in small(p2.STUDY, 8) if isinstance(p.strategy, SynchronousServers)]
    assert [(p.num_workers, p.num_ps) for p in beside] == [(8, 1), (16, 2)]
    assert all(p.strategy.host_aggregation for p in beside)


def passes(point: Experiment) -> tuple[float, float]:
    emulated = point.workload.emulated
    assert emulated is not None
    return emulated.forward_s, emulated.backward_s


@pytest.mark.parametrize(
    ("device", "precisions"),
    [
        (Device.CPU, {Precision.FLOAT32}),
        (Device.GPU, {Precision.FLOAT32, Precision.MIXED_FLOAT16}),
    ],
)
def test_mixed_precision_is_measured_where_devices_have_it(
    device: Device, precisions: set[Precision]
) -> None:
    scope = make_scope((1, 2), workloads=(Workload(),), device=device)
    points = [*network_study.STUDY.points(scope)]
    assert {p.workload.precision for p in points} == precisions
    assert sum(isinstance(p.strategy, Single) for p in points) == len(precisions)


def test_times_of_compute_keep_the_measured_ratios() -> None:
    by_model = {
        (p.workload.model.name, p.workload.batch_per_worker): sum(passes(p))
        for p in small(pcad.STUDY)
    }
    assert by_model["ResNet50/1", 64] == pytest.approx(pcad.SCALED_TO_S)
    measured = pcad.COMPUTE_S["EfficientNetB0"][32] / pcad.COMPUTE_S["ResNet50"][100]
    scaled = by_model["EfficientNetB0/1", 32] / by_model["ResNet50/1", 100]
    assert scaled == pytest.approx(measured, rel=0.01)


def reading(study: Study, data: Data, workers_per_host: int = 1) -> list[Experiment]:
    """The points of a small form that read some files."""
    form = study.small
    assert form is not None
    assert form.samples is not None
    pipeline = Pipeline(read_size=form.samples.pixels)
    read = [replace(each, data=data, pipeline=pipeline) for each in form.workloads]
    return small(replace(study, small=replace(form, workloads=tuple(read))), workers_per_host)


RECORDS = RecordFiles(path="/a", num_files=2, num_bytes=100, checksum="ab" * 8)
LOOSE = ImageFiles(path="/b", num_files=9, num_bytes=100, num_classes=2, checksum="cd" * 8)


def test_real_images_are_read_where_the_original_tells_what_they_cost() -> None:
    assert [p.num_workers for p in reading(piz_daint.STUDY, RECORDS)] == [1, 4]
    assert [p.num_workers for p in reading(p2.STUDY, RECORDS, 8)] == [1, 8]
    assert reading(p2.STUDY, RECORDS) == []
    assert reading(piz_daint.STUDY, LOOSE) == reading(p2.STUDY, LOOSE, 8) == []


def test_every_pipeline_reads_every_format_and_synthetic_images_need_none() -> None:
    assert len(small(storage.STUDY)) == len(storage.SMALL_SPEEDS) + 1  # one in two precisions
    for data in (RECORDS, LOOSE):
        points = reading(storage.STUDY, data)
        assert len({p.experiment_id for p in points}) == len(points) == 3 * len(storage.PIPELINES)
        read = {p.workload.data for p in points}
        assert [each.place for each in read if isinstance(each, InputFiles)] == [data.path]


def test_processes_of_a_host_share_its_cores_and_have_a_thread_for_each() -> None:
    form = osu.STUDY.small
    assert form is not None
    shared = [
        (p.num_workers, p.resources.cores_per_worker, p.resources.threads_per_worker)
        for p in small(osu.STUDY, host_cores=4)
        if p.workload.emulated is None and p.workload.model.name == "VGG16"
    ]
    assert shared == [(1, 4, 4), (2, 2, 2), (4, 1, 1)]


def test_the_best_of_a_host_is_measured_on_more_hosts_by_all_strategies() -> None:
    scope = make_scope(
        (1, 2), workloads=osu.STUDY.workloads[:1], launcher="ssh", spread=Spread(), host_cores=4
    )
    assert osu.STUDY.search is not None
    searched = [*osu.STUDY.search.points(scope)]
    assert {(p.num_workers, p.global_batch) for p in searched} == {
        (processes, batch) for processes in osu.PROCESSES for batch in osu.BATCHES
    }
    best = next(p for p in searched if (p.num_workers, p.global_batch) == (4, 128))
    measured = [p for p in osu.STUDY.points(replace(scope, tuned=(best,))) if p.num_workers > 1]
    told = {(type(p.strategy), p.num_workers, str(p.workload.scaling)) for p in measured}
    strategies = (AllReduce, Horovod, SynchronousServers)
    assert told == {
        (strategy, 4 * hosts, scaling)
        for strategy in strategies
        for hosts in (1, 2)
        for scaling in ("weak", "strong")
    }
    assert {p.of_each.batch_per_worker for p in measured} == {32, 16}
