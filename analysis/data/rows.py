"""The row of one attempt: what was asked for, where it ran, and what came out.

Decides where the value of every column comes from.  A value that is unknown or does not apply is
None, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np

from analysis.derive.costs import (
    busy_share,
    clock_ratio,
    core_bits_per_s,
    mean_seconds,
    processor_time,
    recording_ratio,
    seconds_per_gigabyte,
    task_seconds,
)
from analysis.derive.fastest_step import bound_of, made_flows_of, step_time_s
from analysis.derive.network_causes import network_causes
from analysis.derive.steadiness import LEAST_FOR_HUMPS, stalls_of, steadiness_of
from analysis.derive.step_parts import meets_in_every_step, parts_of, pop_of, traced_step_s
from ps_allreduce.bounds import link_bytes
from ps_allreduce.cluster import TaskId, TaskType
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.models.trained import Unit
from ps_allreduce.point.network import RTO_MIN_S
from ps_allreduce.record.evaluation_timings import LearningCurve
from ps_allreduce.record.hosts import kinds
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.step_table import StepTable, Window, measurement_window

Row = Mapping[str, object]

#: Columns that a record has under the same name.
_FIELDS = (
    *("sweep", "profile", "experiment_id", "run_id", "repetition", "attempt", "status", "reason"),
    *("job_id", "oversubscribed", "interface", "link_bits_per_s", "machine_busy", "total_cores"),
    *("gradient_bytes", "num_messages", "traffic_bits_per_s", "warmup_end"),
    *("foreign_load", "stolen_load", "port_drops"),
)

#: Columns that are figures of the measured window under the same name.
_METRICS = (
    *("step_time_p50_s", "step_time_p95_s", "compute_s", "communication_s", "input_wait_s"),
    *("forward_s", "backward_s", "warmup_steps", "measured_steps", "window_s"),
)

#: Throughput, and over what else it is given.
_RATES = ("per_sec", "per_sec_per_host", "per_sec_per_worker_core", "per_sec_per_total_core")


def row_of(record: RunRecord, place: str, steps: StepTable | RecordFormatError | None) -> Row:
    """The columns of one attempt.

    Args:
        place: path of the record, from the folder of its sweep.
        steps: of the raw timings; why these cannot be read, or None where there are none.
    """
    timings = steps if isinstance(steps, StepTable) else None
    window = None if timings is None else _window(timings)
    return {
        **record.experiment.columns(),
        **{name: getattr(record, name) for name in _FIELDS},
        **_when_and_where(record),
        **_what_it_took(record),
        **(record.tcp.columns() if record.tcp else {}),
        **(record.rows_asked.columns() if record.rows_asked else {}),
        "congestion": _congestion(record),
        "port_loss": _port_loss(record),
        **_figures(record),
        **_throughput(record),
        **_shares(record),
        **_evaluated(record),
        **(_learned(record.learned) if record.learned and record.learned.loss else {}),
        **_against_the_links(record, timings, window),
        **_where_time_goes(record, timings, window),
        "record_path": place,
        "raw_timings": steps is not None,
        "steadiness": (
            None
            if timings is None
            else steadiness_of(timings, meets=meets_in_every_step(record.experiment))
        ),
        "traced_step_s": None if timings is None else traced_step_s(timings),
        "busy": busy_share(record, window),
    }


def _window(steps: StepTable) -> Window | None:
    try:
        return measurement_window(steps)
    except ValueError:  # a run that did not get so far
        return None


def _when_and_where(record: RunRecord) -> Row:
    return {
        "started_at": moment(record.started_at),
        "finished_at": moment(record.finished_at),
        "fingerprint": record.block,
        "commit": record.provenance.commit,
        "load_average": _largest(load for load, _ in record.loads),
        "warnings": "; ".join(record.warnings),
        "hosts": " ".join(host.name for host in record.hosts),
        "num_hosts": len(record.hosts) or None,
        "host_kinds": len(kinds([host.facts for host in record.hosts])) or None,
        "workers_per_host": _workers_per_host(record),
        "link_round_trip_s": _largest(link.round_trip_s for link in record.links),
        "import_s": _largest(host.import_s for host in record.hosts),
    }


def moment(text: str) -> datetime:
    """A time of a record; those without a zone are taken as UTC.

    Raises:
        ValueError: the text is no time.
    """
    when = datetime.fromisoformat(text)
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _what_it_took(record: RunRecord) -> Row:
    cpu_s = [task.cpu_s for task in record.tasks if task.cpu_s is not None]
    placement = record.placement
    return {
        "cpu_s": sum(cpu_s) if cpu_s else None,
        "peak_memory_bytes": _largest(task.peak_memory_bytes for task in record.tasks),
        "placement_max_over_mean": placement.max_over_mean if placement else None,
        "placement_deviations": len(placement.deviations) if placement else None,
    }


def _congestion(record: RunRecord) -> str | None:
    """What the emulated network states, else what all hosts have; None if they differ."""
    if record.experiment.network is not None:
        return record.experiment.network.congestion
    found = {host.facts.congestion for host in record.hosts}
    return (found.pop() or None) if len(found) == 1 else None


def _port_loss(record: RunRecord) -> float | None:
    """Ports count during the whole run, and so do samples: a window sends only a part of it.

    None between racks, too: nobody counts what an uplink loses.
    """
    network = record.experiment.network
    if network is not None and network.racks > 1:
        return None
    counted: dict[str, list[int]] = {}
    for sample in record.samples:
        if sample.tcp is not None:
            counted.setdefault(sample.host, []).append(sample.tcp.sent)
    sent = sum(max(each) - min(each) for each in counted.values())
    is_known = sent > 0 and {host.name for host in record.hosts} <= counted.keys()
    return record.port_drops / sent if is_known and record.port_drops is not None else None


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _workers_per_host(record: RunRecord) -> int | None:
    """Workers on each host; None if it is unknown or hosts differ."""
    hosts = [t.host for t in record.tasks if TaskId.parse(t.task).type is TaskType.WORKER]
    counts = {hosts.count(host) for host in hosts}
    return counts.pop() if len(counts) == 1 else None


def _evaluated(record: RunRecord) -> Row:
    """Nothing where nothing was evaluated."""
    if (times := record.evaluation) is None:
        return {}
    return {
        "evaluation_s": times.seconds,
        "evaluation_examples_per_sec": times.examples_per_sec,
        "evaluation_input_wait_s": times.input_wait_s,
    }


def _learned(learned: LearningCurve) -> Row:
    """Of a training that had a loss at its first evaluation; else nothing is known."""
    staleness = np.repeat(np.arange(len(learned.staleness)), learned.staleness)
    return {
        "trained_s": learned.seconds[-1],
        "trained_examples": learned.examples[-1],
        "held_out_loss": learned.loss[-1],
        "held_out_accuracy": learned.accuracy[-1] if learned.accuracy else None,
        "gradient_norm": learned.gradient_norm[-1] if learned.gradient_norm else None,
        "target_s": learned.target_s,
        "target_examples": learned.target_examples,
        "staleness_mean": float(staleness.mean()) if len(staleness) else None,
        "staleness_p95": float(np.percentile(staleness, 95)) if len(staleness) else None,
    }


def _figures(record: RunRecord) -> Row:
    row: dict[str, object] = {**asdict(record.phases), "step_s": step_time_s(record)}
    row["clock_ratio"] = clock_ratio(record)
    if record.metrics is not None:
        row |= {name: getattr(record.metrics, name) for name in _METRICS}
    if record.recording is not None:
        row["recording_ratio"] = recording_ratio(record.recording)
    return row


def _throughput(record: RunRecord) -> Row:
    """Examples a second, and the same as images where they are images, and in tokens."""
    if record.metrics is None:
        return {}
    asked = record.experiment
    worker_cores = asked.num_workers * asked.resources.cores_per_worker
    rate = record.metrics.examples_per_sec
    over = (1, len(record.hosts), worker_cores, record.total_cores)
    rates = {name: rate / n if n else None for name, n in zip(_RATES, over, strict=True)}
    units = ["examples"]
    if asked.workload.unit is Unit.IMAGES:
        units.append("images")
    return {
        **{f"{unit}_{name}": value for unit in units for name, value in rates.items()},
        "tokens_per_sec": asked.workload.tokens_per_sec(rate),
    }


def _shares(record: RunRecord) -> Row:
    """Who made the steps, and what all would make if nobody made more than the slowest worker."""
    if record.metrics is None or record.experiment.num_workers < 2:
        return {}
    steps = record.metrics.steps_per_worker
    return {
        "steps_per_worker": " ".join(map(str, steps)),
        "largest_share": max(steps) / sum(steps),
        "equal_shares_per_sec": record.metrics.examples_per_sec
        * (min(steps) * len(steps) / sum(steps)),
    }


def _against_the_links(record: RunRecord, steps: StepTable | None, window: Window | None) -> Row:
    """The bound that the links set, and what processors did for what crossed them.

    Sparse gradients need not be sent as dense ones, so the bound of these is none for them.  The
    suite sends them so all the same: its links are as busy as that.
    """
    bound, step_s = bound_of(record), step_time_s(record)
    if bound is None:
        return {}
    least_s = None if record.is_sparse else bound.step_s
    row = {"network_s": bound.network_s, "in_turn_s": bound.in_turn_s, "bound_s": least_s}
    if step_s is None:
        return row
    fraction = None if least_s is None else least_s / step_s
    return {**row, "fraction_of_bound": fraction, **_costs(record, steps, window, step_s)}


def _costs(record: RunRecord, steps: StepTable | None, window: Window | None, step_s: float) -> Row:
    if record.gradient_bytes is None or not record.tasks or steps is None or window is None:
        return {}
    cpu = processor_time(record, window, len(steps), step_s)
    if cpu is None:
        return {}
    workers = record.experiment.num_workers
    return {
        "cpu_s_per_gigabyte": seconds_per_gigabyte(cpu, workers, record.gradient_bytes),
        "core_bits_per_s": core_bits_per_s(link_bytes(made_flows_of(record)), cpu),
        "cpu_over": cpu.over,
    }


def _where_time_goes(record: RunRecord, steps: StepTable | None, window: Window | None) -> Row:
    """Parts of the mean step, POP metrics, and processor time of tasks."""
    if steps is None or window is None or record.metrics is None:
        return {}
    parts = parts_of(record.experiment, steps)
    pop, causes = pop_of(parts, window), network_causes(record)
    enough = record.metrics.measured_steps >= LEAST_FOR_HUMPS
    network = record.experiment.network
    rto_min_s = network.rto_min_s if network else RTO_MIN_S
    seconds = task_seconds(record, window, step_time_s(record) or 0.0)
    return {
        **parts.columns(),
        **(stalls_of(parts, rto_min_s).columns() if enough else {}),
        **(pop.columns() if pop else {}),
        **(causes.columns() if causes else {}),
        "worker_cpu_s": mean_seconds(seconds, TaskType.WORKER),
        "server_cpu_s": mean_seconds(seconds, TaskType.PS),
    }
