"""The screen ends with the verdict in at most four lines, of one side in five; two folders."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.__main__ import main
from analysis.data.blocks import analysed
from analysis.data.case_names import BATCH
from analysis.data.cases import make_cases
from analysis.data.load import read_sweep
from analysis.report.pages.page_parts import CaseReport
from analysis.report.screen import show
from analysis.report.verdict import verdict
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Resources, Spread
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import (
    invoke,
    links_between,
    provenance,
    run,
    runs,
    save_all,
    tasks_on,
    times,
)
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
    "are equal within 3 % at": times(1.0),
    "Undecided between": NOISY,
    "each needs three launches that end well, and they have 3 and 2": times(1.0, 2),
    "how fast the failed ones would": times(1.0) | {3: None, 4: None, 5: None},
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
def test_the_screen_ends_with_few_lines_about_networks(
    where: Mapping[str, Any], told: str, width: int, tmp_path: Path
) -> None:
    save_all(tmp_path, records(VERDICTS[told], where))
    *lines, last = last_lines(tmp_path, width)
    # What would decide takes more words than what is decided.
    assert len(lines) <= 3 + told.startswith("Undecided")
    assert last == f"Report: {tmp_path / 'report.html'}"
    text = " ".join(line.strip() for line in lines)
    assert told in text
    network = LINKS if where else "this says nothing about a network"
    assert (network in text) is (told != "how fast the failed ones would")


@pytest.mark.parametrize(
    "busy", [{"machine_busy": 0.97}, {"hosts": (make_host(foreign_load=0.4),)}]
)
def test_a_circumstance_fits_as_well(busy: dict[str, Any], tmp_path: Path) -> None:
    save_all(tmp_path, records(times(2.0), HOSTS, **busy))
    *lines, _ = last_lines(tmp_path, 80)
    disturbed = [line for line in lines if line.startswith("More than 5% of a host's processor")]
    assert len(disturbed) == ("hosts" in busy)
    assert len(lines) <= 3 + 2 * len(disturbed)
    assert lines[0].startswith("No verdict on all-reduce and ps_sync, largest_first at 4 workers (")


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (9.0, " is 4.50x [4.50, 4.50] faster than the better of "),
        (2.0, " is equal within 3 % (1.00x [1.00, 1.00]) to the better of "),
        (1.0, ""),
    ],
)
def test_a_single_worker_that_is_as_fast_as_both_sides_is_told(
    rate: float, told: str, tmp_path: Path
) -> None:
    alone = [run(make_experiment(Single), each, turn) for turn, each in times(rate).items()]
    save_all(tmp_path, [*records(times(2.0), LOCAL), *alone])
    *lines, _ = last_lines(tmp_path, 80)
    assert len(lines) <= 5
    said = " ".join(line.strip() for line in lines)
    assert told in said
    assert ("A single worker" in said) is bool(told)
    assert (": their 4 workers do not pay here." in said) is bool(told)
    assert "this says nothing about a network." in said


SINGLE, RING, SYNC = make_experiment(Single), make_experiment(AllReduce), make_experiment()
LARGER = make_experiment(AllReduce, workload=Workload(batch_per_worker=64))
MORE = Resources(cores_per_worker=4, threads_per_worker=4)


def folders(
    tmp_path: Path, first: Mapping[Experiment, float], second: Mapping[Experiment, float]
) -> tuple[str, str]:
    """Two sweeps, the second of a newer version."""
    newer = provenance(fingerprint="bbbbbbbb", versions={"tensorflow": "2.22.0"})
    for own, factor in first.items():
        save_all(tmp_path / "a", runs(own, times(factor)))
    for own, factor in second.items():
        save_all(tmp_path / "b", runs(own, times(factor), provenance=newer))
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_two_versions_are_compared_point_by_point(tmp_path: Path) -> None:
    both = folders(tmp_path, {SINGLE: 1.0, RING: 2.0, SYNC: 1.5}, {SINGLE: 1.0, RING: 3.0})
    output = invoke("compare-results", *both)
    assert "versions.tensorflow: 2.22.0 (A: 2.21.0)" in output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if "[" in line}
    assert rows["all-reduce"][1:5] == ["2", "200", "300", "1.50"]
    assert rows["all-reduce"][-1] == "faster"
    # Launches of two folders are no pairs: equal rates still have an interval.
    assert rows["single"][4:6] != ["1.00", "[1.00,"]
    assert "Only in A, and not compared: ps_sync" in output
    assert "A says: All-reduce is 1.33x" in output
    assert "B says: No verdict: of all-reduce one setting has launches that ended well; " in output


def test_further_settings_in_one_folder_hide_no_common_point(tmp_path: Path) -> None:
    cut, finer = (
        make_experiment(placement=Policy.PARTITIONED, split_bytes=size) for size in (4096, 1024)
    )
    both = folders(tmp_path, {SYNC: 1.0, cut: 2.0}, {SYNC: 1.0, cut: 2.0, finer: 3.0})
    output = invoke("compare-results", *both)
    rows = [line for line in output.splitlines() if line.startswith(" ps_sync") and "[" in line]
    assert len(rows) == 2
    assert "Only in B, and not compared: ps_sync, SmallCNN" in output


def test_a_doubt_names_the_folder_that_it_is_about(tmp_path: Path) -> None:
    failures: dict[int, float | None] = {3: None, 4: None, 5: None}
    a, b = folders(tmp_path, {}, {RING: 3.0})
    save_all(Path(a), runs(RING, times(2.0) | failures))
    told = (
        "No verdict: 3 of 3 attempts of all-reduce in B ended well, but only 3 of 6 of all-reduce "
        "in A; "
    )
    assert told in " ".join(invoke("compare-results", a, b).split())


def test_other_cores_are_told_and_no_other_setting(tmp_path: Path) -> None:
    other = make_experiment(AllReduce, resources=MORE)
    output = invoke("compare-results", *folders(tmp_path, {RING: 2.0}, {other: 1.0}))
    assert "cores per worker is 1 in A and 4 in B." in " ".join(output.split())
    assert "0.50" in output
    assert "slower" in output


def test_of_several_networks_each_meets_its_like(tmp_path: Path) -> None:
    slow, fast = (
        make_experiment(
            AllReduce, **HOSTS | {"network": replace(HOSTS["network"], bits_per_s=rate)}
        )
        for rate in (1e7, 1e8)
    )
    output = invoke(
        "compare-results", *folders(tmp_path, {slow: 1.0, fast: 3.0}, {fast: 3.0, slow: 1.0})
    )
    assert output.count("1.00 [") == 2
    assert "Not the same in both" not in output
    # Emulated hosts beside those of a cluster, which have no ports of a known size.
    cluster = make_experiment(AllReduce, launcher="slurm", spread=Spread())
    output = invoke(
        "compare-results", *folders(tmp_path / "more", {slow: 1.0, fast: 3.0}, {cluster: 2.0})
    )
    assert "2.00 [" in output
    assert "0.67 [" in output
    assert "port buffer bytes is 4000000 in A and none in B." in " ".join(output.split())


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (RING, LARGER, "cannot be compared: batch per worker is 16 in A and 64 in B."),
        (RING, SYNC, "cannot be compared: they are of the same training, and have no point in "),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    first: Experiment,
    second: Experiment,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compare-results", *folders(tmp_path, {first: 1.0}, {second: 1.0})]) == 2
    assert told in capsys.readouterr().err


def test_each_folder_is_one_sweep_and_not_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, _ = folders(tmp_path, {RING: 1.0}, {RING: 1.0})
    assert main(["compare-results", a, a]) == 2
    assert "A and B are the same folder" in capsys.readouterr().err
    assert main(["compare-results", a, str(tmp_path)]) == 2
    assert "holds several sweeps, name one of them" in capsys.readouterr().err


def test_what_chose_beforehand_is_no_second_sweep_of_a_folder(tmp_path: Path) -> None:
    a, b = folders(tmp_path, {RING: 1.0}, {RING: 1.0})
    both = tmp_path / "results"
    shutil.copytree(b, both / "compare")
    shutil.copytree(b, both / "first-look")
    assert "B: " in invoke("compare-results", a, str(both))


@pytest.mark.parametrize("sweep", ["tune", "gate", "bench/recording"])
def test_launches_that_chose_or_compared_weights_are_no_results(
    sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (measured, chose) = folders(tmp_path, {RING: 2.0}, {RING: 1.0})
    for path in Path(chose).rglob("*.json"):
        path.write_text(path.read_text().replace('"sweep": "compare"', f'"sweep": "{sweep}"'))
    assert main(["compare-results", measured, chose]) == 2
    assert "their rates are no results" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["report", chose])
    assert "their rates are no results" in capsys.readouterr().out
    assert not list(Path(chose).rglob("report.html"))


def test_tables_of_several_cases_have_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for scaling, whose in BATCH.items():
        for batch in (8, 16):
            load = Workload(batch_per_worker=batch, scaling=scaling)
            own = make_experiment(AllReduce, 2, workload=load)
            save_all(tmp_path / scaling, [run(own, 100.0)])
        with pytest.raises(SystemExit, match="0"):
            main(["report", str(tmp_path / scaling)])
        shown = capsys.readouterr().out
        assert all(f"SmallCNN, {whose} {batch}\n" in shown for batch in (8, 16))
