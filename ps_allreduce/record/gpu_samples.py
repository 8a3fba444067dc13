"""What a look at a GPU tells, as it stands in a record.

Decides the names under which reasons for low clocks are recorded, and which of them slow a run
down.  Where the values come from is `inspection.gpu`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Reasons for clocks below the highest, by NVML's bit.  Source: NVML API reference, group
#: nvmlClocksEventReasons.
REASONS: Mapping[int, str] = {
    0x01: "gpu_idle",
    0x02: "applications_clocks_setting",
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

#: Those that slow a busy GPU down against anybody's will, in plain words.
THROTTLING: Mapping[str, str] = {
    "sw_power_cap": "its power cap",
    "hw_slowdown": "its hardware's slowdown",
    "sw_thermal_slowdown": "its temperature",
    "hw_thermal_slowdown": "its temperature (hardware)",
    "hw_power_brake_slowdown": "an external power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One look at a GPU; None for what it does not tell.

    Attributes:
        identity: as CUDA_VISIBLE_DEVICES names it.
        utilisation: share of the driver's last period in which a kernel ran, 0 to 1.
        memory_bytes: in use, by whatever process.
        sm_mhz, memory_mhz: present clocks, of the processors and of the memory.
        reasons: why the clocks are not higher, of `REASONS`.
    """

    identity: str
    utilisation: float | None = None
    memory_bytes: int | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    reasons: tuple[str, ...] = ()


def reasons_of(bits: int) -> tuple[str, ...]:
    """The names of the reasons in NVML's bit mask; bits that are new to us are left out."""
    return tuple(name for bit, name in REASONS.items() if bits & bit)
