"""Doubts that only several hosts give rise to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.data.cases import Case, make_cases
from analysis.figures.against_workers import plot_efficiency
from analysis.report.pages.case_pages import legend
from analysis.report.pages.page_parts import CaseReport
from analysis.report.screen import verdict_text
from analysis.report.sentences.circumstances import circumstances, loss_lines
from analysis.report.sentences.verdict import verdict
from analysis.report.tables.table import report_table, text_table
from analysis.report.tables.what_was_run import what_was_run
from analysis.stats.points import point_table
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.hosts import HostRecord, Interface
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import (
    RATES,
    case_of,
    provenance,
    reported,
    runs,
    table_of,
    tasks_on,
    times,
)
from tests.fakes import make_experiment, make_facts, make_host

NETWORK = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)
EMULATED: dict[str, Any] = {"launcher": "emulated", "network": NETWORK, "spread": Spread()}
SINGLE = make_experiment(Single, **EMULATED)
RING = make_experiment(AllReduce, 2, **EMULATED)
HOSTS = (make_host("n0"), make_host("n1"))


def emulated_case(
    busy: float | None, ring: Experiment = RING, *, oversubscribed: bool = False
) -> Case:
    own = {"hosts": HOSTS, "machine_busy": busy, "oversubscribed": oversubscribed}
    return case_of(
        runs(make_experiment(Single, workload=ring.workload, **EMULATED), RATES),
        runs(ring, RATES, **own),
    )


def ring_of(case: Case) -> pd.Series:
    return point_table(case).iloc[-1]


def on_hosts(*hosts: HostRecord) -> list[RunRecord]:
    own = make_experiment(AllReduce, 2, launcher="slurm", spread=Spread())
    return runs(own, RATES, hosts=hosts)


def doubts(*records: RunRecord) -> str:
    return " ".join(circumstances(case_of(records)))


def test_emulated_hosts_share_one_machine() -> None:
    lines = circumstances(emulated_case(0.5))
    assert lines[0].startswith("Hosts are emulated: they share one machine's processors")
    assert len(lines) == 1


@pytest.mark.parametrize("busy", [0.9, 1.0, None])
def test_a_busy_machine_claims_no_efficiency_and_is_marked(busy: float | None) -> None:
    case = emulated_case(busy, oversubscribed=True)
    found = ring_of(case)
    assert found["marks"] == "*"
    assert list(found[["efficiency_single", "speedup_single"]].isna()) == [True, False]
    assert text_table(case)["rate"].iloc[-1].endswith("] *")
    assert "* processors may have been the limit, so no efficiency is claimed" in legend(case)
    assert plot_efficiency(case) is None
    known = "they were 90% busy or more" if busy else "this is not known, and tasks had fewer cores"
    told = f"Of 6 runs, processors may have been the limit of 3: in 3 {known}"
    assert told in " ".join(circumstances(case))


def test_planned_cores_do_not_count_where_processors_were_idle_a_third_of_the_time() -> None:
    case = emulated_case(0.65, oversubscribed=True)
    assert ring_of(case)["marks"] == ""
    assert ring_of(case)["efficiency_single"] > 0
    assert "processors may" not in " ".join(circumstances(case))


@pytest.mark.parametrize("emulated", [None, EmulatedCompute(forward_s=0.01, backward_s=0.02)])
def test_a_machine_with_time_left_claims_efficiency(emulated: EmulatedCompute | None) -> None:
    ring = make_experiment(AllReduce, 2, workload=Workload(emulated=emulated), **EMULATED)
    found = ring_of(emulated_case(0.89, ring))
    assert found["marks"] == ""
    assert found["efficiency_single"] > 0
    # Emulated compute does not excuse a busy machine.
    assert pd.isna(ring_of(emulated_case(0.95, ring))["efficiency_single"])


def test_emulated_workers_that_differ_are_told() -> None:
    jitter = Jitter(distribution=Distribution.GAMMA, variation=0.1)
    emulated = EmulatedCompute(
        forward_s=0.01, backward_s=0.02, factors=(1.0, 1.5, 1.0, 0.8), jitter=jitter
    )
    ring = make_experiment(AllReduce, 2, workload=Workload(emulated=emulated), **EMULATED)
    case = emulated_case(0.5, ring)
    differing = "factors of workers 1:1.5,3:0.8, jitter gamma:0.1:1"
    assert f"Emulated workers differ as asked ({differing}): " in " ".join(circumstances(case))
    told = dict(what_was_run(case))
    assert "10 steps and 1 s, over after 40 steps and 10 s in any case, " in told["profile"]
    assert told["compute"] == f"emulated: forward 0.01 s, backward 0.02 s, {differing}"


def test_hosts_of_different_kinds_are_told() -> None:
    other = make_host("n1", facts=make_facts("n1", cpu_model="Another one"))
    text = doubts(*on_hosts(make_host("n0"), other))
    assert (
        "Hosts of different kinds took part in 3 of 3 runs (kinds in one of them: n0; n1)" in text
    )
    assert "different kinds" not in doubts(*on_hosts(*HOSTS))
    served = make_experiment(
        SynchronousServers,
        1,
        num_ps=1,
        layout=LayoutKind.PS_HOSTS,
        launcher="slurm",
        spread=Spread(),
    )
    tasks = tasks_on({"ps:0": "n1", "worker:0": "n0"})
    named = runs(served, RATES, hosts=(make_host("n0"), other), tasks=tasks)
    assert "different kinds" not in doubts(*named)


def test_other_interfaces_in_other_runs_are_told() -> None:
    other = Interface(name="ib0", address="10.1.0.9", prefix_length=24)
    fast = tuple(make_host(name, interface=other) for name in ("n0", "n1"))
    mixed = [*on_hosts(*HOSTS)[:2], *on_hosts(*fast)[2:]]
    assert "Runs used different interfaces (lo, ib0)" in doubts(*mixed)
    assert "different interfaces" not in doubts(*on_hosts(*fast))


def test_hosts_are_busy_and_not_the_machine_that_the_suite_was_started_on() -> None:
    loaded = replace(provenance(), load_average=99.0)
    idle, busy = make_host("n0", load_average=0.5), make_host("n1", load_average=8.5)
    for hosts, told in (((idle,), False), ((idle, busy), True), (HOSTS, False)):
        records = [replace(record, provenance=loaded) for record in on_hosts(*hosts)]
        assert ("3 of 3 runs began with a load average above 2" in doubts(*records)) is told


def test_foreign_load_is_told_and_the_load_average_no_more() -> None:
    own = make_host("n0", load_average=99.0, foreign_load=0.04, stolen_load=0.2)
    quiet, loaded = replace(own, stolen_load=0.0), replace(own, foreign_load=0.31)
    assert "processor" not in doubts(*on_hosts(quiet))
    text = doubts(*on_hosts(quiet)[:2], *on_hosts(quiet, loaded)[2:])
    assert (
        "Of 3 runs, some may have been disturbed: more than 5% of a host's processor time went to "
        "other programs in 1 (up to 31%); the hypervisor in 1 (up to 20%)."
    ) in text
    assert "load average" not in text


def base_of_job(job_id: str, first: int, rate: float) -> list[RunRecord]:
    own = make_experiment(Single, launcher="slurm", spread=Spread())
    return runs(own, {first: rate, first + 1: rate}, job_id=job_id)


def test_the_base_is_told_of_every_job() -> None:
    own = make_experiment(AllReduce, 2, launcher="slurm", spread=Spread())
    bases = [*base_of_job("7", 0, 100.0), *base_of_job("8", 1000, 110.0)]
    told = "measured in 2 jobs: 100, 110 images/s. Points"
    assert told in doubts(*bases)
    found = doubts(*bases, *runs(own, {1000: 200.0}, job_id="9"))
    assert told in found
    assert "1 other job had no base." in found
    assert "jobs" not in doubts(*base_of_job("7", 0, 100.0))


def case_with(**columns: float) -> Case:
    """Three launches of a single worker and three of a ring, of which columns say something."""
    groups = [runs(SINGLE, RATES), runs(RING, RATES, hosts=HOSTS, machine_busy=0.5)]
    table, records = table_of(record for group in groups for record in group)
    ring = (table["num_workers"] == 2).to_numpy()
    for name, value in columns.items():
        table.loc[ring, name] = value
    (case,) = make_cases(table, records)
    return case


#: Segments sent, sent again, and probes of these, in windows of the same point: as it was, with
#: another congestion control, and with ports large enough.
LOSSY = {"bbr": (55_000, 265, 25), "cubic": (55_000, 90, 25)}
CLEAN = {"cubic, 2 MB": (55_000, 25, 24), "piz-daint, 2 MB": (1_400_000, 91, 78)}


@pytest.mark.parametrize("name", [*LOSSY, *CLEAN])
def test_lost_packets_are_told_and_probes_are_none(name: str) -> None:
    sent, again, probes = (LOSSY | CLEAN)[name]
    own = {"segments_sent": sent, "segments_sent_again": again, "loss_probes": probes}
    (line,) = loss_lines(case_with(**own, port_drops=0)) or [""]
    told = (
        f"Of 6 runs, 3 lost more than 1 in 10,000 of their hosts' TCP segments (up to "
        f"{(again - probes) / sent:.2%}), most at all-reduce, 2 workers. TCP waits some 200 ms"
    )
    assert line.startswith(told) is (name in LOSSY)
    assert bool(line) is (name in LOSSY)


def test_what_ports_dropped_counts_where_probes_repair_it() -> None:
    own = {"segments_sent": 55_000, "segments_sent_again": 60, "loss_probes": 60}
    assert not loss_lines(case_with(**own, port_drops=0))
    assert "3 lost more than 1 in 10,000" in loss_lines(case_with(**own, port_drops=60))[0]
    # One of few: a launch that sends hardly anything.
    few = {"segments_sent": 900, "segments_sent_again": 2, "loss_probes": 0, "port_drops": 2}
    assert not loss_lines(case_with(**few))


def test_stalled_time_is_told_with_and_without_a_known_loss() -> None:
    assert not loss_lines(case_with(mean_step_s=0.1, stalled_s=0.0029))
    stalled = {"mean_step_s": 0.1, "stalled_s": 0.031}
    (alone,) = loss_lines(case_with(**stalled))
    assert "3 stalled for more than 3% of their time (up to 31%), most at all-reduce" in alone
    assert alone.endswith("; 0 of these are among those that lost packets.")
    both = case_with(**stalled, segments_sent=1000, port_drops=50)
    (lost, line), told = loss_lines(both), verdict(both)
    assert "3 lost more than" in lost
    assert line.endswith("; 3 of these are among those that lost packets.")
    assert line in told.warnings
    report = CaseReport(case=both, verdict=told, figures=(), traces={})
    assert verdict_text(report, alone=True).endswith(f"\n{lost}\n{line}")


def test_launches_with_two_humps_are_named() -> None:
    case = case_with(hump_s=0.305, second_hump_s=0.102)
    told = "Step times have two humps in 3 of 6 runs, in the first of them near 102 ms and 305 ms."
    assert told in verdict(case).details
    assert "humps" not in " ".join(verdict(case_with()).details)


LABELS = ["flat", "flat", "warming up", "unsteady", "flat", None]


def test_labels_are_counted_on_the_page_and_in_the_table() -> None:
    own = make_experiment(AllReduce, 2)
    table, records = table_of([*runs(make_experiment(Single), times(1.0)), *runs(own, times(1.0))])
    labels = pd.Series(LABELS, index=table.index, dtype="string")
    (case,) = make_cases(table.assign(steadiness=labels), records)
    told = "3 flat, 1 warming up, 1 unsteady, 1 with too few steps to tell"
    assert f"Step times inside the windows of 6 runs: {told}." in verdict(case).details
    assert list(report_table(case, "steps")["steps of launches"]) == [
        "2 flat, 1 warming up",
        "1 flat, 1 unsteady, 1 with too few steps to tell",
    ]


def test_drift_is_a_warning_on_the_first_page(tmp_path: Path) -> None:
    drifting = {0: 100.0, 1: 97.0, 2: 93.0, 3: 90.0}
    text = reported(tmp_path, runs(make_experiment(Single), drifting))
    first_page = text.split("<nav")[0]
    assert "The machine drifted: single was 0.90x [" in first_page
