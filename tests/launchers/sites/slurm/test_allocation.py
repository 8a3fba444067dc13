"""Which jobs can be used, and what they offer."""

from __future__ import annotations

import pytest

from launchers.sites.slurm.site import read_allocation
from launchers.sites.slurm.step import INPUT_VARIABLES, step_environment, step_words
from ps_allreduce.errors import UserError

JOB = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NODELIST": "n[9-10],login",
    "SLURM_JOB_CPUS_PER_NODE": "4(x2),2",
}


def test_hosts_come_in_slurms_order_with_their_cores() -> None:
    job = read_allocation(JOB)
    assert (job.job_id, job.hosts) == ("12", ("n9", "n10", "login"))
    assert job.num_cores == (4, 4, 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"SLURM_JOB_ID": ""}, "no Slurm job is active here"),
        ({"SLURM_ARRAY_JOB_ID": "11"}, "job 12 is a task of an array"),
        ({"SLURM_HET_SIZE": "2"}, "job 12 is heterogeneous"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "srun has started this suite more than once"),
        ({"SLURM_JOB_NODELIST": "n[9-12]"}, "names 4 hosts and SLURM_JOB_CPUS_PER_NODE 3"),
        ({"SLURM_JOB_NODELIST": "n[9-"}, "host list, character"),
        ({"SLURM_JOB_CPUS_PER_NODE": "4(x"}, "list of tasks or CPUs per node, character"),
    ],
)
def test_a_job_that_cannot_be_used_is_refused(changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        read_allocation(JOB | changes)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("name", ["SLURM_JOB_NODELIST", "SLURM_JOB_CPUS_PER_NODE"])
def test_a_variable_that_somebody_removed_is_named(name: str) -> None:
    with pytest.raises(UserError, match=f"job 12: {name} is not set"):
        read_allocation({key: value for key, value in JOB.items() if key != name})


def test_a_job_that_srun_started_once_is_no_trouble() -> None:
    single = {"SLURM_HET_SIZE": "1", "SLURM_STEP_NUM_TASKS": "1"}
    assert read_allocation(JOB | single).hosts[0] == "n9"


def test_a_step_says_everything_that_slurm_might_guess() -> None:
    words = step_words({"n10": 2, "n9": 4}, "/suite", ["python3", "-m", "server"])
    assert words[0] == "srun"
    assert words[-3:] == ["python3", "-m", "server"]
    for option in (
        *("--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n10,n9"),
        *("--cpus-per-task=4", "--exact", "--chdir=/suite", "--input=none"),
    ):
        assert option in words


def test_a_host_whose_name_could_be_an_option_is_refused() -> None:
    with pytest.raises(UserError, match="is not a host name"):
        step_words({"--overlap": 1}, "/suite", [])


def test_what_would_change_the_step_behind_our_back_is_dropped() -> None:
    kept = {"SLURM_JOB_ID": "12", "SLURM_CONF": "/etc/slurm.conf", "HOME": "/home/ann"}
    dropped = dict.fromkeys(INPUT_VARIABLES, "7")
    assert "SLURM_CPUS_PER_TASK" in dropped
    assert step_environment(kept | dropped) == kept
