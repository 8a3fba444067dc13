"""The screen ends with the verdict in at most four lines; of one side alone in five."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.data.blocks import analysed
from analysis.data.cases import make_cases
from analysis.data.load import read_sweep
from analysis.report.pages.page_parts import CaseReport
from analysis.report.screen import show
from analysis.report.sentences.verdict import verdict
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import links_between, run, save_all, tasks_on, times
from tests.fakes import make_experiment, make_host

NAMES = ("n0", "n1", "n2", "n3")
HOSTS: dict[str, Any] = {"network": EmulatedNetwork(num_hosts=4, bits_per_s=1e8)}
HOSTS |= {"launcher": "emulated", "spread": Spread()}
LOCAL: dict[str, Any] = {}
NOISY: dict[int, float | None] = {0: 110.0, 1: 100.0, 2: 120.0}

LINKS = "Busiest link in use"

#: Verdicts by the rates of servers; all-reduce makes 100 images/s.
VERDICTS: Mapping[str, Mapping[int, float | None]] = {
    "faster than": times(2.0),
    "Equal within 3 % are": times(1.0),
    "Undecided between": NOISY,
    "takes three launches of each, and there are 3 of all-reduce and 2 of": times(1.0, 2),
    "those that did are a selection": times(1.0) | {3: None, 4: None, 5: None},
}


def records(
    rates: Mapping[int, float | None], where: Mapping[str, Any], **changes: Any
) -> list[RunRecord]:
    """All-reduce and two settings of servers on four workers, beside each other in time."""
    on_hosts = {
        "links": links_between(NAMES, 9.53e7),
        "hosts": tuple(make_host(name) for name in NAMES),
        "tasks": tasks_on(
            {f"{kind}:{n}": name for kind in ("worker", "ps") for n, name in enumerate(NAMES)}
        ),
        "gradient_bytes": 600_000,
        "machine_busy": 0.58,
    }
    half = {turn: rate and rate / 2 for turn, rate in rates.items()}
    points = {
        make_experiment(AllReduce, 4, **where): times(1.0),
        make_experiment(SynchronousServers, 4, placement=Policy.LARGEST_FIRST, **where): rates,
        make_experiment(SynchronousServers, 4, placement=Policy.ROUND_ROBIN, **where): half,
    }
    settings = (on_hosts if where else {}) | changes
    return [
        run(own, rate, turn, **settings)
        for own, launches in points.items()
        for turn, rate in launches.items()
    ]


def last_lines(sweep: Path, width: int) -> list[str]:
    """What stands below the last empty line of a screen."""
    results = analysed(read_sweep(sweep))
    cases = make_cases(results.block.table, results.files.records)
    reports = [
        CaseReport(case=case, verdict=verdict(case), figures=(), traces={}) for case in cases
    ]
    console = Console(width=width, file=io.StringIO(), record=True)
    show(console, results, reports)
    return console.export_text().rstrip().split("\n\n")[-1].splitlines()


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("told", VERDICTS)
@pytest.mark.parametrize("where", [HOSTS, LOCAL], ids=["network", "loopback"])
def test_the_screen_ends_with_four_lines_about_networks(
    where: Mapping[str, Any], told: str, width: int, tmp_path: Path
) -> None:
    save_all(tmp_path, records(VERDICTS[told], where))
    *lines, last = last_lines(tmp_path, width)
    # What is decided of other settings comes before a main comparison that is not.
    assert len(lines) <= (5 if lines[0].startswith("ps_sync, largest_first is") else 3)
    assert last == f"Report: {tmp_path / 'report.html'}"
    text = " ".join(line.strip() for line in lines)
    assert told in text
    network = LINKS if where else "this says nothing about a network"
    assert network in text


@pytest.mark.parametrize(
    "busy", [{"machine_busy": 0.97}, {"hosts": (make_host(foreign_load=0.4),)}]
)
def test_a_circumstance_fits_as_well(busy: dict[str, Any], tmp_path: Path) -> None:
    save_all(tmp_path, records(times(2.0), HOSTS, **busy))
    *lines, _ = last_lines(tmp_path, 80)
    assert len(lines) <= 3
    assert lines[0].startswith("No verdict on all-reduce and ps_sync, largest_first at 4 workers (")


@pytest.mark.parametrize(("rate", "told"), [(9.0, True), (1.0, False)])
def test_a_single_worker_that_is_faster_than_both_sides_is_told(
    rate: float, told: bool, tmp_path: Path
) -> None:
    alone = [run(make_experiment(Single), each, turn) for turn, each in times(rate).items()]
    save_all(tmp_path, [*records(times(2.0), LOCAL), *alone])
    *lines, _ = last_lines(tmp_path, 80)
    assert len(lines) <= 3
    said = " ".join(line.strip() for line in lines)
    assert (
        "A single worker is 4.50x [4.50, 4.50] faster than 4 of ps_sync: more do not pay here."
        in said
    ) is told


@pytest.mark.parametrize("width", [80, 100])
def test_a_sweep_of_one_side_ends_with_the_fastest_setting(width: int, tmp_path: Path) -> None:
    servers = [each for each in records(times(2.0), HOSTS) if each.experiment.num_ps]
    save_all(tmp_path, servers)
    *lines, _ = last_lines(tmp_path, width)
    assert len(lines) <= 4
    assert " ".join(line.strip() for line in lines).startswith(
        "ps_sync, largest_first is the fastest of 2 synchronous settings at 4 workers, 200 [190.4, "
        "210.1] images/s: 2.00x [2.00, 2.00] faster than ps_sync, round_robin, the default, 3 "
        f"launches each. {LINKS}"
    )
