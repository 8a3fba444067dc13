"""Models, inputs and the emulated accelerator, for real."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments.data_sets.convert import convert
from experiments.data_sets.layouts import LAYOUTS
from ps_allreduce.errors import UserError
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.inputs.data import Digits, RecordFiles
from ps_allreduce.point.inputs.data_set import MANIFEST, Pipeline
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.shapes import known_variables
from ps_allreduce.point.models.trained import ARCHITECTURES, ImageModel
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.placement import Policy, make_plan
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import Status
from ps_allreduce.record.step_table import Phase, compute_spans, measurement_window
from tests.cluster import LocalLauncher
from tests.real.loopback import loopback_bytes_per_image, private_loopback
from tests.real.points import BRIEF, launch, output_of, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]


@pytest.fixture(scope="module")
def provoked() -> Any:
    """What `provoked_workloads` prints."""
    return json.loads(output_of("provoked_workloads").stdout)


#: Max/mean trainable bytes per server, by model and policy, on 2, 4 and 8 servers (VGG16's first
#: dense layer is 74 % of it).  Round robin is stock TensorFlow 2.21 with Keras 3.15.
PUBLISHED = {
    "ResNet50": ((2.00, 2.34, 2.39), (1.06, 1.11, 1.30), (1.00, 1.00, 1.00), (1.00, 1.00, 1.00)),
    "InceptionV3": ((2.00, 4.00, 4.34), (1.07, 1.20, 1.47), (1.00, 1.00, 1.00), (1.0, 1.0, 1.0)),
    "VGG16": ((2.00, 3.28, 6.11), (1.58, 3.06, 5.98), (1.49, 2.97, 5.94), (1.00, 1.00, 1.01)),
    "EfficientNetB0": ((1.05, 1.30, 2.33), (1.24, 1.61, 2.49), (1.0, 1.0, 1.94), (1.0, 1.0, 1.0)),
    "MobileNetV2": ((1.34, 1.99, 3.46), (1.33, 1.91, 3.23), (1.0, 1.46, 2.92), (1.0, 1.0, 1.46)),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_imbalance_of_every_model_and_policy(model: str, launcher: LocalLauncher) -> None:
    size = ARCHITECTURES[model].designed_image_size
    variables = launcher.describe(
        Workload(model=ImageModel(name=model, image_size=size, num_classes=1000))
    )
    known = [(spec.name, math.prod(spec.shape), spec.trainable) for spec in known_variables(model)]
    assert known == [(spec.name, math.prod(spec.shape), spec.trainable) for spec in variables]
    for policy, wanted in zip(Policy, PUBLISHED[model], strict=True):
        imbalance = [make_plan(policy, variables, n).max_over_mean for n in (2, 4, 8)]
        assert imbalance == pytest.approx(wanted, abs=0.006), policy


def test_round_robin_is_what_stock_tensorflow_does(provoked: Any, launcher: LocalLauncher) -> None:
    stock = provoked["devices"]
    variables = launcher.describe(Workload(model=ImageModel(name="MobileNetV2", image_size=32)))
    plan = make_plan(Policy.ROUND_ROBIN, variables, 3)
    assert [tuple(shape) for shape, _ in stock] == [spec.shape for spec in variables]
    for shard in plan.shards:
        assert f"/job:ps/replica:0/task:{shard.server}/" in stock[shard.variable][1]
    assert len(plan.shards) == sum(spec.trainable for spec in variables)


def test_a_batch_that_no_memory_holds_is_refused_beforehand(launcher: LocalLauncher) -> None:
    load = Workload(model=ImageModel(image_size=224), batch_per_worker=1_000_000)
    launcher.describe(load)
    with pytest.raises(UserError, match=r"a step keeps at least .* GB in a worker, which has"):
        launcher.check(point(Single, 1, workload=load))


EMULATED = Workload(emulated=EmulatedCompute(forward_s=0.03, backward_s=0.03), batch_per_worker=2)


@pytest.mark.timed
@pytest.mark.parametrize("strategy", [AllReduce, SynchronousServers, AsynchronousServers])
def test_emulated_compute_takes_the_stated_time(
    strategy: type[AnyStrategy], launcher: LocalLauncher
) -> None:
    measurement = replace(BRIEF, warmup=FixedWarmup(least_steps=5, least_s=0.0), measured_steps=40)
    placed = {"placement": Policy.GREEDY} if strategy.uses_servers else {}
    experiment = point(strategy, 2, workload=EMULATED, measurement=measurement, **placed)
    run = launch(launcher, experiment)
    assert run.status is Status.OK, run.reason
    assert run.steps is not None
    measured = run.steps.select(run.steps.phase == Phase.MEASURED)
    # A busy machine is late for some steps, and early for none: the quickest tell what is meant.
    assert compute_spans(measured).min() == pytest.approx(0.06, rel=0.03)
    groups = measured.releases.shape[1]
    assert 1 < groups <= 16
    assert (np.diff(measured.releases, axis=1) > 0).all()
    released = (measured.releases - measured.batches[:, 0, :1]).min(axis=0)
    planned = 0.03 + 0.03 * (1 + np.arange(groups)) / groups
    assert released.tolist() == pytest.approx(planned.tolist(), abs=0.003)
    # Two clocks that are read at about the same time, neither of which waits for the other.
    late = measured.releases[:, -1] - measured.batches[:, -1, 2]
    assert late.min() < 0.001
    assert experiment.columns()["compute"] == "emulated"


@pytest.mark.timed
def test_a_factor_of_one_worker_slows_the_step_of_all(launcher: LocalLauncher) -> None:
    measurement = replace(BRIEF, warmup=FixedWarmup(least_steps=5, least_s=0.0), measured_steps=40)
    steps_s, spans = {}, {}
    for factors in ((), (1.0, 1.5)):
        compute = EmulatedCompute(forward_s=0.04, backward_s=0.06, factors=factors)
        workload = replace(EMULATED, emulated=compute)
        experiment = point(AllReduce, 2, workload=workload, measurement=measurement)
        run = launch(launcher, experiment)
        assert run.status is Status.OK, run.reason
        assert run.steps is not None
        tables = run.steps.select(run.steps.phase == Phase.MEASURED).by_worker()
        # The usual step: one that follows a late one looks quick.
        steps_s[factors] = np.median([np.diff(table.end) for table in tables])
        # Of 40 steps one may look too quick: a moment is noted late where a step begins.
        spans[factors] = [np.quantile(compute_spans(table), 0.05) for table in tables]
    assert spans[()] == pytest.approx([0.1, 0.1], rel=0.01)
    assert spans[1.0, 1.5] == pytest.approx([0.1, 0.15], rel=0.01)
    assert steps_s[1.0, 1.5] - steps_s[()] == pytest.approx(0.05, rel=0.2)


def test_what_is_taken_off_for_late_ticks_is_limited(provoked: Any) -> None:
    # Ticks are never on time to the microsecond.
    limited, default = provoked["lateness"]
    assert limited == pytest.approx(1e-6)
    assert 1e-6 < default <= 1e-3


def test_a_worker_draws_what_its_judge_expects(provoked: Any) -> None:
    jitter = Jitter(distribution=Distribution.LOGNORMAL, variation=0.2, seed=2**31 - 1)
    assert provoked["drawn"] == jitter.factors(1, np.arange(50)).tolist()


def test_layers_that_draw_are_kept_from_it_and_batch_norm_goes_on(provoked: Any) -> None:
    calm = provoked["calm"]
    assert calm["differs"] == [True, False]
    assert calm["batch_norm_learns"]
    layers = [name.partition("/")[0] for name in calm["seeds"]]
    assert layers == ["gaussian_noise", "inner", "lstm_cell"]
    assert "layer noisy draws random numbers" in calm["refused"]


@pytest.mark.timed
@pytest.mark.parametrize("strategy", [AllReduce, AsynchronousServers])
def test_a_step_takes_as_long_as_was_drawn_for_it(
    strategy: type[AnyStrategy], launcher: LocalLauncher
) -> None:
    jitter = Jitter(distribution=Distribution.GAMMA, variation=0.3)
    compute = EmulatedCompute(forward_s=0.03, backward_s=0.03, jitter=jitter)
    workload = replace(EMULATED, emulated=compute, accumulation=2)
    measurement = replace(BRIEF, warmup=FixedWarmup(least_steps=5, least_s=0.0), measured_steps=20)
    run = launch(launcher, point(strategy, 2, workload=workload, measurement=measurement))
    assert run.status is Status.OK, run.reason
    assert run.steps is not None
    for table in run.steps.by_worker():
        drawn = 0.12 * jitter.factors(int(table.worker[0]), table.step)
        # A busy machine is late for some steps, and early for none.
        assert abs((compute_spans(table) - drawn).min()) < 0.004


@pytest.mark.timed
def test_emulated_compute_burns_no_processor(launcher: LocalLauncher) -> None:
    measurement = replace(BRIEF, measured_steps=60)
    workload = replace(EMULATED, emulated=EmulatedCompute(forward_s=0.1, backward_s=0.1))
    experiment = point(Single, workload=workload, measurement=measurement)
    run = launch(launcher, experiment)
    assert run.steps is not None
    window = measurement_window(run.steps)
    used = [
        sample.cpu_s["worker:0"]
        for sample in run.samples
        if window.start < sample.time < window.end and "worker:0" in sample.cpu_s
    ]
    assert used[-1] - used[0] < 0.2 * window.length_s


LARGE = Workload(model=ImageModel(image_size=96), batch_per_worker=2)

#: What is left of the bytes with gradients of 16 bits: parameters from servers keep theirs.
LEFT = {AllReduce: 0.5, SynchronousServers: 0.75, AsynchronousServers: 0.75}


@pytest.fixture(scope="module")
def alone(data_dir: Path, namespaces: None) -> Iterator[LocalLauncher]:
    with private_loopback(data_dir) as local:
        yield local


@pytest.mark.parametrize("strategy", LEFT)
def test_accumulation_and_gradients_of_16_bits_cut_the_bytes_on_the_wire(
    strategy: type[AnyStrategy], alone: LocalLauncher
) -> None:
    def bytes_per_image(accumulation: int, gradients: WireType) -> float:
        # Large weights and few images, so that little else is on the wire.
        experiment = point(
            strategy,
            2,
            workload=replace(LARGE, accumulation=accumulation),
            measurement=Measurement(
                warmup=FixedWarmup(least_steps=2, least_s=0.0), measured_steps=40
            ),
            wire=Wire(gradients=gradients),
        )
        return loopback_bytes_per_image(alone, experiment)

    default = bytes_per_image(1, WireType.FLOAT32)
    assert default / bytes_per_image(4, WireType.FLOAT32) == pytest.approx(4.0, rel=0.15)
    left = bytes_per_image(1, WireType.FLOAT16) / default
    assert left == pytest.approx(LEFT[strategy], rel=0.1)


def _images(folder: Path) -> Path:
    for name, shade in (("dark", 40), ("light", 200)):
        (folder / name).mkdir(parents=True)
        for index in range(4):
            pixels = np.full((20, 24, 3), shade + index, np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A file of records, made of two kinds of images."""
    source, target = _images(tmp_path / "images"), tmp_path / "records"
    convert(LAYOUTS["class-folders"], source, target, lambda _: nullcontext(lambda *_: None))
    (path,) = (target / "training").glob("*.tfrecord")
    return path


def _trained_on(path: Path) -> Workload:
    data = RecordFiles.found_in(path.parent)
    return Workload(data=data, model=ImageModel(num_classes=2), batch_per_worker=4)


def test_a_folder_of_images_becomes_records_and_trains(
    launcher: LocalLauncher, records: Path
) -> None:
    workload = _trained_on(records)
    launcher.prepare(workload)
    run = launch(launcher, point(AllReduce, 2, workload=workload))
    assert run.status is Status.OK, run.reason


def test_damaged_input_is_one_sentence(launcher: LocalLauncher, records: Path) -> None:
    records.with_name(MANIFEST).unlink()  # files that others wrote have none
    content = records.read_bytes()
    workload = _trained_on(records)
    for damaged in (content[:-7], b"this is no TFRecord file at all", b""):
        records.write_bytes(damaged)
        with pytest.raises(UserError, match="not those that the sweep was planned with"):
            launcher.prepare(workload)
        with pytest.raises(UserError, match=r"truncated or no TFRecord file|holds no record"):
            launcher.prepare(_trained_on(records))
    records.unlink()
    with pytest.raises(UserError, match=r"no \*\.tfrecord file in"):
        launcher.prepare(workload)


def test_a_flipped_byte_is_noticed_while_training(launcher: LocalLauncher, records: Path) -> None:
    content = bytearray(records.read_bytes())
    content[len(content) // 2] ^= 0xFF
    records.write_bytes(bytes(content))
    run = launch(launcher, point(Single, workload=_trained_on(records)))
    assert run.status is Status.FAILED
    assert "is damaged: corrupted record at" in run.reason


def test_made_input_that_is_gone_is_a_fault_of_the_host(
    launcher: LocalLauncher, data_dir: Path
) -> None:
    shutil.rmtree(data_dir / Digits.kind)
    trained = point(Single, workload=Workload(data=Digits()))
    run = launch(launcher, trained)
    launcher.prepare(trained.workload)
    assert (run.status, run.host_fault) == (Status.INTERRUPTED, run.reason)
    assert run.reason.endswith(f"the input that was made in {data_dir / Digits.kind} is gone.")


def test_loose_images_train_and_are_read_for_weights_alone(
    launcher: LocalLauncher, data_dir: Path, tmp_path: Path
) -> None:
    data = ImageFiles.found_in(_images(tmp_path / "images"))
    real = Workload(data=data, model=ImageModel(num_classes=2), batch_per_worker=4)
    launcher.prepare(real)
    scaled = replace(
        real,
        model=ScaledModel(base="ResNet50", divisor=32),
        emulated=EmulatedCompute(forward_s=0.002, backward_s=0.002),
        pipeline=Pipeline(read_size=16),
    )
    for strategy, workload in ((SynchronousServers, real), (AllReduce, scaled)):
        run = launch(launcher, point(strategy, 2, workload=workload))
        assert run.status is Status.OK, run.reason
    (tmp_path / "images" / "dark" / "3.png").write_bytes(b"no image")
    run = launch(launcher, point(Single, workload=real))
    assert (run.status, "dark/3.png is damaged: " in run.reason) == (Status.FAILED, True)
    data.listed_in(data_dir).unlink()
    assert "made in" in (launch(launcher, point(Single, workload=real)).host_fault or "")
