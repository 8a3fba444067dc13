"""Slurm as sweeps, plans and login nodes see it: what its commands and variables say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from launchers import make_site
from launchers.processes import CommandAnswer
from launchers.settings import LauncherSettings
from launchers.sites.slurm import slurm_scheduler
from launchers.sites.slurm.slurm_scheduler import (
    JOB_VARIABLES,
    LIVING,
    MEANING,
    explain,
    is_over,
    node_cpus,
    parse_job,
    parse_node_sizes,
    show_job,
    sick_nodes,
    with_advice,
)
from ps_allreduce.errors import UserError


@dataclass
class FakeSlurm:
    """What Slurm's commands answer, by the command; those that are not there are missing."""

    answers: dict[str, CommandAnswer | None] = field(default_factory=dict)
    asked: list[Sequence[str]] = field(default_factory=list)
    environment: Mapping[str, str] | None = None

    def run_quietly(
        self,
        words: Sequence[str],
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> CommandAnswer | None:
        self.asked.append(words)
        self.environment = environment
        return self.answers.get(words[0])


@pytest.fixture(autouse=True)
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Slurm outside of a job."""
    for name in (*JOB_VARIABLES, "SLURM_JOB_NODELIST", "SBATCH_PARTITION"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeSlurm()
    monkeypatch.setattr(slurm_scheduler, "run_quietly", fake.run_quietly)
    return fake


def says(text: str) -> CommandAnswer:
    return CommandAnswer(status=0, out=text, err="")


def fails(text: str) -> CommandAnswer:
    return CommandAnswer(status=1, out="", err=text)


UNKNOWN = fails("slurm_load_jobs error: Invalid job id specified\n")


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


def test_every_field_is_found_and_may_hold_spaces_and_equals_signs() -> None:
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
        "Command": "/home/ann/a folder/job.sh",
        "WorkDir": "/home/ann/a folder",
        "Comment": "rate=1gbit links",
        "StdErr": "/home/ann/50% done.log",
        "Power": "",
    }
    assert {key: job[key] for key in expected} == expected


@pytest.mark.parametrize("text", ["", "\n", "slurm_load_jobs error: Invalid job id specified"])
def test_what_is_no_job_has_no_fields(text: str) -> None:
    assert parse_job(text) == {}


def test_what_slurm_ended_for_want_of_memory_comes_with_advice() -> None:
    assert with_advice("job 7 was cancelled (CANCELLED)") == "job 7 was cancelled (CANCELLED)"
    assert with_advice("job 7 was out of memory (OUT_OF_MEMORY)") == (
        "job 7 was out of memory (OUT_OF_MEMORY); use a smaller --batch-per-worker, or ask for "
        "more memory"
    )


def test_no_state_of_a_job_that_lives_is_explained_as_its_end() -> None:
    assert set(LIVING) & set(MEANING) == set()


@pytest.mark.parametrize("answer", [None, UNKNOWN, says("")])
def test_a_job_that_nobody_knows_has_no_fields(
    slurm: FakeSlurm, answer: CommandAnswer | None
) -> None:
    slurm.answers["scontrol"] = answer
    assert show_job("12") == {}
    assert explain("12") == ""


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(None, False, id="no Slurm, or no answer"),
        pytest.param(UNKNOWN, True, id="forgotten"),
        pytest.param(fails("Unable to contact slurm controller"), False, id="down"),
        pytest.param(says("JobId=12 JobState=RUNNING"), False, id="running"),
        pytest.param(says("JobId=12 JobState=PENDING Reason=Priority"), False, id="waiting"),
        pytest.param(says("JobId=12 JobState=COMPLETING"), False, id="ending"),
        pytest.param(says("JobId=12 JobState=CANCELLED"), True, id="cancelled"),
        pytest.param(says("JobId=12 JobState=COMPLETED"), True, id="completed"),
        pytest.param(says("JobId=12 JobState=TIMEOUT"), True, id="timed out"),
    ],
)
def test_a_job_is_over_only_if_slurm_says_so(
    slurm: FakeSlurm, answer: CommandAnswer | None, expected: bool
) -> None:
    slurm.answers["scontrol"] = answer
    assert is_over("12") is expected


def test_a_job_that_the_controller_forgot_is_looked_up_in_the_accounts(
    slurm: FakeSlurm,
) -> None:
    slurm.answers["scontrol"] = UNKNOWN
    slurm.answers["sacct"] = says("CANCELLED by 1000\n")
    assert explain("12") == "job 12 was cancelled (CANCELLED)"


NODES = """\
NodeName=n9 Arch=x86_64 CPUTot=4 State=ALLOCATED ThreadsPerCore=1
NodeName=n10 Arch=x86_64 CPUTot=4 State=DOWN* ThreadsPerCore=1 Reason=Not responding [slurm@2026]
NodeName=n11 Arch=x86_64 CPUTot=4 State=IDLE+DRAIN ThreadsPerCore=1
"""


def test_nodes_that_slurm_does_not_use_are_named(slurm: FakeSlurm) -> None:
    assert sick_nodes(["n9"]) == ""
    slurm.answers["scontrol"] = says(NODES)
    assert "node n10 is DOWN*" in sick_nodes(["n9", "n10", "n11"])
    assert "n9" not in sick_nodes(["n9", "n10", "n11"])
    slurm.answers["scontrol"] = says("NodeName=n9 State=IDLE\n")
    assert sick_nodes(["n9"]) == ""


def test_nodes_have_the_cpus_that_jobs_can_get(slurm: FakeSlurm) -> None:
    assert node_cpus(["n9"]) == {}
    lines = ("NodeName=n9 CPUAlloc=0 CPUEfctv=6 CPUTot=8", "NodeName=n10 CPUTot=4", "NodeName=n11")
    slurm.answers["scontrol"] = says("\n".join(lines))
    assert node_cpus(["n9", "n10", "n11"]) == {"n9": 6, "n10": 4}


#: Options as the suite states them, and as a user may.
SCRIPT = "#!/bin/bash\n#SBATCH --time=30\n#SBATCH --partition=lab\n#SBATCH --qos=low --mem=0\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A script to submit."""
    (tmp_path / "job.sh").write_text(SCRIPT)
    return tmp_path / "job.sh"


@pytest.mark.parametrize("out", ["4711\n", "4711;cluster\n", "*** Welcome ***\n\n4711\n"])
def test_a_submitted_job_has_a_number(slurm: FakeSlurm, job: Path, out: str) -> None:
    slurm.answers["sbatch"] = says(out)
    assert slurm_scheduler.submit(job) == "4711"
    assert slurm.asked == [["sbatch", "--parsable", str(job)]]


def test_what_a_script_states_is_overruled_by_no_variable(
    slurm: FakeSlurm, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overruling = ("TIMELIMIT", "PARTITION", "QOS", "MEM_PER_NODE", "WAIT", "ARRAY_INX")
    kept = {"SBATCH_ACCOUNT": "ours", "SLURM_CONF": "/etc/slurm.conf"}
    for name, text in {
        **dict.fromkeys((f"SBATCH_{each}" for each in overruling), "1"),
        **kept,
    }.items():
        monkeypatch.setenv(name, text)
    slurm.answers["sbatch"] = says("4711")
    slurm_scheduler.submit(job)
    assert slurm.environment is not None
    assert {
        n: t for n, t in slurm.environment.items() if n.startswith(("SBATCH_", "SLURM_"))
    } == kept


def test_what_is_not_submitted_is_told_in_slurms_words(slurm: FakeSlurm, job: Path) -> None:
    said = "sbatch: error: invalid partition specified: gpu\nsbatch: error: Batch job failed\n"
    slurm.answers["sbatch"] = fails(said)
    with pytest.raises(UserError, match="Slurm refuses the job: sbatch: error: invalid partition"):
        slurm_scheduler.submit(job)
    slurm.answers["sbatch"] = None
    with pytest.raises(UserError, match="sbatch is missing here or does not answer"):
        slurm_scheduler.submit(job)
    slurm.answers["sbatch"] = says("")  # as with --test-only
    with pytest.raises(UserError, match="sbatch told no number of a job"):
        slurm_scheduler.submit(job)


SINFO = "debug* 8\ndebug* 4+\nlong 2\ngpu 64\n"


def test_the_smallest_node_of_every_partition() -> None:
    assert parse_node_sizes(SINFO) == {"debug*": 4, "long": 2, "gpu": 64}
    assert parse_node_sizes("slurm_load_partitions: Unable to contact\n") == {}


@pytest.mark.parametrize(
    ("text", "partition", "expected"),
    [
        (SINFO, None, 4),
        (SINFO, "debug", 4),
        (SINFO, "gpu,debug", 4),
        ("gpu 64\ngpu 32\n", "gpu", 32),
    ],
)
def test_a_job_is_measured_by_its_partitions_smallest_node(
    slurm: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    partition: str | None,
    expected: int,
) -> None:
    slurm.answers["sinfo"] = says(text)
    assert slurm_scheduler.cores_per_node(LauncherSettings(partition=partition)) == expected
    monkeypatch.setenv("SBATCH_PARTITION", "gpu")  # holds where nothing is stated
    cores = slurm_scheduler.cores_per_node(LauncherSettings(partition=partition))
    assert cores == (64 if partition is None else expected)


@pytest.mark.parametrize(
    ("given", "partition", "sentence"),
    [
        (None, None, "no Slurm answers here"),
        (fails("unable to contact"), None, "no Slurm answers here"),
        (says(SINFO), "long,nosuch", "no partition nosuch; .* debug, long, gpu"),
        (says("long 2\n"), None, "no partition is the default; .* long"),
    ],
)
def test_a_partition_that_is_not_there_is_one_sentence(
    slurm: FakeSlurm, given: CommandAnswer | None, partition: str | None, sentence: str
) -> None:
    slurm.answers["sinfo"] = given
    with pytest.raises(UserError, match=sentence):
        slurm_scheduler.cores_per_node(LauncherSettings(partition=partition))


UP = "Slurmctld(primary) at controller is UP\n"

DOWN = "Slurmctld(primary) at controller is DOWN\n"

REFUSED = r"LAUNCHER=slurm.*salloc or sbatch.*--allow-login-node"


@pytest.mark.parametrize("out", [UP, UP + DOWN])
def test_a_machine_whose_controller_answers_is_a_login_node(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    slurm.answers["scontrol"] = says(out)
    monkeypatch.setenv("SLURM_JOB_ID", "")  # an empty number is none
    with pytest.raises(UserError, match=REFUSED):
        slurm_scheduler.refuse_login_node()
    assert slurm.asked == [["scontrol", "ping"]]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(CommandAnswer(1, DOWN, ""), id="controller down"),
        pytest.param(CommandAnswer(1, UP, ""), id="failed"),
        pytest.param(says(""), id="silent"),
        pytest.param(None, id="no Slurm, or no answer in time"),
    ],
)
def test_a_machine_whose_controller_does_not_answer_is_no_login_node(
    slurm: FakeSlurm, given: CommandAnswer | None
) -> None:
    slurm.answers["scontrol"] = given
    assert make_site(LauncherSettings()).hosts
    assert slurm.asked == [["scontrol", "ping"]]


@pytest.mark.parametrize("variable", JOB_VARIABLES)
def test_inside_a_job_nobody_is_asked(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    slurm.answers["scontrol"] = says(UP)
    assert not slurm_scheduler.inside_job()
    monkeypatch.setenv(variable, "17")
    assert slurm_scheduler.inside_job()
    slurm_scheduler.refuse_login_node()
    assert slurm.asked == []


@pytest.mark.parametrize(
    "settings",
    [LauncherSettings(), LauncherSettings(launcher="emulated", hosts=2)],
    ids=["local", "emulated"],
)
def test_launchers_that_compute_here_refuse_a_login_node(
    slurm: FakeSlurm, settings: LauncherSettings, tmp_path: Path
) -> None:
    slurm.answers["scontrol"] = says(UP)
    with pytest.raises(UserError, match=REFUSED):
        make_site(settings)
    slurm.asked.clear()
    make_site(replace(settings, allow_login_node=True))
    # A launcher that computes elsewhere does not ask.
    (tmp_path / "hosts").write_text("n9\n")
    make_site(LauncherSettings(launcher="ssh", host_file=tmp_path / "hosts"))
    assert slurm.asked == []


@pytest.mark.parametrize(
    "option",
    ["--dependency=afterok:7", "-d singleton", "--dep=afterok:7", "-Hd singleton", "-p x -d 7"],
)
def test_jobs_that_wait_for_each_other_leave_no_other_dependency(option: str) -> None:
    settings = LauncherSettings(launcher="slurm", sbatch=("--qos=normal", option))
    slurm_scheduler.check_options(settings, jobs_by_size=False)
    with pytest.raises(UserError, match="leave --dependency out of --sbatch"):
        slurm_scheduler.check_options(settings, jobs_by_size=True)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("JobState=PENDING Reason=Resources", "job 12 pending (Resources)"),
        ("JobState=PENDING Reason=None", "job 12 pending"),
        ("JobState=RUNNING Reason=None", "job 12 running"),
        ("", "job 12 unknown"),
    ],
)
def test_the_state_of_a_job_is_told_in_words(slurm: FakeSlurm, said: str, state: str) -> None:
    slurm.answers["scontrol"] = says(said)
    assert slurm_scheduler.state("12") == state
