"""A run as one flat JSON object, for programs that wrap a single run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from ps_allreduce.point.architectures import Unit
from ps_allreduce.record.files import RunFiles
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.steps import Metrics
from ps_allreduce.serialization import to_json

#: Of what was asked for, the columns that tell one run from another.
ASKED = (
    *("strategy", "model", "unit", "num_workers", "num_ps", "placement", "global_batch"),
    *("compute", "launcher"),
)


def one_line(record: RunRecord, sweep_dir: Path) -> dict[str, object]:
    """What identifies the run, how it ended, and its figures; null where there are none."""
    asked = record.experiment.columns()
    files = RunFiles.of(sweep_dir, record.experiment_id, record.repetition, record.attempt)
    unknown = dict.fromkeys(field.name for field in fields(Metrics))
    figures = to_json(record.metrics) if record.metrics is not None else unknown
    of_images = record.experiment.workload.unit is Unit.IMAGES
    placement = record.placement
    return {
        "run_id": record.run_id,
        "status": str(record.status),
        "reason": record.reason,
        **{name: asked.get(name) for name in ASKED},
        "placement_max_over_mean": placement.max_over_mean if placement else None,
        "oversubscribed": record.oversubscribed,
        **figures,
        "images_per_sec": figures["examples_per_sec"] if of_images else None,
        **{f.name: getattr(record.phases, f.name) for f in fields(record.phases)},
        "fingerprint": record.block,
        "record_path": str(files.record),
    }
