"""A run as one flat JSON object, for programs that wrap a single run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from ps_allreduce.record.files import RunFiles
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.steps import Metrics
from ps_allreduce.serialization import to_json


def one_line(record: RunRecord, sweep_dir: Path) -> dict[str, Any]:
    """What identifies the run, how it ended, and its figures; null where there are none."""
    experiment = record.experiment
    files = RunFiles.of(sweep_dir, record.experiment_id, record.repetition, record.attempt)
    unknown = dict.fromkeys(field.name for field in fields(Metrics))
    figures = to_json(record.metrics) if record.metrics is not None else unknown
    placement = record.placement
    return {
        "run_id": record.run_id,
        "status": str(record.status),
        "reason": record.reason,
        "strategy": str(experiment.strategy),
        "model": experiment.workload.model,
        "num_workers": experiment.num_workers,
        "num_ps": experiment.num_ps,
        "placement": to_json(experiment.placement),
        "placement_max_over_mean": placement.max_over_mean if placement else None,
        "global_batch": experiment.global_batch,
        "compute": experiment.workload.compute,
        "launcher": experiment.launcher,
        "oversubscribed": record.oversubscribed,
        **figures,
        **{f.name: getattr(record.phases, f.name) for f in fields(record.phases)},
        "fingerprint": record.block,
        "record_path": str(files.record),
    }
