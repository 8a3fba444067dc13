"""One look at this host and at the tasks on it.

Decides where the counters come from.  When a look is taken is decided by the fork server, what is
made of a series of them by whoever reads the record.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

import psutil

from ps_allreduce.record.gpu_samples import GpuSample
from ps_allreduce.record.records import Sample


def take_sample(
    now: float, processes: Mapping[str, psutil.Process], gpus: tuple[GpuSample, ...]
) -> Sample:
    """Processor and memory of the processes, this host's network counters, and its GPUs.

    Args:
        now: seconds since the epoch.
        processes: by task; one that is gone is left out.
    """
    cpu_s, memory = {}, {}
    for name, process in processes.items():
        try:
            with process.oneshot():
                times = process.cpu_times()
                cpu_s[name] = times.user + times.system
                memory[name] = process.memory_info().rss
        except psutil.Error:
            continue
    counters = psutil.net_io_counters(pernic=True)
    machine = psutil.cpu_times()
    idle_s = machine.idle + machine.iowait
    # The time of guests is part of that of users.
    total_s = sum(machine) - machine.guest - machine.guest_nice
    return Sample(
        time=now,
        host=socket.gethostname(),
        busy_s=total_s - idle_s,
        idle_s=idle_s,
        cpu_s=cpu_s,
        memory_bytes=memory,
        sent_bytes={name: nic.bytes_sent for name, nic in counters.items()},
        received_bytes={name: nic.bytes_recv for name, nic in counters.items()},
        gpus=gpus,
    )
