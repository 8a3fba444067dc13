"""`summary.csv`: one row for each attempt, of every block.

Decides the columns; their meaning is written down in `docs/results_format.md`.  A value that is
unknown or does not apply is empty, never guessed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.data.load import Run
from analysis.data.settings import sends_buckets
from analysis.derive.bounds import bound_of, fraction_of_bound
from analysis.wording import network_text
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.hosts import kinds
from ps_allreduce.record.records import RunRecord

#: The contract first, in its order (design, section 4); what was added since follows.
COLUMNS = (
    *("sweep", "experiment_id", "run_id", "repetition", "attempt", "status", "reason"),
    *("strategy", "num_workers", "num_ps", "placement", "placement_max_over_mean", "layout"),
    *("model", "image_size", "batch_per_worker", "accumulation", "global_batch", "input"),
    *("precision", "optimizer", "compute", "launcher", "num_hosts", "workers_per_host"),
    *("devices_per_worker", "device", "cores_per_worker", "oversubscribed", "interface"),
    *("link_bits_per_s", "collective", "bytes_per_pack", "split_bytes", "staleness"),
    *("images_per_sec", "images_per_sec_per_host", "step_time_p50_s", "step_time_p95_s"),
    *("compute_s", "communication_s", "input_wait_s", "bring_up_s", "build_s", "first_step_s"),
    *("warmup_steps", "measured_steps", "hosts", "job_id", "fingerprint", "record_path"),
    *("started_at", "finished_at", "profile", "num_classes", "seed", "threads_per_worker"),
    *("total_cores", "images_per_sec_per_worker_core", "images_per_sec_per_total_core"),
    *("window_s", "total_s", "gradient_bytes", "num_tensors", "placement_deviations"),
    *("peak_memory_bytes", "cpu_s", "load_average", "commit", "warnings"),
    *("transport", "network", "ps_per_host", "coordinator", "link_round_trip_s"),
    *("machine_busy", "host_kinds", "import_s", "bound_s", "fraction_of_bound"),
    *("group_bytes", "cut_bytes", "in_flight", "gradients_on_wire"),
    *("host_aggregation", "steps_per_dispatch"),
)

Row = Mapping[str, object]


def write_summary(path: Path, runs: Iterable[Run]) -> None:
    """Write the rows of all runs, all of them or nothing.

    Raises:
        UserError: no permission, or no space left.
    """
    write_atomically(path, render_summary(runs).encode())


def render_summary(runs: Iterable[Run]) -> str:
    """The file's text: a header, then one line per attempt."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for run in runs:
        row = summary_row(run)
        writer.writerow({name: _cell(row[name]) for name in COLUMNS})
    return text.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def summary_row(run: Run) -> dict[str, object]:
    """The columns of one attempt; None where unknown or not applicable."""
    record = run.record
    return (
        _identity(record)
        | _what_was_run(record.experiment)
        | _where_it_ran(record)
        | _figures(record)
        | {"record_path": run.path}
    )


def _identity(record: RunRecord) -> dict[str, object]:
    return {
        "sweep": record.sweep,
        "experiment_id": record.experiment_id,
        "run_id": record.run_id,
        "repetition": record.repetition,
        "attempt": record.attempt,
        "status": record.status.value,
        "reason": record.reason,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "job_id": record.job_id,
        "fingerprint": record.block,
        "commit": record.provenance.commit,
        "load_average": record.provenance.load_average,
        "warnings": "; ".join(record.warnings),
    }


def _what_was_run(own: Experiment) -> dict[str, object]:
    synchronous_servers = own.traits.uses_servers and own.traits.synchronous
    dealt = own.traits.deals_steps
    return (
        {
            "strategy": own.strategy.value,
            "num_workers": own.num_workers,
            "num_ps": own.num_ps,
            "placement": own.placement,
            "layout": own.layout,
            "collective": own.collective,
            "transport": own.transport,
            "bytes_per_pack": own.bytes_per_pack,
            "split_bytes": own.split_bytes,
            "staleness": 0 if synchronous_servers else own.staleness,
            "steps_per_dispatch": own.steps_per_dispatch if dealt else None,
            "global_batch": own.global_batch,
            "launcher": own.launcher,
            "profile": own.profile.name,
            # The same everywhere (design, section 5).
            "optimizer": "sgd_momentum",
            "devices_per_worker": 1,
            "device": own.resources.device.value,
            "cores_per_worker": own.resources.cores_per_worker,
            "threads_per_worker": own.resources.threads_per_worker,
        }
        | _workload(own)
        | _spread(own)
        | _wire(own)
    )


def _spread(own: Experiment) -> dict[str, object]:
    network = own.network
    spread = own.spread if own.traits.uses_servers else None
    return {
        "ps_per_host": spread.ps_per_host if spread else None,
        "coordinator": spread.coordinator.value if spread else None,
        "network": network_text(network) if network else None,
    }


def _wire(own: Experiment) -> dict[str, object]:
    wire = own.wire if own.traits.communicates else None
    sizes = own.wire if sends_buckets(own) else None
    return {
        "group_bytes": sizes.group_bytes if sizes else None,
        "cut_bytes": sizes.cut_bytes if sizes else None,
        "in_flight": sizes.in_flight if sizes else None,
        "gradients_on_wire": wire.gradients.value if wire else None,
        "host_aggregation": wire.host_aggregation if wire else None,
    }


def _workload(own: Experiment) -> dict[str, object]:
    load = own.workload
    return {
        "model": load.model,
        "image_size": load.image_size,
        "num_classes": load.num_classes,
        "batch_per_worker": load.batch_per_worker,
        "accumulation": load.accumulation,
        "input": load.input,
        "compute": load.compute,
        "precision": load.precision.value,
        "seed": load.seed,
    }


def _where_it_ran(record: RunRecord) -> dict[str, object]:
    facts = [host.facts for host in record.hosts]
    return {
        "hosts": " ".join(host.name for host in record.hosts),
        "num_hosts": len(record.hosts) or None,
        "host_kinds": len(kinds(facts)) or None,
        "workers_per_host": workers_per_host(record),
        "oversubscribed": record.oversubscribed,
        "interface": record.interface,
        "link_bits_per_s": record.link_bits_per_s,
        "link_round_trip_s": max((link.round_trip_s for link in record.links), default=None),
        "machine_busy": record.machine_busy,
        "import_s": max((h.import_s for h in record.hosts if h.import_s is not None), default=None),
    } | _what_it_took(record)


def _what_it_took(record: RunRecord) -> dict[str, object]:
    cpu_s = [task.cpu_s for task in record.tasks if task.cpu_s is not None]
    memory = [t.peak_memory_bytes for t in record.tasks if t.peak_memory_bytes is not None]
    placement = record.placement
    return {
        "total_cores": record.total_cores,
        "cpu_s": sum(cpu_s) if cpu_s else None,
        "peak_memory_bytes": max(memory, default=None),
        "gradient_bytes": record.gradient_bytes,
        "num_tensors": record.num_tensors,
        "placement_max_over_mean": placement.max_over_mean if placement else None,
        "placement_deviations": len(placement.deviations) if placement else None,
    }


def workers_per_host(record: RunRecord) -> int | None:
    """Workers on each host; None if it is unknown or hosts differ."""
    placed = [task.host for task in record.tasks if task.task.startswith("worker:")]
    counts = {placed.count(host) for host in placed}
    return counts.pop() if len(counts) == 1 else None


def _figures(record: RunRecord) -> dict[str, object]:
    metrics, phases = record.metrics, record.phases
    own = record.experiment
    rate = metrics.images_per_sec if metrics else None
    bound = bound_of(record)
    return {
        "images_per_sec": rate,
        "images_per_sec_per_host": _per(rate, len(record.hosts)),
        "images_per_sec_per_worker_core": _per(
            rate, own.num_workers * own.resources.cores_per_worker
        ),
        "images_per_sec_per_total_core": _per(rate, record.total_cores),
        "step_time_p50_s": metrics.step_time_p50_s if metrics else None,
        "step_time_p95_s": metrics.step_time_p95_s if metrics else None,
        "bound_s": bound.step_s if bound else None,
        "fraction_of_bound": fraction_of_bound(record),
        "compute_s": metrics.compute_s if metrics else None,
        "communication_s": metrics.communication_s if metrics else None,
        "input_wait_s": metrics.input_wait_s if metrics else None,
        "warmup_steps": metrics.warmup_steps if metrics else None,
        "measured_steps": metrics.measured_steps if metrics else None,
        "window_s": metrics.window_s if metrics else None,
        "bring_up_s": phases.bring_up_s,
        "build_s": phases.build_s,
        "first_step_s": phases.first_step_s,
        "total_s": phases.total_s,
    }


def _per(rate: float | None, count: int) -> float | None:
    return rate / count if rate is not None and count else None
