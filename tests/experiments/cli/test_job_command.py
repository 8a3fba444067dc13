"""Sweeps from a login node: what is shown, refused and followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.sweep.jobs import SweepJobs
from ps_allreduce.record.records import Status
from tests.experiments.conftest import run
from tests.fakes import FakeLauncher, bad_run

SLURM = ["--launcher", "slurm", "--hosts", "2", "--cores-per-worker", "1"]


def test_outside_of_a_job_a_dry_run_shows_the_script_and_submits_nothing(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("allreduce-sweep", *SLURM, "--dry-run") == 0
    told = capsys.readouterr().out
    assert "1 job on 2 hosts" in told
    assert "#SBATCH --nodes=2" in told
    assert not (tmp_path / "results").exists()
    assert launcher.launched == []


def test_points_that_failed_for_good_get_no_empty_job(
    launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["allreduce-sweep", *SLURM, "--workers", "1", "--repetitions", "1"]
    launcher.script, launcher.num_hosts = [bad_run(Status.FAILED)] * 99, 2
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "4(x2)")
    assert run(*words) == 1
    monkeypatch.delenv("SLURM_JOB_ID")
    capsys.readouterr()
    assert run(*words) == 1
    told = capsys.readouterr().err
    assert "points have failed for good" in told
    assert "no job is submitted" in told
    assert run(*words, "--retry-failed", "--dry-run") == 0
    assert "#SBATCH" in capsys.readouterr().out


def test_a_dry_run_tells_of_a_job_that_is_still_there(
    launcher: FakeLauncher,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(SweepJobs, "live", lambda _: ["7", "8"])
    assert run("allreduce-sweep", *SLURM, "--dry-run") == 0
    told = capsys.readouterr().out
    assert "jobs 7, 8 would be followed, no other one submitted" in told
    assert "#SBATCH" not in told


def test_who_stops_following_is_told_that_the_job_goes_on(
    launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def follow(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(SweepJobs, "live", lambda _: ["7"])
    monkeypatch.setattr(SweepJobs, "follow", follow)
    assert run("allreduce-sweep", *SLURM) == 130
    told = capsys.readouterr().err
    assert "job 7 will go on; the same command follows again, scancel 7 ends what is left" in told
