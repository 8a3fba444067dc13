"""A run as one flat JSON object: the same keys however it ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.cli.run_one import BEGAN_BUSY, one_line
from ps_allreduce.point.models.trained import TextModel
from ps_allreduce.point.placement import Shard
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import Phases, RunRecord, Status
from ps_allreduce.record.variables import PlacementUsed
from tests.fakes import make_experiment, make_record

KEYS = {
    *("run_id", "status", "reason", "fingerprint", "record_path", "launcher", "oversubscribed"),
    *("warnings", "strategy", "model", "num_workers", "num_ps", "placement"),
    *("placement_max_over_mean", "global_batch", "compute", "unit", "examples_per_sec"),
    *("images_per_sec", "tokens_per_sec", "step_time_p50_s", "step_time_p95_s", "compute_s"),
    *("forward_s", "backward_s", "communication_s", "input_wait_s", "warmup_steps"),
    *("measured_steps", "window_s", "steps_per_worker", "bring_up_s", "build_s", "first_step_s"),
    *("warmup_s", "measured_s", "total_s", "evaluation_s", "evaluation_examples_per_sec"),
}

FAILED = make_record(status=Status.FAILED, reason="ps:0 was killed by SIGKILL", metrics=None)


def line(record: RunRecord) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(one_line(record, Path("results/run-one"))))
    return content


@pytest.mark.parametrize("record", [make_record(), FAILED], ids=["ok", "failed"])
def test_the_keys_are_the_same_however_a_run_ended(record: RunRecord) -> None:
    assert set(line(record)) == KEYS


def test_a_run_that_went_well_has_its_figures() -> None:
    record = make_record(
        phases=Phases(bring_up_s=0.5, measured_s=3.0),
        placement=PlacementUsed(
            shards=(Shard(variable=0, server=0, num_bytes=8),),
            variables=("v",),
            bytes_per_server=(8, 0),
            max_over_mean=2.0,
        ),
    )
    content = line(record)
    expected = {
        "run_id": f"{record.experiment_id}/0-0",
        "status": "ok",
        "reason": "",
        "strategy": "ps_sync",
        "placement": "round_robin",
        "placement_max_over_mean": 2.0,
        "global_batch": 32,
        "compute": "real",
        "unit": "images",
        "examples_per_sec": 320.0,
        "images_per_sec": 320.0,
        "tokens_per_sec": None,
        "bring_up_s": 0.5,
        "steps_per_worker": [100, 100],
        "fingerprint": "0badcafe",
        "record_path": f"results/run-one/runs/{record.experiment_id}/0-0.json",
    }
    assert {key: content[key] for key in expected} == expected


def test_text_has_tokens_and_no_images() -> None:
    experiment = make_experiment(AllReduce, workload=Workload(model=TextModel(sequence_length=10)))
    content = line(make_record(experiment=experiment))
    wanted = {"unit": "tokens", "examples_per_sec": 320.0, "images_per_sec": None}
    wanted |= {"tokens_per_sec": 3200.0}
    assert {key: content[key] for key in wanted} == wanted


def test_a_busy_machine_and_other_doubts_are_told() -> None:
    record = make_record(warnings=("clocks were throttled",))
    assert line(record)["warnings"] == ["clocks were throttled"]
    busy = replace(record, provenance=replace(record.provenance, load_average=99.0))
    assert line(busy)["warnings"] == ["clocks were throttled", BEGAN_BUSY]


def test_what_is_not_known_is_null() -> None:
    content = line(FAILED)
    assert content["status"] == "failed"
    assert content["reason"] == "ps:0 was killed by SIGKILL"
    assert content["images_per_sec"] is content["step_time_p95_s"] is content["build_s"] is None


def test_without_servers_there_is_no_placement() -> None:
    workload = Workload(emulated=EmulatedCompute(forward_s=0.1, backward_s=0.1))
    experiment = make_experiment(AllReduce, workload=workload)
    content = line(make_record(experiment=experiment))
    assert content["placement"] is content["placement_max_over_mean"] is None
    assert content["num_ps"] == 0
    assert content["compute"] == "emulated"
