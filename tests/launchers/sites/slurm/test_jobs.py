"""What is asked of Slurm, with nothing that a shell could misread; and what a job offers."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchers.scheduler import BatchJob
from launchers.settings import LauncherSettings
from launchers.sites.slurm.allocation import Component, read_allocation
from launchers.sites.slurm.batch_script import render_script
from launchers.sites.slurm.step_servers import (
    INPUT_VARIABLES,
    gpus_of_part,
    step_environment,
    step_words,
)
from ps_allreduce.errors import UserError
from tests.goldens import golden

JOB = BatchJob(
    name="compare",
    num_hosts=4,
    minutes=90,
    settings=LauncherSettings(launcher="slurm"),
    log=Path("/results/slurm/x.log"),
    folder=Path("/suite"),
    variables={"PYTHONPATH": "/suite"},
    command=("python3", "-m", "experiments", "compare"),
)


def asking(**settings: Any) -> BatchJob:
    """The same job with other settings."""
    return replace(JOB, settings=LauncherSettings(launcher="slurm", **settings))


SCRIPTS = {
    "shared nodes": asking(
        partition="gpu", constraint="a100&ib", gpus_per_node="a100:4", shared_nodes=True
    ),
    "hosts for servers, set-up and a log whose name is a pattern": replace(
        asking(
            partition="big",
            account="p1",
            sbatch=("--qos=normal",),
            ps_hosts=2,
            ps_sbatch=("--partition=small",),
            setup=("module load X",),
        ),
        log=Path("/results/50%/x.log"),
    ),
}


def test_what_is_asked_of_slurm() -> None:
    texts = [f"# {title}\n{render_script(job)}" for title, job in SCRIPTS.items()]
    golden.check({"sentences/batch_scripts.txt": "\n".join(texts)})
    with pytest.raises(UserError, match="--ps-sbatch is about the hosts of --ps-hosts"):
        asking(ps_sbatch=("--partition=small",))
    with pytest.raises(UserError, match="the suite decides this option itself"):
        render_script(asking(ps_hosts=1, ps_sbatch=("--nodes=9",)))


@pytest.mark.parametrize("word", ["a b", "it's", "$(touch pwned)", "`x`", "x; y", "*", "--help"])
def test_words_of_the_command_arrive_as_they_were_typed(word: str) -> None:
    script = render_script(replace(JOB, command=("python3", word), folder=Path("/my suite")))
    last = script.splitlines()[-1]
    assert shlex.split(last) == ["exec", "python3", word]
    assert "cd -- '/my suite' || exit 2" in script


def test_a_log_that_sbatch_misreads_is_refused() -> None:
    for results in ("/my results", "/run#1"):
        with pytest.raises(UserError, match="choose another RESULTS"):
            render_script(replace(JOB, log=Path(results) / "x.log"))


@pytest.mark.parametrize(
    "changes",
    [
        {"constraint": "a\nb"},
        {"setup": ("module load X\nrm",)},
        {"sbatch": ("--qos=a\n#SBATCH --x",)},
    ],
)
def test_a_line_break_has_no_place_in_a_script(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="a line break has no place"):
        render_script(asking(**changes))


@pytest.mark.parametrize(
    "option", ["--nodelist=n1", "-wn1", "-C gpu", "--ntasks-per-node=1", '--comment="-N 4"', "-v"]
)
def test_options_that_only_look_alike_are_taken(option: str) -> None:
    assert f"#SBATCH {option}\n" in render_script(asking(sbatch=(option,)))


@pytest.mark.parametrize(
    "option", ["-N4", "-Hn8", "--arr=1-3", "--qos=x -a1-3", "-o x.log", "--output=x.log", "-Jx#1"]
)
def test_options_that_the_suite_states_or_sbatch_misreads_are_refused(option: str) -> None:
    with pytest.raises(UserError, match=r"the suite decides this option itself|a comment's begin"):
        render_script(asking(sbatch=(option,)))


def test_a_job_has_hosts_and_costs_its_whole_limit() -> None:
    with pytest.raises(UserError, match="hosts must be at least 1, got 0"):
        replace(JOB, num_hosts=0)
    assert JOB.node_hours == 6.0
    assert asking(ps_hosts=2).node_hours == 9.0


def test_a_setup_line_that_fails_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    made = replace(asking(setup=("true # fine", "module-that-is-missing")), folder=tmp_path)
    script.write_text(render_script(made))
    done = subprocess.run(["bash", script], capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "The setup line failed: module-that-is-missing" in done.stderr


ALLOCATED = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NODELIST": "n[9-10],login",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2),2",
}


def test_hosts_come_in_slurms_order_with_their_cores() -> None:
    (job,) = read_allocation(ALLOCATED)
    assert (job.job_id, job.het_group) == ("12", None)
    assert list(job.cores.items()) == [("n9", 4), ("n10", 4), ("login", 2)]


#: As Slurm sets it in a batch script of two components.
HETEROGENEOUS = ALLOCATED | {
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_ID_HET_GROUP_0": "12",
    "SLURM_JOB_ID_HET_GROUP_1": "13",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n[9-10]",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "small1",
    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "4(x2)",
    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "2",
}


def test_the_second_component_of_a_heterogeneous_job_has_hosts_of_its_own() -> None:
    assert read_allocation(HETEROGENEOUS) == (
        Component(job_id="12", cores={"n9": 4, "n10": 4}, het_group=0),
        Component(job_id="13", cores={"small1": 2}, het_group=1),
    )
    with pytest.raises(UserError, match="a host is in both components"):
        read_allocation(HETEROGENEOUS | {"SLURM_JOB_NODELIST_HET_GROUP_1": "n9"})


@pytest.mark.parametrize("name", ["SLURM_JOB_NODELIST", "SLURM_JOB_CPUS_PER_NODE"])
def test_a_variable_that_somebody_removed_is_named(name: str) -> None:
    with pytest.raises(UserError, match=f"job 12: {name} is not set"):
        read_allocation({key: value for key, value in ALLOCATED.items() if key != name})


def test_a_step_says_everything_that_slurm_might_guess_or_misread() -> None:
    words = step_words({"n10": 2, "n9": 4}, "/suite", ["python3", "-m", "server"])
    assert words[0] == "srun"
    assert words[-3:] == ["python3", "-m", "server"]
    for option in (
        *("--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n10,n9"),
        *("--cpus-per-task=4", "--exact", "--chdir=/suite", "--input=none"),
        *("--kill-on-bad-exit=0", "--wait=0"),
    ):
        assert option in words
    assert "--overlap" not in words
    assert not [word for word in words if word.startswith("--het-group")]
    assert "--het-group=1" in step_words({"n10": 2}, "/suite", [], het_group=1)
    assert "--overlap" in step_words({"n10": 2}, "/suite", [], beside=True)
    with pytest.raises(UserError, match="is not a host name"):
        step_words({"--overlap": 1}, "/suite", [])


def test_what_would_change_the_step_behind_our_back_is_dropped() -> None:
    kept = {"SLURM_JOB_ID": "12", "SLURM_CONF": "/etc/slurm.conf", "HOME": "/home/ann"}
    dropped = dict.fromkeys(INPUT_VARIABLES, "7")
    # A step of fewer nodes would ask for the job's total of GPUs again.
    for total, nodes, told in (("8", 2, "2"), ("a100:8", 3, "a100:2"), ("8", 4, ""), ("7", 2, "")):
        expected = {"SLURM_GPUS_PER_NODE": told} if told else {}
        assert gpus_of_part({"SLURM_GPUS": total}, nodes, 4) == expected
    assert gpus_of_part({}, 2, 4) == {}
    named = ("CPUS_PER_TASK", "GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "GPU_BIND", "GRES")
    assert {f"SLURM_{name}" for name in named} <= dropped.keys()
    assert step_environment(kept | dropped) == kept | {"SLURM_OOM_KILL_STEP": "0"}
