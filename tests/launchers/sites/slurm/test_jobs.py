"""What Slurm says about a job becomes fields, a sentence, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from launchers.processes import Answer
from launchers.sites.slurm import jobs
from launchers.sites.slurm.jobs import (
    LIVING,
    MEANING,
    explain,
    explain_job,
    job_is_over,
    parse_job,
    show_job,
    sick_nodes,
)

#: `scontrol -o show job` of Slurm 22.05, shortened.
RUNNING = (
    "JobId=12 JobName=compare UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A Priority=4294901759 "
    "Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=0 "
    "Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:07 TimeLimit=00:30:00 "
    "StartTime=2026-01-01T10:00:00 EndTime=2026-01-01T10:30:00 AllocNode:Sid=login:4242 "
    "NodeList=n[9-10] NumNodes=2 NumCPUs=8 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* "
    "TRES=cpu=8,mem=4G,node=2,billing=8 Socks/Node=* MinMemoryNode=0 OverSubscribe=NO "
    "Command=/home/ann/a folder/job.sh WorkDir=/home/ann/a folder "
    "Comment=rate=1gbit links StdErr=/home/ann/50% done.log Power="
)


def test_every_field_is_found() -> None:
    job = parse_job(RUNNING)
    expected = {
        "JobId": "12",
        "JobName": "compare",
        "JobState": "RUNNING",
        "Reason": "None",
        "EndTime": "2026-01-01T10:30:00",
        "AllocNode:Sid": "login:4242",
        "NodeList": "n[9-10]",
        "CPUs/Task": "1",
        "ReqB:S:C:T": "0:0:*:*",
        "TRES": "cpu=8,mem=4G,node=2,billing=8",
        "OverSubscribe": "NO",
        "Power": "",
    }
    assert {key: job[key] for key in expected} == expected


def test_values_may_hold_spaces_and_equals_signs() -> None:
    job = parse_job(RUNNING)
    assert job["Command"] == "/home/ann/a folder/job.sh"
    assert job["WorkDir"] == "/home/ann/a folder"
    assert job["Comment"] == "rate=1gbit links"
    assert job["StdErr"] == "/home/ann/50% done.log"


@pytest.mark.parametrize("text", ["", "\n", "slurm_load_jobs error: Invalid job id specified"])
def test_what_is_no_job_has_no_fields(text: str) -> None:
    assert parse_job(text) == {}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            {"JobState": "TIMEOUT", "Reason": "TimeLimit"},
            "job 12 reached its time limit (TIMEOUT, reason TimeLimit)",
        ),
        ({"JobState": "CANCELLED", "Reason": "None"}, "job 12 was cancelled (CANCELLED)"),
        ({"JobState": "CANCELLED by 1000"}, "job 12 was cancelled (CANCELLED)"),
        ({"JobState": "NODE_FAIL", "Reason": ""}, "job 12 lost a node (NODE_FAIL)"),
        ({"JobState": "PREEMPTED"}, "job 12 was pre-empted by another job (PREEMPTED)"),
        ({"JobState": "OUT_OF_MEMORY"}, "job 12 was out of memory (OUT_OF_MEMORY)"),
        ({"JobState": "RUNNING", "Reason": "None"}, ""),
        ({"JobState": "COMPLETED"}, ""),
        ({"JobState": ""}, ""),
        ({}, ""),
    ],
)
def test_the_end_of_a_job_is_a_sentence(job: dict[str, str], expected: str) -> None:
    assert explain("12", job) == expected


def test_no_state_of_a_job_that_lives_is_explained_as_its_end() -> None:
    assert set(LIVING) & set(MEANING) == set()


Answers = Callable[[Sequence[str]], Answer | None]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Answer]:
    """What Slurm's commands answer, by the command; those that are not there are missing."""
    answers: dict[str, Answer] = {}

    def run_quietly(words: Sequence[str], timeout_s: float) -> Answer | None:
        return answers.get(words[0])

    monkeypatch.setattr(jobs, "run_quietly", run_quietly)
    return answers


UNKNOWN = Answer(status=1, out="", err="slurm_load_jobs error: Invalid job id specified\n")


def says(text: str) -> Answer:
    return Answer(status=0, out=text, err="")


def test_a_job_that_the_controller_knows_is_shown(slurm: dict[str, Answer]) -> None:
    slurm["scontrol"] = says(f"{RUNNING}\n")
    assert show_job("12")["NumNodes"] == "2"


@pytest.mark.parametrize("answer", [None, UNKNOWN, says("")])
def test_a_job_that_nobody_knows_has_no_fields(
    slurm: dict[str, Answer], answer: Answer | None
) -> None:
    if answer is not None:
        slurm["scontrol"] = answer
    assert show_job("12") == {}
    assert explain_job("12") == ""


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(None, False, id="no Slurm, or no answer"),
        pytest.param(UNKNOWN, True, id="forgotten"),
        pytest.param(
            Answer(status=1, out="", err="Unable to contact slurm controller"), False, id="down"
        ),
        pytest.param(says("JobId=12 JobState=RUNNING"), False, id="running"),
        pytest.param(says("JobId=12 JobState=PENDING Reason=Priority"), False, id="waiting"),
        pytest.param(says("JobId=12 JobState=COMPLETING"), False, id="ending"),
        pytest.param(says("JobId=12 JobState=CANCELLED"), True, id="cancelled"),
        pytest.param(says("JobId=12 JobState=COMPLETED"), True, id="completed"),
        pytest.param(says("JobId=12 JobState=TIMEOUT"), True, id="timed out"),
    ],
)
def test_a_job_is_over_only_if_slurm_says_so(
    slurm: dict[str, Answer], answer: Answer | None, expected: bool
) -> None:
    if answer is not None:
        slurm["scontrol"] = answer
    assert job_is_over("12") is expected


def test_a_job_that_the_controller_forgot_is_looked_up_in_the_accounts(
    slurm: dict[str, Answer],
) -> None:
    slurm["scontrol"] = UNKNOWN
    slurm["sacct"] = says("CANCELLED by 1000\n")
    assert explain_job("12") == "job 12 was cancelled (CANCELLED)"


NODES = """\
NodeName=n9 Arch=x86_64 CPUTot=4 State=ALLOCATED ThreadsPerCore=1
NodeName=n10 Arch=x86_64 CPUTot=4 State=DOWN* ThreadsPerCore=1 Reason=Not responding [slurm@2026]
NodeName=n11 Arch=x86_64 CPUTot=4 State=IDLE+DRAIN ThreadsPerCore=1
"""


def test_nodes_that_slurm_does_not_use_are_named(slurm: dict[str, Answer]) -> None:
    slurm["scontrol"] = says(NODES)
    assert "node n10 is DOWN*" in sick_nodes(["n9", "n10", "n11"])
    assert "n9" not in sick_nodes(["n9", "n10", "n11"])


def test_without_an_answer_no_node_is_sick(slurm: dict[str, Answer]) -> None:
    assert sick_nodes(["n9"]) == ""
    slurm["scontrol"] = says("NodeName=n9 State=IDLE\n")
    assert sick_nodes(["n9"]) == ""
