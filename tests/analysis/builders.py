"""Records for tests, made through the real dataclasses and written by the real functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from click.testing import CliRunner

from analysis.__main__ import cli
from analysis.data.cases import Case, make_cases
from analysis.data.columns import make_table
from analysis.data.rows import row_of
from analysis.report.verdict import Verdict, verdict
from analysis.stats.comparisons import Comparison, comparisons
from analysis.stats.rivals import Kind
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Shard
from ps_allreduce.point.wire import Wire
from ps_allreduce.record.files import RunFiles, save_raw, save_record
from ps_allreduce.record.provenance import Provenance
from ps_allreduce.record.records import (
    LinkRecord,
    Phases,
    RunRecord,
    Status,
    TaskRecord,
)
from ps_allreduce.record.step_table import EventTable, Metrics, StepTable
from ps_allreduce.record.variables import PlacementUsed
from tests.fakes import (
    METRICS,
    PROVENANCE,
    UNSEEN,
    fitted,
    make_host,
    make_record,
    make_steps,
    no_events,
)

#: Three launches around a rate of 100, in geometric mean 100 but for rounding.
RATES: dict[int, float | None] = {0: 100.0, 1: 102.0, 2: 98.0}


def times(factor: float, launches: int = 3) -> dict[int, float | None]:
    """Launches with a little noise around a multiple of 100, in geometric mean just that."""
    rates = (100.0, 102.0, 100.0 / 1.02)
    return {key: rate * factor for key, rate in enumerate(rates[:launches])}


def with_wire(own: Experiment, wire: Wire) -> Experiment:
    """The same point with gradients in other buckets."""
    return changed(own, **{"sending" if own.strategy.uses_collective else "wire": wire})


def changed(own: Experiment, **settings: Any) -> Experiment:
    """The same point with other settings of its strategy."""
    strategy: Any = own.strategy
    return replace(own, strategy=replace(strategy, **settings))


def provenance(**changes: Any) -> Provenance:
    made = replace(PROVENANCE, commit="0123abc", fingerprint="aaaaaaaa")
    return replace(made, cpu_count=2, affinity=(0, 1), **changes)


def metrics(rate: float, **changes: Any) -> Metrics:
    parts = {"compute_s": 0.012, "communication_s": 0.008, "input_wait_s": 0.001}
    spans = {"forward_s": 0.004, "backward_s": 0.008}
    return replace(METRICS, examples_per_sec=rate, **(parts | spans | changes))


def placement_used(*loads: int, deviations: tuple[str, ...] = ()) -> PlacementUsed:
    """One shard per server, as planned."""
    return PlacementUsed(
        shards=tuple(
            Shard(variable=index, server=index, num_bytes=load) for index, load in enumerate(loads)
        ),
        variables=tuple(f"v{index}" for index in range(len(loads))),
        bytes_per_server=loads,
        max_over_mean=max(loads) * len(loads) / sum(loads),
        deviations=deviations,
    )


def tasks_on(places: Mapping[str, str], cpu_s: float | None = 3.0) -> tuple[TaskRecord, ...]:
    """Tasks by name, each on a host and a core of its own."""
    return tuple(
        TaskRecord(
            task=task,
            host=host,
            address=f"{host}:1",
            cores=(number,),
            pid=1,
            cpu_s=cpu_s,
            peak_memory_bytes=1000 + number,
        )
        for number, (task, host) in enumerate(places.items())
    )


def on_shared_cores(num_workers: int) -> tuple[TaskRecord, ...]:
    """Workers on emulated hosts that may all use the two cores of one machine."""
    tasks = tasks_on({f"worker:{index}": f"emulated{index}" for index in range(num_workers)})
    return tuple(replace(task, cores=(0, 1)) for task in tasks)


def run(own: Experiment, rate: float | None, repetition: int = 0, **changes: Any) -> RunRecord:
    """An attempt: ok at a rate in examples per second, or failed where the rate is None."""
    begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=repetition)
    parts = UNSEEN if own.strategy.as_shipped else {}
    settings: dict[str, Any] = {
        "attempt": 1,
        "status": Status.OK if rate is not None else Status.FAILED,
        "reason": "" if rate is not None else "worker:1 ended with signal 9",
        "started_at": begun.isoformat(),
        "finished_at": (begun + timedelta(seconds=20)).isoformat(),
        "provenance": provenance(),
        "hosts": (make_host("node1"),),
        "tasks": tasks_on({f"worker:{index}": "node1" for index in range(own.num_workers)}),
        "phases": Phases(bring_up_s=1.0, build_s=0.5, first_step_s=0.6, total_s=20.0),
        "metrics": metrics(rate, **parts) if rate is not None else None,
        "placement": placement_used(300, 100) if own.num_ps == 2 else None,
        "gradient_bytes": 400,
        "num_messages": 2,
    }
    settings |= changes
    cores = {(task.host, core) for task in settings["tasks"] for core in task.cores}
    settings.setdefault("total_cores", len(cores) or 2)
    settings["metrics"] = fitted(settings["metrics"], own)
    return make_record(experiment=own, repetition=repetition, **settings)


def runs(own: Experiment, rates: Mapping[int, float | None], **changes: Any) -> list[RunRecord]:
    """One attempt for each repetition."""
    return [run(own, rate, repetition, **changes) for repetition, rate in rates.items()]


def table_of(records: Iterable[RunRecord]) -> tuple[pd.DataFrame, dict[str, RunRecord]]:
    """The table of records that lie nowhere, and the records beside it."""
    named = {f"{number}/{record.run_id}": record for number, record in enumerate(records)}
    rows = [{**row_of(r, key, None), **parts_of_step(r)} for key, r in named.items()]
    return make_table(rows, named), named


def parts_of_step(record: RunRecord) -> dict[str, object]:
    """What raw timings would tell of a run: workers that compute alike, and wait a little."""
    measured = record.metrics
    if measured is None:
        return {}
    step_s = record.experiment.global_batch / measured.examples_per_sec
    if measured.compute_s is None or measured.communication_s is None:
        return {"mean_step_s": step_s, "dispatch_s": 0.001}
    return {
        "mean_step_s": measured.compute_s + measured.communication_s + 0.001,
        "dispatch_s": 0.001,
        "waiting_s": 0.002,
        "exchange_s": measured.communication_s - 0.003,
        "last_input_s": 0.001,
        "fastest_compute_s": measured.compute_s,
        "slow_worker_s": 0.0,
        "slowest_worker": 0,
        "late_start_s": 0.0,
        "load_balance": 1.0,
        "serialisation": 0.9,
        "transfer": measured.compute_s / 0.9 / (measured.compute_s + measured.communication_s),
    }


def cases_of(*groups: Iterable[RunRecord]) -> tuple[Case, ...]:
    """What may be compared of some records."""
    return make_cases(*table_of(record for group in groups for record in group))


def case_of(*groups: Iterable[RunRecord]) -> Case:
    """The only case of some records."""
    (case,) = cases_of(*groups)
    return case


def links_between(hosts: Iterable[str], bits_per_s: float) -> tuple[LinkRecord, ...]:
    """Each host sends to the next one."""
    names = list(hosts)
    pairs = zip(names, [*names[1:], names[0]], strict=True) if len(names) > 1 else ()
    return tuple(
        LinkRecord(source=source, target=target, bits_per_s=bits_per_s, round_trip_s=1e-4)
        for source, target in pairs
    )


def on_own_hosts(num_workers: int, bits_per_s: float) -> dict[str, Any]:
    """What `run` needs to know of workers on a host each, with links of equal rate."""
    names = [f"n{index}" for index in range(num_workers)]
    return {
        "hosts": tuple(make_host(name) for name in names),
        "tasks": tasks_on({f"worker:{index}": name for index, name in enumerate(names)}),
        "links": links_between(names, bits_per_s),
    }


def save(
    sweep: Path,
    record: RunRecord,
    *,
    raw: bool = True,
    steps: StepTable | None = None,
    events: EventTable | None = None,
) -> Path:
    """Write a record, and raw timings beside it, where a sweep keeps them."""
    files = RunFiles.of(sweep, record.experiment_id, record.repetition, record.attempt)
    files.record.parent.mkdir(parents=True, exist_ok=True)
    if raw:
        save_raw(files.raw, steps or make_steps(0, [], []), events or no_events())
    save_record(files.record, record)
    return files.record


def save_all(sweep: Path, *groups: Iterable[RunRecord]) -> None:
    """Write the records of a sweep."""
    for record in (record for group in groups for record in group):
        save(sweep, record)


def invoke(*arguments: str, exit_code: int = 0) -> str:
    """What a command of the analysis says."""
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == exit_code, result.output
    return result.output


def reported(sweep: Path, *groups: Iterable[RunRecord]) -> str:
    """The page about some records."""
    save_all(sweep, *groups)
    invoke("report", str(sweep))
    return (sweep / "report.html").read_text()


def changes_of(case: Case) -> list[Comparison]:
    """Settings beside those that they are changed from."""
    return comparisons(case).of(Kind.CHANGED)


def said(points: Mapping[Experiment, Mapping[int, float | None]]) -> Verdict:
    return verdict(case_of(*(runs(own, rates) for own, rates in points.items())))
