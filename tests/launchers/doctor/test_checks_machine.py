"""What the doctor says about what the hosts are and what they have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launchers.doctor.checks.machine import (
    alike,
    gpus,
    load,
    memory,
    open_files,
    results,
    temporary,
)
from launchers.doctor.findings import Level
from launchers.doctor.site_facts import Sharing, SiteFacts
from ps_allreduce.inspection.questions import TemporaryFolder
from ps_allreduce.record.hosts import Gpu
from tests.launchers.doctor.doctor_facts import (
    GIB,
    HOSTS,
    VERSIONS,
    healthy,
    levels,
    only,
    with_host,
    with_state,
)


def test_hosts_of_several_kinds_are_refused_by_runs() -> None:
    facts = healthy()
    other = replace(facts.checked["n9"].facts, cpu_model="An older processor")
    mixed = with_host(facts, "n9", facts=other)
    finding = only(alike(mixed), Level.FAILURE)
    assert "2 kinds: n10 and n9 differ in cpu_model" in finding.text
    assert finding.remedy == "ask for one kind, or accept it: --mixed-hosts"
    assert levels(alike(replace(mixed, mixed_hosts=True))) == [Level.WARNING]


@pytest.mark.parametrize(
    ("free", "level"),
    [(5 * GIB, Level.OK), (3 * GIB, Level.WARNING), (GIB // 2, Level.FAILURE)],
)
def test_little_memory_is_told(free: int, level: Level) -> None:
    assert levels(memory(with_state(healthy(), "n1", free_bytes=free))) == [level]
    limited = with_state(healthy(), "n1", memory_limit_bytes=free)
    assert levels(memory(limited)) == [level]


def test_hosts_of_one_machine_share_its_memory() -> None:
    facts = replace(healthy(), one_machine=True)
    for host in HOSTS:
        facts = with_state(facts, host, free_bytes=9 * GIB)
    assert only(memory(facts), Level.WARNING).text == "n10, n1, n9: only 3.0 GiB free"


def test_a_load_is_told() -> None:
    facts = with_state(healthy(), "n9", busy_share=0.42)
    finding = only(load(facts), Level.WARNING)
    assert finding.text == "n9: up to 42% of the cores in use before anything began"
    assert levels(load(healthy())) == [Level.OK]


@pytest.mark.parametrize(
    ("number", "level"),
    [(1024, Level.OK), (1000, Level.WARNING), (100, Level.FAILURE)],
)
def test_few_connections_are_told(number: int, level: Level) -> None:
    found = only(open_files(with_state(healthy(), "n9", open_files=number)), level)
    assert str(number) in found.text


def folder(**changes: Any) -> TemporaryFolder:
    settings: dict[str, Any] = {
        "path": "/tmp",
        "asked": "",
        "file_system": "ext4",
        "free_bytes": 100 * GIB,
    }
    return TemporaryFolder(**(settings | changes))


@pytest.mark.parametrize(
    ("changes", "level", "told"),
    [
        (
            {"problem": "Read-only file system", "free_bytes": 0},
            Level.FAILURE,
            "n9: /tmp cannot be written (Read",
        ),
        ({"free_bytes": GIB // 2}, Level.WARNING, "n9: only 0.5 GiB free"),
        ({"free_bytes": 0}, Level.FAILURE, "n9: only 0.0 GiB free"),
        ({"file_system": "nfs4"}, Level.WARNING, "/tmp is on a shared file system (nfs4) on n9"),
        ({"file_system": "lustre"}, Level.WARNING, "shared file system (lustre)"),
        ({"asked": "/local/7"}, Level.WARNING, "TMPDIR is /local/7, which cannot be used on n9"),
        ({"asked": "/tmp"}, Level.OK, "GiB free"),
        ({"file_system": "tmpfs"}, Level.OK, "/tmp (tmpfs)"),
    ],
)
def test_a_bad_place_for_files_is_told(changes: dict[str, Any], level: Level, told: str) -> None:
    found = list(temporary(with_state(healthy(), "n9", temporary=folder(**changes))))
    assert any(told in finding.text for finding in found)
    assert max(levels(found), key=list(Level).index) is level


def with_gpus(facts: SiteFacts, host: str, number: int, **changes: Any) -> SiteFacts:
    cards = tuple(Gpu(identity=str(index), model="A100") for index in range(number))
    seen = replace(facts.checked[host].facts, gpus=cards)
    return with_host(facts, host, facts=seen, **({"gpus_of_worker": number} | changes))


def test_gpus_are_the_workers() -> None:
    facts = healthy()
    assert only(gpus(facts), Level.OK).text == "none; tasks compute on processors"
    for host in HOSTS:
        facts = with_gpus(facts, host, 4)
    finding = only(gpus(facts), Level.OK)
    assert finding.text == "4 on n10, 4 on n1, 4 on n9: workers see them, servers do not"


def test_gpus_that_do_not_show_are_told() -> None:
    facts = with_gpus(healthy(), "n9", 4, gpus_of_worker=3)
    assert only(gpus(facts), Level.FAILURE).text == "n9 has 4 and shows 3"
    facts = with_gpus(healthy(), "n9", 4, gpus_of_worker=0, gpu_problem="CUDA ends with error 803")
    assert (
        only(gpus(facts), Level.FAILURE).text == "n9 has 4 and shows 0 (CUDA ends with error 803)"
    )


def test_servers_that_see_gpus_are_told() -> None:
    facts = with_gpus(healthy(), "n9", 4, gpus_of_server=4)
    assert only(gpus(facts), Level.FAILURE).text == "a server sees GPUs on n9"


def test_gpus_without_a_build_for_them_are_told() -> None:
    facts = with_gpus(healthy(), "n9", 1)
    versions = VERSIONS | {"tensorflow-cpu": "2.21.0"}
    host = replace(facts.checked["n9"].facts, versions=versions)
    finding = only(gpus(with_host(facts, "n9", facts=host)), Level.WARNING)
    assert "TF=cuda" in finding.remedy


def test_a_results_folder_that_nobody_can_write() -> None:
    finding = only(results(healthy(sharing=Sharing(refused="Permission denied"))), Level.FAILURE)
    assert finding.text == "/scratch/results cannot be written here (Permission denied)"


def sharing(**changes: Any) -> Sharing:
    everybody = healthy().sharing
    assert everybody is not None
    return replace(everybody, **changes)


def test_a_host_that_cannot_write_is_told() -> None:
    delays = {"n10": {"n1": 0.02}, "n1": {"n10": 0.02}, "n9": {"n10": 0.02, "n1": 0.02}}
    unwritable = sharing(unwritable={"n9": "No such file or directory"}, delays_s=delays)
    finding = only(results(healthy(sharing=unwritable)), Level.FAILURE)
    assert finding.text == "/scratch/results: n9 cannot write there (No such file or directory)"
    assert "RESULTS=" in finding.remedy


def test_files_that_others_do_not_see_are_told() -> None:
    delays = {"n10": {"n1": 0.02}, "n1": {"n10": 0.02, "n9": 0.02}, "n9": {"n10": 0.0, "n1": 0.0}}
    facts = healthy(sharing=sharing(delays_s=delays, unseen_here=("n9",)))
    finding = only(results(facts), Level.FAILURE)
    assert "n10 does not see the file of n9" in finding.text
    assert "this machine does not see the file of n9" in finding.text


def test_files_that_are_seen_late_are_told() -> None:
    assert "within 0.02 s" in only(results(healthy()), Level.OK).text
    late = sharing(delays_s={"n10": {"n1": 12.0, "n9": 0.1}, "n1": {"n10": 0.1, "n9": 0.1}})
    assert "within 12.00 s" in only(results(healthy(sharing=late)), Level.WARNING).text


def test_hosts_without_shared_files_need_none() -> None:
    facts = healthy(shares_files=False, sharing=Sharing())
    assert levels(results(facts)) == [Level.OK]
