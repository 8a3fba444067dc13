from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.data.columns import COLUMNS, render_summary, write_summary
from analysis.data.load import load
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, Single, SynchronousServers
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.record.hosts import TcpCounters
from tests.analysis.builders import (
    links_between,
    placement_used,
    provenance,
    run,
    save,
    save_all,
    tasks_on,
)
from tests.fakes import make_experiment, make_facts, make_host

CONTRACT = """
sweep, experiment_id, run_id, repetition, attempt, status, reason, strategy, num_workers, num_ps,
placement, placement_max_over_mean, layout, model, image_size, batch_per_worker, accumulation,
global_batch, input, precision, optimizer, compute, launcher, num_hosts, workers_per_host,
devices_per_worker, device, cores_per_worker, oversubscribed, interface, link_bits_per_s,
collective, bytes_per_pack, split_bytes, staleness, images_per_sec, images_per_sec_per_host,
step_time_p50_s, step_time_p95_s, compute_s, communication_s, input_wait_s, bring_up_s, build_s,
first_step_s, warmup_steps, measured_steps, hosts, job_id, fingerprint, record_path
"""

SENT = TcpCounters(sent=1000, sent_again=7, probes=5, timeouts=1)


def rows(sweep: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_summary(load(sweep)))))


def test_the_contract_comes_first_and_in_order() -> None:
    contract = [name.strip() for name in CONTRACT.split(",")]
    assert list(COLUMNS)[: len(contract)] == contract


def test_a_run_with_servers(tmp_path: Path) -> None:
    own = make_experiment(
        SynchronousServers,
        2,
        placement=Policy.PARTITIONED,
        layout=LayoutKind.DEDICATED,
        launcher="slurm",
        spread=Spread(ps_per_host=2),
    )
    save(tmp_path, run(own, 100.0, 3, placement=placement_used(300, 100)))
    (row,) = rows(tmp_path)
    expected = {
        "run_id": f"{own.experiment_id}/3-1",
        "status": "ok",
        "reason": "",
        "placement": "partitioned",
        "placement_max_over_mean": "1.5",
        "layout": "dedicated",
        "ps_per_host": "2",
        "coordinator": "first_worker",
        "transport": "tcp",
        "global_batch": "32",
        "precision": "float32",
        "optimizer": "sgd_momentum",
        "compute": "real",
        "num_hosts": "1",
        "workers_per_host": "2",
        "devices_per_worker": "1",
        "oversubscribed": "false",
        "interface": "lo",
        "link_bits_per_s": "",
        "collective": "",
        "split_bytes": "4000000",
        "staleness": "0",
        "images_per_sec": "100.0",
        "images_per_sec_per_worker_core": "50.0",
        "hosts": "node1",
        "job_id": "",
        "fingerprint": "aaaaaaaa",
        "record_path": f"runs/{own.experiment_id}/3-1.json",
        "peak_memory_bytes": "1001",
        "cpu_s": "6.0",
    }
    assert {name: row[name] for name in expected} == expected


def test_a_run_on_two_hosts(tmp_path: Path) -> None:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=1e9, delay_s=0.001, congestion="reno")
    own = make_experiment(AllReduce, 2, launcher="emulated", network=network, spread=Spread())
    fast, slow = links_between(["n9", "n10"], 2e9)
    changes: dict[str, Any] = {
        "hosts": (
            make_host("n9", import_s=3.0, foreign_load=0.0, stolen_load=0.5, tcp=SENT),
            make_host("n10", import_s=4.0, foreign_load=0.25, tcp=SENT),
        ),
        "links": (fast, replace(slow, bits_per_s=1e9, round_trip_s=2e-4)),
        "tasks": tasks_on({"worker:0": "n9", "worker:1": "n10"}),
    }
    changes |= {"gradient_bytes": 80_000_000, "machine_busy": 0.25, "job_id": "17"}
    save(tmp_path, run(own, 100.0, **changes))
    (row,) = rows(tmp_path)
    expected = {
        "hosts": "n9 n10",
        "num_hosts": "2",
        "images_per_sec_per_host": "50.0",
        "interface": "lo",
        "link_bits_per_s": "1000000000.0",
        "link_round_trip_s": "0.0002",
        "network": "1gbit, delay 1ms, reno",
        "congestion": "reno",
        "segments_sent": "2000",
        "segments_sent_again": "14",
        "loss_probes": "10",
        "tcp_timeouts": "2",
        "machine_busy": "0.25",
        "foreign_load": "0.25",
        "stolen_load": "0.5",
        "host_kinds": "1",
        "import_s": "4.0",
        "job_id": "17",
    }
    assert {name: row[name] for name in expected} == expected
    # Forward takes 4 ms, and 80 MB at 2 Gbit/s 320 ms; 32 images at 100 images/s another 320 ms.
    assert float(row["bound_s"]) == pytest.approx(0.324)
    assert float(row["fraction_of_bound"]) == pytest.approx(0.324 / 0.32)


@pytest.mark.parametrize(
    ("other", "cells"),
    [
        ({"tcp": SENT}, ("reno", "2000")),
        ({"facts": make_facts("n10", congestion="bbr"), "tcp": SENT}, ("", "2000")),
        ({}, ("reno", "")),
    ],
)
def test_congestion_control_is_that_of_all_hosts_and_segments_are_those_of_all(
    tmp_path: Path, other: dict[str, Any], cells: tuple[str, str]
) -> None:
    facts = {name: make_facts(name, congestion="reno") for name in ("n9", "n10")}
    hosts = [
        make_host("n9", facts=facts["n9"], tcp=SENT),
        make_host("n10", **({"facts": facts["n10"]} | other)),
    ]
    save(tmp_path, run(make_experiment(AllReduce, 2), 100.0, hosts=tuple(hosts)))
    (row,) = rows(tmp_path)
    assert (row["congestion"], row["segments_sent"]) == cells


def test_what_is_unknown_is_empty(tmp_path: Path) -> None:
    own = make_experiment(AllReduce, 2)
    save(tmp_path, run(own, None, hosts=(), tasks=()))
    (row,) = rows(tmp_path)
    empty = ("placement", "staleness", "split_bytes", "images_per_sec", "compute_s", "hosts")
    unknown = ("num_hosts", "workers_per_host", "interface", "measured_steps", "cpu_s", "import_s")
    absent = ("network", "ps_per_host", "coordinator", "machine_busy", "foreign_load")
    uncounted = ("congestion", "segments_sent", "segments_sent_again", "loss_probes")
    assert {row[name] for name in empty + unknown + absent + uncounted} == {""}
    assert (row["status"], row["reason"]) == ("failed", "worker:1 ended with signal 9")
    assert (row["bytes_per_pack"], row["num_ps"]) == ("0", "0")


BUCKETS = Wire(in_flight=2, gradients=WireType.FLOAT16)
MIXED = Workload(precision=Precision.MIXED_BFLOAT16)


@pytest.mark.parametrize(
    ("own", "cells"),
    [
        (
            make_experiment(SynchronousServers, 2, wire=BUCKETS),
            "500000,500000,2,float16,false,0,,float32,tcp in float16",
        ),
        (make_experiment(AllReduce, 2), ",,,float32,false,,,float32,tcp"),
        (make_experiment(Single, workload=MIXED), ",,,,,,,mixed_bfloat16,"),
        *(
            (
                make_experiment(
                    AsynchronousServers, 2, staleness=bound, steps_per_dispatch=2, wire=BUCKETS
                ),
                f"500000,500000,2,float16,false,{cell},2,float32,tcp in float16",
            )
            for bound, cell in ((None, ""), (4, "4"))
        ),
    ],
    ids=["buckets", "TensorFlow's packs", "nothing is sent", "no staleness", "staleness"],
)
def test_how_gradients_travelled(tmp_path: Path, own: Experiment, cells: str) -> None:
    save(tmp_path, run(own, 1.0))
    (row,) = rows(tmp_path)
    names = ["group_bytes", "cut_bytes", "in_flight", "gradients_on_wire", "host_aggregation"]
    names += ["staleness", "steps_per_dispatch", "precision", "transport"]
    assert ",".join(row[name] for name in names) == cells


def test_all_attempts_of_all_blocks_have_a_row(tmp_path: Path) -> None:
    own, other = make_experiment(Single), provenance(fingerprint="bbbbbbbb")
    save_all(tmp_path, [run(own, None, 0, attempt=1), run(own, 1.0, 0, attempt=2)])
    save(tmp_path, run(own, 1.0, 1, provenance=other))
    found = rows(tmp_path)
    assert len(found) == 3
    assert {row["fingerprint"] for row in found} == {"aaaaaaaa", "bbbbbbbb"}


def test_text_with_commas_and_quotes_survives(tmp_path: Path) -> None:
    reason = 'worker:0 said "no space left", line 3\nand stopped'
    save(tmp_path, run(make_experiment(Single), None, reason=reason))
    path = tmp_path / "summary.csv"
    write_summary(path, load(tmp_path))
    table = pd.read_csv(path)
    assert table["reason"][0] == reason
    assert not table["oversubscribed"][0]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    save(tmp_path, run(make_experiment(Single), 1.0))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_summary(tmp_path / "file" / "summary.csv", load(tmp_path))
