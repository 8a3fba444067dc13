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
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers, Single, SynchronousServers
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.record.hosts import TcpCounters
from ps_allreduce.record.records import PortRecord, RunRecord
from tests.analysis.builders import (
    links_between,
    placement_used,
    provenance,
    run,
    save,
    save_all,
    tasks_on,
)
from tests.fakes import make_experiment, make_facts, make_host, make_sample
from tests.goldens import golden

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


def on_two_hosts() -> RunRecord:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=1e9, delay_s=0.001, congestion="reno")
    own = make_experiment(AllReduce, 2, launcher="emulated", network=network, spread=Spread())
    fast, slow = links_between(["n9", "n10"], 2e9)
    hosts = (
        make_host("n9", import_s=3.0, foreign_load=0.0, stolen_load=0.5, tcp=SENT),
        make_host("n10", import_s=4.0, foreign_load=0.25, tcp=SENT),
    )
    # The window is a part of the run: hosts send 1,000 segments in it, and 5,000 in all.
    seen = [
        make_sample(time, host, tcp=replace(SENT, sent=sent))
        for time, sent in ((1.0, 7000), (2.0, 11_000), (3.0, 12_000))
        for host in ("n9", "n10")
    ]
    # Forward takes 4 ms, and 80 MB at 2 Gbit/s 320 ms; 32 images at 100 images/s another 320 ms.
    return run(
        own,
        100.0,
        hosts=hosts,
        links=(fast, replace(slow, bits_per_s=1e9, round_trip_s=2e-4)),
        tasks=tasks_on({"worker:0": "n9", "worker:1": "n10"}),
        gradient_bytes=80_000_000,
        machine_busy=0.25,
        ports=(PortRecord(host="n9", dropped=3), PortRecord(host="n10", dropped=2)),
        samples=tuple(seen),
        job_id="17",
    )


def with_tcp(**of_other: Any) -> RunRecord:
    """Congestion control is that of all hosts, and segments are those of all."""
    facts = {name: make_facts(name, congestion="reno") for name in ("n9", "n10")}
    hosts = [
        make_host("n9", facts=facts["n9"], tcp=SENT),
        make_host("n10", **({"facts": facts["n10"]} | of_other)),
    ]
    return run(make_experiment(AllReduce, 2), 100.0, hosts=tuple(hosts))


def served() -> RunRecord:
    own = make_experiment(
        SynchronousServers,
        2,
        placement=Policy.PARTITIONED,
        layout=LayoutKind.DEDICATED,
        launcher="slurm",
        spread=Spread(ps_per_host=2),
    )
    return run(own, 100.0, 3, placement=placement_used(300, 100))


BUCKETS = Wire(in_flight=2, gradients=WireType.FLOAT16)
DEALT = {"steps_per_dispatch": 2, "wire": BUCKETS}
MIXED = Workload(precision=Precision.MIXED_BFLOAT16)

RUNS = {
    "dedicated servers": served(),
    "two hosts": on_two_hosts(),
    "equal congestion control": with_tcp(tcp=SENT),
    "other congestion control": with_tcp(facts=make_facts("n10", congestion="bbr"), tcp=SENT),
    "a host that tells nothing of TCP": with_tcp(),
    "a failed run": run(make_experiment(AllReduce, 2), None, hosts=(), tasks=()),
    "buckets": run(make_experiment(SynchronousServers, 2, wire=BUCKETS), 1.0),
    "nothing is sent": run(make_experiment(Single, workload=MIXED), 1.0),
    "no bound on staleness": run(make_experiment(AsynchronousServers, 2, **DEALT), 1.0),
    "staleness": run(make_experiment(AsynchronousServers, 2, staleness=4, **DEALT), 1.0),
}


def test_cells_are_what_records_hold(tmp_path: Path) -> None:
    lines = []
    for title, record in RUNS.items():
        save(tmp_path / title, record)
        (row,) = rows(tmp_path / title)
        cells = [f"{name}: {cell}" for name, cell in row.items() if cell]
        lines += [f"# {title}", *cells, ""]
    golden.check({"sentences/cells.txt": "\n".join(lines)})


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
