"""What NVIDIA's management library (NVML) tells of the GPUs that this step may use.

Decides which of the host's GPUs these are, and what a sample of one consists of.  Taking a sample
creates no CUDA context and takes no GPU memory.  Whether there is a driver is found out once, when
the fork server comes up.

`nvml` is the module `pynvml` of the package nvidia-ml-py, or what tests put in its place.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ps_allreduce.record.hosts import Gpu, GpuSample, reasons_of

#: What CUDA understands in CUDA_VISIBLE_DEVICES: a number, or the identity of a GPU or of a part.
ENTRY = re.compile(r"\d+|GPU-[0-9A-Fa-f-]+|MIG-\S+")


def load_nvml() -> Any | None:
    """The binding, if there is a driver that answers it."""
    nvml = importlib.import_module("pynvml")
    try:
        with _open(nvml):
            return nvml
    except nvml.NVMLError:
        return None


@contextmanager
def _open(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _ask(nvml: Any, name: str, *arguments: Any) -> Any | None:
    """An answer of NVML; None where the GPU, the driver or the binding has none."""
    try:
        return getattr(nvml, name)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def granted_entries(text: str | None) -> list[str] | None:
    """The entries of CUDA_VISIBLE_DEVICES; None if it is not set and all GPUs are visible.

    CUDA ignores what follows the first entry that it does not understand, as `-1` or Slurm's
    `NoDevFiles`.
    """
    if text is None:
        return None
    entries = []
    for entry in text.split(","):
        if not ENTRY.fullmatch(entry.strip()):
            break
        entries.append(entry.strip())
    return entries


def find_gpus(nvml: Any, granted: str | None) -> tuple[Gpu, ...]:
    """Describe the GPUs that CUDA will show, in its order.

    They are named by their UUID, because a number may mean different GPUs: by default CUDA counts
    from the fastest, NVML in the order of the bus.

    Args:
        granted: CUDA_VISIBLE_DEVICES, None if it is not set.
    """
    try:
        with _open(nvml):
            driver = str(_ask(nvml, "nvmlSystemGetDriverVersion") or "")
            gpus = [_describe(nvml, handle, driver) for handle in _visible(nvml, granted)]
    except nvml.NVMLError:
        return ()
    return tuple(gpu for gpu in gpus if gpu.identity)


def _visible(nvml: Any, granted: str | None) -> list[Any]:
    """Handles of the GPUs, or their MIG parts, that CUDA will show."""
    devices = _accessible(nvml)
    entries = granted_entries(granted)
    if entries is None:
        return [part for device in devices for part in _parts(nvml, device) or [device]]
    handles = [_find(nvml, entry, devices) for entry in entries]
    return [handle for handle in handles if handle is not None]


def _accessible(nvml: Any) -> list[Any]:
    """Whole GPUs in the order of the bus, without those that a control group keeps from us.

    CUDA and the scheduler number what is left, from 0.
    """
    indices = range(_ask(nvml, "nvmlDeviceGetCount") or 0)
    handles = [_ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in indices]
    return [handle for handle in handles if handle is not None]


def _parts(nvml: Any, device: Any) -> list[Any]:
    """The MIG parts of a GPU; none if it is not divided."""
    current, _ = _ask(nvml, "nvmlDeviceGetMigMode", device) or (0, 0)
    if not current:
        return []
    indices = range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", device) or 0)
    parts = [_ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", device, i) for i in indices]
    return [part for part in parts if part is not None]


def _find(nvml: Any, entry: str, devices: Sequence[Any]) -> Any | None:
    """The handle of an entry; by number, CUDA shows the first part of a GPU that is divided."""
    if entry.isdecimal():
        if int(entry) >= len(devices):
            return None
        device = devices[int(entry)]
        return next(iter(_parts(nvml, device)), device)
    if entry.startswith("MIG-"):
        return _ask(nvml, "nvmlDeviceGetHandleByUUID", entry)
    # CUDA accepts the beginning of an identity if it is unambiguous; NVML does not.
    identities = {_identity(nvml, device): device for device in devices}
    fitting = [device for identity, device in identities.items() if identity.startswith(entry)]
    return fitting[0] if len(fitting) == 1 else None


def _identity(nvml: Any, handle: Any) -> str:
    return str(_ask(nvml, "nvmlDeviceGetUUID", handle) or "")


def _whole(nvml: Any, handle: Any) -> Any:
    """The whole GPU of a part; only the whole has clocks, power and temperature."""
    if not _ask(nvml, "nvmlDeviceIsMigDeviceHandle", handle):
        return handle
    return _ask(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle) or handle


def _describe(nvml: Any, handle: Any, driver: str) -> Gpu:
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    capability = _ask(nvml, "nvmlDeviceGetCudaComputeCapability", _whole(nvml, handle))
    return Gpu(
        identity=_identity(nvml, handle),
        model=str(_ask(nvml, "nvmlDeviceGetName", handle) or ""),
        memory_bytes=None if memory is None else int(memory.total),
        driver=driver,
        compute_capability="" if capability is None else "{}.{}".format(*capability),
    )


def _look_at(nvml: Any, identity: str, handle: Any) -> GpuSample:
    whole = _whole(nvml, handle)
    # NVML does not tell this of parts.
    rates = _ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    power_mw = _ask(nvml, "nvmlDeviceGetPowerUsage", whole)
    return GpuSample(
        identity=identity,
        utilisation=None if rates is None else rates.gpu / 100,
        memory_bytes=None if memory is None else int(memory.used),
        sm_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", whole, nvml.NVML_CLOCK_SM),
        memory_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", whole, nvml.NVML_CLOCK_MEM),
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=_ask(nvml, "nvmlDeviceGetTemperature", whole, nvml.NVML_TEMPERATURE_GPU),
        reasons=reasons_of(_clock_reasons(nvml, whole)),
    )


def _clock_reasons(nvml: Any, device: Any) -> int:
    """The bits of `record.hosts.REASONS`, by their present name or that of drivers before 535."""
    bits = _ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", device)
    if bits is None:
        bits = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", device)
    return bits or 0


@dataclass(slots=True)
class GpuSampler:
    """Looks at the GPUs of this step.

    NVML is open from the first look until `rest`, which must come before every fork: a task may
    open NVML itself, as NCCL does, and must not inherit what belongs to another process.

    Attributes:
        nvml: None where there is no driver.
        identities: of the GPUs, as `find_gpus` names them.
    """

    nvml: Any | None = None
    identities: Sequence[str] = ()
    handles: dict[str, Any] | None = None

    def look(self) -> tuple[GpuSample, ...]:
        """One sample of each GPU; nothing where there is none, or once NVML does not answer."""
        if self.nvml is None or not self.identities:
            return ()
        if self.handles is None:
            try:
                self.nvml.nvmlInit()
            except self.nvml.NVMLError:
                self.nvml = None
                return ()
            handles = {i: _ask(self.nvml, "nvmlDeviceGetHandleByUUID", i) for i in self.identities}
            self.handles = {name: handle for name, handle in handles.items() if handle is not None}
        return tuple(_look_at(self.nvml, name, handle) for name, handle in self.handles.items())

    def rest(self) -> None:
        """Close NVML; the next look opens it again."""
        if self.nvml is not None and self.handles is not None:
            self.handles = None
            with suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()
