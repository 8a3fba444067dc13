"""Which steps bring fork servers onto a job's hosts, and whom they serve."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launchers.fork_servers import client as client_module
from launchers.settings import LauncherSettings
from launchers.sites.slurm import slurm_site as site_module
from launchers.sites.slurm import step_servers
from launchers.sites.slurm.slurm_site import SlurmSite
from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.point.strategies import Single
from ps_allreduce.scratch import remove_left_overs
from tests.fakes import make_experiment
from tests.talk import assert_gone

RUN = make_experiment(Single)

Make = Callable[..., SlurmSite]


@pytest.fixture(autouse=True)
def fake_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    srun = shlex.join([sys.executable, "-m", "tests.launchers.sites.slurm.fake_srun"])
    for name, words in {"srun": srun, "sbcast": "cp"}.items():
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SRUN", str(tmp_path))
    monkeypatch.setattr(client_module, "SILENT_S", 1.5)  # a well server answers in time
    monkeypatch.setattr(step_servers, "STEP_END_S", 0.5)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """The site of a job on n10 and n9, as Slurm describes it; entered."""
    made: list[SlurmSite] = []

    def make(shared: str, cpus: str = "4(x2)") -> SlurmSite:
        variables = {"ID": "12", "NODELIST": "n[10,9]", "CPUS_PER_NODE": cpus}
        for name, value in variables.items():
            monkeypatch.setenv(f"SLURM_JOB_{name}", value)
        monkeypatch.setattr(site_module, "show_job", lambda _: {"OverSubscribe": shared})
        monkeypatch.setattr(site_module, "node_cpus", lambda _: {"n10": 8, "n9": 8})
        made.append(SlurmSite(LauncherSettings(launcher="slurm", shared_nodes=True)))
        return made[-1].__enter__()

    yield make
    for site in made:
        site.__exit__()


def pids(site: SlurmSite, *hosts: str, run: bool = True) -> dict[str, int]:
    """The fork servers that a run on some hosts is given, or what is no run."""
    with site.servers(dict.fromkeys(hosts, 1), RUN if run else None) as servers:
        return {host: client.ready.pid for host, client in servers.clients.items()}


def steps(tmp_path: Path) -> list[tuple[str, str, bool]]:
    """Hosts and cores of every step so far, and whether it may share them."""
    words = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    options = [dict(word.split("=", 1) for word in each if "=" in word) for each in words]
    return [
        (option["--nodelist"], option["--cpus-per-task"], "--overlap" in each)
        for option, each in zip(options, words, strict=True)
    ]


def test_one_step_with_all_of_the_job_serves_every_run(job: Make, tmp_path: Path) -> None:
    site = job("NO")
    first = pids(site, "n10", "n9", run=False)
    assert list(first) == ["n10", "n9"]
    assert pids(site, "n9") == {"n9": first["n9"]}
    assert pids(site, "n10", "n9") == first
    assert steps(tmp_path) == [("n10,n9", "4", False)]
    site.__exit__()
    assert_gone(first.values())


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_only_a_host_that_lost_its_server_gets_a_new_one(
    job: Make, tmp_path: Path, end: signal.Signals
) -> None:
    site = job("NO")
    first = pids(site, "n10", "n9")
    os.kill(first["n9"], end)
    second = pids(site, "n10", "n9")
    assert second["n10"] == first["n10"]
    assert second["n9"] != first["n9"]
    assert steps(tmp_path)[1:] == [("n9", "4", True)]
    site.__exit__()
    assert_gone([*first.values(), *second.values()])


def test_a_server_that_cannot_be_replaced_ends_all_and_all_begin_anew(
    job: Make, tmp_path: Path
) -> None:
    site = job("NO")
    first = pids(site, "n10", "n9")
    os.kill(first["n9"], signal.SIGKILL)
    (tmp_path / "down").write_text("n9")
    with pytest.raises(HostFault, match=r"srun ended with status 1 .*: srun: error: n9 is down"):
        pids(site, "n10", "n9")
    assert_gone(first.values())
    (tmp_path / "down").unlink()
    assert list(pids(site, "n10", "n9")) == ["n10", "n9"]
    assert steps(tmp_path)[2:] == [("n10,n9", "4", False)]


def test_hosts_of_another_size_have_a_step_of_their_own(job: Make, tmp_path: Path) -> None:
    assert list(pids(job("NO", cpus="4,2"), "n10", "n9")) == ["n10", "n9"]
    assert steps(tmp_path) == [("n10", "4", False), ("n9", "2", False)]


def test_on_shared_nodes_a_run_has_a_step_with_what_it_needs(job: Make, tmp_path: Path) -> None:
    site = job("OK")
    between = pids(site, "n10", "n9", run=False)
    assert pids(site, "n9", run=False) == {"n9": between["n9"]}
    run = pids(site, "n9")
    assert_gone([*between.values(), *run.values()])
    assert_gone(pids(site, "n9").values())
    assert steps(tmp_path) == [("n10,n9", "4", False), ("n9", "1", False), ("n9", "1", False)]


def test_a_program_that_was_changed_between_two_runs_is_not_measured(
    job: Make, tmp_path: Path
) -> None:
    site = job("OK")
    pids(site, "n9")
    (tmp_path / "program").write_text("0badcafe")
    with pytest.raises(UserError, match="is not the program that this command began with"):
        pids(site, "n9")


def test_each_component_of_a_heterogeneous_job_has_steps_of_its_own(
    job: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_HET_SIZE", "2")
    for group, host in enumerate(["n10", "n9"]):
        monkeypatch.setenv(f"SLURM_JOB_ID_HET_GROUP_{group}", str(12 + group))
        monkeypatch.setenv(f"SLURM_JOB_NODELIST_HET_GROUP_{group}", host)
        monkeypatch.setenv(f"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_{group}", "4")
    site = job("NO")
    assert (site.job_id, site.worker_hosts, site.ps_hosts) == ("12", ("n10",), ("n9",))
    first = pids(site, "n10", "n9")
    assert list(first) == ["n10", "n9"]
    assert pids(site, "n10") == {"n10": first["n10"]}
    # They begin at the same time.
    assert sorted(steps(tmp_path)) == [("n10", "4", False), ("n9", "4", False)]
    asked = (tmp_path / "asked").read_text().splitlines()
    groups = {line.split("--nodelist=")[1].split()[0]: line.split()[0] for line in asked}
    assert groups == {"n10": "--het-group=0", "n9": "--het-group=1"}
    site.__exit__()
    assert_gone(first.values())


#: A launcher that is killed as soon as its packages are where its fork servers will look.
KILLED = """
import os, pathlib, signal, sys
from launchers.sites.slurm.step_servers import NodeCopy
copy = NodeCopy(["n9"], pathlib.Path(sys.argv[1]))
copy.spread()
print((copy.folder / "module.py").read_text(), end="", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_packages_that_a_killed_launcher_copied_to_a_node_are_a_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, temporary = tmp_path / "packages", tmp_path / "temporary"
    packages.mkdir()
    temporary.mkdir()
    (packages / "module.py").write_text("VALUE = 7\n")
    monkeypatch.setenv("TMPDIR", str(temporary))
    words = [sys.executable, "-c", KILLED, str(packages)]
    done = subprocess.run(words, capture_output=True, check=False, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("VALUE = 7\n", -signal.SIGKILL), done.stderr
    assert len(list(temporary.iterdir())) == 1
    remove_left_overs(temporary)
    assert list(temporary.iterdir()) == []
