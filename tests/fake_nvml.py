"""A driver that is not there: the part of `pynvml` that the suite uses, over made-up GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What the binding raises."""


@dataclass(slots=True)
class FakeGpu:
    """A GPU, or a part of one; values that are missing are not supported."""

    uuid: str
    name: str = "NVIDIA A100-SXM4-40GB"
    values: dict[str, Any] = field(default_factory=dict)
    parts: tuple[FakeGpu, ...] = ()
    whole: FakeGpu | None = None
    forbidden: bool = False


def busy_gpu(uuid: str, **changes: Any) -> FakeGpu:
    values = {
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=40 * 2**30, used=3 * 2**30),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
        "nvmlDeviceGetClockInfo": {1: 1410, 2: 1215},
        "nvmlDeviceGetPowerUsage": 399_500,
        "nvmlDeviceGetTemperature": 61,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
        "nvmlDeviceGetCudaComputeCapability": (8, 0),
    }
    return FakeGpu(uuid=uuid, values=values | changes.pop("values", {}), **changes)


def divided_gpu(uuid: str, *parts: str) -> FakeGpu:
    """A GPU under MIG: parts have memory, the whole has the rest."""
    memory = {"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=5 * 2**30, used=2**30)}
    whole = busy_gpu(uuid)
    del whole.values["nvmlDeviceGetUtilizationRates"]
    whole.parts = tuple(
        FakeGpu(uuid=part, name=f"{whole.name} MIG 1g.5gb", values=memory, whole=whole)
        for part in parts
    )
    return whole


#: Functions of a handle alone that return a value of a GPU.
READINGS = (
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetCudaComputeCapability",
)


class FakeNvml:
    """Stands in for the module; a FakeGpu is its own handle."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus: FakeGpu, works: bool = True) -> None:
        self.gpus = list(gpus)
        self.works = works
        self.num_open = 0
        self.num_inits = 0

    def nvmlInit(self) -> None:
        if not self.works:
            raise NVMLError("Driver Not Loaded")
        self.num_open += 1
        self.num_inits += 1

    def nvmlShutdown(self) -> None:
        self._check_open()
        self.num_open -= 1

    def _check_open(self) -> None:
        if self.num_open < 1 or not self.works:
            raise NVMLError("Uninitialized")

    def nvmlSystemGetDriverVersion(self) -> str:
        self._check_open()
        return "550.54.15"

    def nvmlDeviceGetCount(self) -> int:
        self._check_open()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._check_open()
        if self.gpus[index].forbidden:
            raise NVMLError("Insufficient Permissions")
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        self._check_open()
        for gpu in self.gpus:
            for found in (gpu, *gpu.parts):
                if found.uuid == uuid:
                    return found
        raise NVMLError("Not Found")

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:
        self._check_open()
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:
        self._check_open()
        return handle.name

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> list[int]:
        self._check_open()
        if handle.whole is not None:
            raise NVMLError("Invalid Argument")
        return [int(bool(handle.parts))] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:
        self._check_open()
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, index: int) -> FakeGpu:
        self._check_open()
        if index >= len(handle.parts):
            raise NVMLError("Not Found")
        return handle.parts[index]

    def nvmlDeviceIsMigDeviceHandle(self, handle: FakeGpu) -> ctypes.c_uint:
        """The binding forgets to take the value out."""
        self._check_open()
        return ctypes.c_uint(int(handle.whole is not None))

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: FakeGpu) -> FakeGpu | None:
        self._check_open()
        return handle.whole

    def nvmlDeviceGetClockInfo(self, handle: FakeGpu, kind: int) -> Any:
        return self._value("nvmlDeviceGetClockInfo", handle)[kind]

    def nvmlDeviceGetTemperature(self, handle: FakeGpu, sensor: int) -> Any:
        return self._value("nvmlDeviceGetTemperature", handle)

    def __getattr__(self, name: str) -> Callable[[FakeGpu], Any]:
        if name not in READINGS:
            raise AttributeError(name)
        return partial(self._value, name)

    def _value(self, name: str, handle: FakeGpu) -> Any:
        self._check_open()
        if name not in handle.values:
            raise NVMLError("Not Supported")
        return handle.values[name]
