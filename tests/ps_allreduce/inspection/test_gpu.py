"""GPUs as NVIDIA's management library tells of them; the driver is made up."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ps_allreduce.fork_server.messages import Event, Sampled
from ps_allreduce.inspection.facts import look_around
from ps_allreduce.inspection.gpu import GpuSampler, find_gpus, granted_entries, load_nvml
from ps_allreduce.record.hosts import (
    REASONS,
    THROTTLING,
    Gpu,
    GpuSample,
    describe_difference,
    reasons_of,
)
from ps_allreduce.record.records import Sample
from ps_allreduce.serialization import from_json, to_json
from tests.fake_nvml import FakeGpu, FakeNvml, busy_gpu, divided_gpu
from tests.fakes import make_facts, make_sample
from tests.pretend import fake_server
from tests.talk import ENDLESS, Server

A, B = "GPU-aaaa1111", "GPU-bbbb2222"

pynvml: Any = importlib.import_module("pynvml")


@pytest.fixture
def two() -> FakeNvml:
    return FakeNvml(busy_gpu(A), busy_gpu(B, name="Tesla T4"))


def identities(nvml: FakeNvml, granted: str | None) -> list[str]:
    return [gpu.identity for gpu in find_gpus(nvml, granted)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("", []),
        ("0", ["0"]),
        ("1, 0", ["1", "0"]),
        ("0,-1,1", ["0"]),
        ("NoDevFiles", []),
        ("GPU-8f2c,MIG-GPU-8f2c/1/0", ["GPU-8f2c", "MIG-GPU-8f2c/1/0"]),
    ],
)
def test_entries_count_up_to_the_first_that_cuda_does_not_understand(
    text: str | None, expected: list[str] | None
) -> None:
    assert granted_entries(text) == expected


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        (None, [A, B]),
        ("", []),
        ("1", [B]),
        ("1,0", [B, A]),
        ("7", []),
        (B, [B]),
        ("GPU-b", [B]),
        ("GPU-", []),
        ("GPU-cccc", []),
        ("MIG-x", []),
    ],
)
def test_gpus_are_named_by_their_identity_whatever_the_scheduler_calls_them(
    two: FakeNvml, granted: str | None, expected: list[str]
) -> None:
    assert identities(two, granted) == expected
    assert two.num_open == 0


def test_what_the_driver_tells_of_a_gpu(two: FakeNvml) -> None:
    assert find_gpus(two, "0") == (
        Gpu(
            identity=A,
            model="NVIDIA A100-SXM4-40GB",
            memory_bytes=40 * 2**30,
            driver="550.54.15",
            compute_capability="8.0",
        ),
    )


def test_numbers_count_the_gpus_that_a_control_group_leaves_us() -> None:
    nvml = FakeNvml(busy_gpu("GPU-other", forbidden=True), busy_gpu(A), busy_gpu(B))
    assert identities(nvml, "0,1") == [A, B]
    assert identities(nvml, None) == [A, B]


def test_the_parts_of_a_divided_gpu_are_gpus() -> None:
    nvml = FakeNvml(divided_gpu(A, "MIG-1", "MIG-2"), busy_gpu(B))
    assert identities(nvml, None) == ["MIG-1", "MIG-2", B]
    assert identities(nvml, "MIG-2") == ["MIG-2"]
    assert identities(nvml, "0,1") == ["MIG-1", B]
    part, _, whole = find_gpus(nvml, None)
    assert (part.memory_bytes, part.compute_capability) == (5 * 2**30, "8.0")
    assert whole.memory_bytes == 40 * 2**30


def test_a_gpu_is_looked_at(two: FakeNvml) -> None:
    (sample,) = GpuSampler(two, [A]).look()
    assert sample == GpuSample(
        identity=A,
        utilisation=0.97,
        memory_bytes=3 * 2**30,
        sm_mhz=1410,
        memory_mhz=1215,
        power_w=399.5,
        temperature_c=61,
        reasons=("sw_power_cap",),
    )


def test_a_part_of_a_gpu_has_the_clocks_of_the_whole() -> None:
    nvml = FakeNvml(divided_gpu(A, "MIG-1"))
    (sample,) = GpuSampler(nvml, ["MIG-1"]).look()
    assert (sample.memory_bytes, sample.sm_mhz, sample.power_w) == (2**30, 1410, 399.5)
    assert sample.utilisation is None


def test_an_older_driver_has_another_word_for_reasons() -> None:
    old = {"nvmlDeviceGetCurrentClocksThrottleReasons": 0x20}
    (sample,) = GpuSampler(FakeNvml(FakeGpu(A, values=old)), [A]).look()
    assert sample.reasons == ("sw_thermal_slowdown",)


def test_what_a_gpu_does_not_tell_is_unknown_and_one_that_is_gone_is_left_out() -> None:
    assert GpuSampler(FakeNvml(FakeGpu(A)), [A, "GPU-gone"]).look() == (GpuSample(identity=A),)


def test_the_driver_is_opened_once_for_all_looks_and_closed_for_a_fork(two: FakeNvml) -> None:
    sampler = GpuSampler(two, [A, B])
    sampler.rest()
    assert two.num_inits == 0
    for _ in range(3):
        assert len(sampler.look()) == 2
    assert (two.num_inits, two.num_open) == (1, 1)
    sampler.rest()
    sampler.rest()
    assert two.num_open == 0
    assert len(sampler.look()) == 2
    assert (two.num_inits, two.num_open) == (2, 1)


def test_without_gpus_nothing_is_opened(two: FakeNvml) -> None:
    assert GpuSampler(two, []).look() == ()
    assert GpuSampler().look() == ()
    GpuSampler().rest()
    assert two.num_inits == 0


def test_a_driver_that_does_not_answer_or_fails_between_two_looks_tells_nothing(
    two: FakeNvml,
) -> None:
    nvml = FakeNvml(busy_gpu(A), works=False)
    sampler = GpuSampler(nvml, [A])
    assert sampler.look() == ()
    nvml.works = True
    assert sampler.look() == ()
    assert nvml.num_inits == 0  # it is not asked again
    sampler = GpuSampler(two, [A])
    sampler.look()
    two.works = False
    assert sampler.look() == (GpuSample(identity=A),)
    sampler.rest()
    assert sampler.look() == ()


def test_the_binding_is_loaded_where_a_driver_answers(
    two: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", two)
    assert load_nvml() is two
    assert two.num_open == 0
    two.works = False
    assert load_nvml() is None
    assert find_gpus(two, None) == ()


def test_facts_hold_what_the_driver_tells(two: FakeNvml) -> None:
    facts = look_around({"CUDA_VISIBLE_DEVICES": "1"}, two)
    assert [(gpu.identity, gpu.model) for gpu in facts.gpus] == [(B, "Tesla T4")]


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"identity": B}, True),
        ({"memory_bytes": 40 * 2**30 - 9}, True),
        ({"memory_bytes": 80 * 2**30}, False),
        ({"model": "H100"}, False),
        ({"driver": "535.1"}, False),
        ({"compute_capability": "9.0"}, False),
    ],
)
def test_another_kind_of_gpu_or_driver_makes_another_kind_of_host(
    two: FakeNvml, change: dict[str, Any], alike: bool
) -> None:
    (gpu,) = find_gpus(two, "0")
    one, other = make_facts(gpus=(gpu,)), make_facts(gpus=(replace(gpu, **change),))
    assert (one.kind == other.kind) is alike
    assert describe_difference(one, other).startswith("gpus ['") is not alike
    assert (describe_difference(one, other) == "") is alike


def test_a_sample_of_gpus_is_read_back(two: FakeNvml) -> None:
    sample = make_sample(gpus=GpuSampler(two, [A, B]).look())
    assert from_json(Sample, json.loads(json.dumps(to_json(sample)))) == sample


TELL = "report('driver', text=str(nvml.num_open))"


def test_a_fork_server_samples_gpus_and_forks_with_the_driver_closed(tmp_path: Path) -> None:
    server = Server(tmp_path, fake_server("--gpus", A, B))
    try:
        for name in ("worker:0", "worker:1"):
            server.start(name, f"{TELL}; {ENDLESS}")
            event = server.expect(Event, lambda event: event.event == "driver")
            assert event.text == "0"
            sampled = server.expect(Sampled)
            assert [gpu.identity for gpu in sampled.sample.gpus] == [A, B]
    finally:
        server.program.end()


def test_reasons_are_named() -> None:
    assert reasons_of(0x0) == ()
    assert reasons_of(0x41) == ("gpu_idle", "hw_thermal_slowdown")
    assert reasons_of(0x8000) == ()
    assert set(THROTTLING) <= set(REASONS.values())


def test_the_real_binding_has_what_the_fake_has() -> None:
    public = [name for name in dir(FakeNvml) if name.lower().startswith("nvml")]
    assert len(public) > 15
    for name in public:
        mine, theirs = getattr(FakeNvml, name), getattr(pynvml, name)
        if inspect.isfunction(mine):
            assert _accepts(theirs, len(inspect.signature(mine).parameters) - 1), name
        elif isinstance(mine, int):
            assert mine == theirs, name


def _accepts(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


def test_reasons_have_the_bits_of_the_real_binding() -> None:
    prefix = "nvmlClocksEventReason"
    for bit, name in REASONS.items():
        assert getattr(pynvml, prefix + name.title().replace("_", "")) == bit


def test_without_a_driver_the_real_binding_is_not_used() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert load_nvml() is None
    else:
        pynvml.nvmlShutdown()
        assert load_nvml() is pynvml
