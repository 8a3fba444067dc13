"""Slurm as the scheduler of sweeps: a job before it runs, and as it is seen from outside.

The module is a `launchers.scheduler.Scheduler`.  It decides which of Slurm's commands answers which
question, and how a job's state becomes a sentence.  Where the commands are missing or do not
answer, nothing is known of a job, which is no error.  What a batch script says is decided in
`batch_script`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from launchers.fork_servers.client import last_lines
from launchers.processes import run_quietly
from launchers.settings import LauncherSettings
from launchers.sites.slurm.batch_script import RESERVED, render_script, states
from launchers.sites.slurm.hostlist import parse_hostlist
from ps_allreduce.errors import UserError

#: Variables that a job sets; with one of them this is a compute node.
JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOBID")

NODELIST_VARIABLE = "SLURM_JOB_NODELIST"

PING_S = 5.0

SUBMIT_S = 60.0

ANSWER_S = 10.0

LOG_LINES = 50

#: States in which a job's processes may still run.  Source: squeue(1), "JOB STATE CODES".
LIVING = (
    *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "RESIZING", "SIGNALING"),
    *("STAGE_OUT", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "STOPPED"),
    "RESV_DEL_HOLD",
)

#: What a state of a job means for the runs in it.
MEANING = {
    "CANCELLED": "was cancelled",
    "TIMEOUT": "reached its time limit",
    "PREEMPTED": "was pre-empted by another job",
    "NODE_FAIL": "lost a node",
    "BOOT_FAIL": "lost a node that did not boot",
    "DEADLINE": "reached its deadline",
    "OUT_OF_MEMORY": "was out of memory",
    "FAILED": "failed",
}

#: What stands for an option in the name of its variable, where that is another word.
VARIABLES = {
    "array": "ARRAY_INX",
    "mem": "MEM_PER_NODE",
    "no-requeue": "REQUEUE",
    "switches": "REQ_SWITCH",
    "time": "TIMELIMIT",
}

#: As schedulers call it.
script = render_script


def parse_job(text: str) -> dict[str, str]:
    """The fields of `scontrol -o show job`: `Key=value` separated by spaces.

    A value may hold spaces; it goes on until the next key.
    """
    text = text.strip()
    keys = list(re.finditer(r"(?:^|(?<=\s))([A-Z][A-Za-z:/_]*)=", text))
    ends = [*(key.start() for key in keys), len(text)][1:]
    return {key[1]: text[key.end() : end].strip() for key, end in zip(keys, ends, strict=True)}


def show_job(job_id: str) -> dict[str, str]:
    """What the controller knows of a job; nothing if it knows none."""
    return parse_job(_printed(["scontrol", "-o", "show", "job", job_id]).partition("\n")[0])


def _printed(words: Sequence[str], timeout_s: float = ANSWER_S) -> str:
    """What a command of Slurm's prints; nothing if it is missing, fails or does not answer."""
    answer = run_quietly(words, timeout_s)
    return answer.out if answer is not None and answer.status == 0 else ""


def is_over(job_id: str) -> bool:
    """The controller knows the job no more, or knows that it has ended."""
    answer = run_quietly(["scontrol", "-o", "show", "job", job_id], ANSWER_S)
    if answer is None:
        return False
    if answer.status != 0:
        return "Invalid job id" in answer.err
    leader = answer.out.strip().partition("\n")[0]  # a line for each component of the job
    return parse_job(leader).get("JobState", "") not in LIVING


def explain(job_id: str) -> str:
    """Why a job ended, or is ending, in the scheduler's words; empty if it is not."""
    job = show_job(job_id) or _from_accounting(job_id)
    reason = explain_state(job_id, job)
    if not reason and job.get("StdErr"):
        # While a job is being ended the controller says COMPLETING and no more.
        reason = explain_from_log(job_id, last_lines(Path(job["StdErr"]), LOG_LINES))
    return reason


def explain_state(job_id: str, job: Mapping[str, str]) -> str:
    """`job 12 reached its time limit (TIMEOUT, reason TimeLimit)`; empty for one that is well."""
    state = job.get("JobState", "").partition(" ")[0]
    if state not in MEANING:
        return ""
    reason = job.get("Reason", "None")
    detail = f"{state}, reason {reason}" if reason not in ("None", "") else state
    return f"job {job_id} {MEANING[state]} ({detail})"


def with_advice(ending: str) -> str:
    """A bad end, with what to do about it where that is known."""
    if "OUT_OF_MEMORY" in ending:
        return f"{ending}; use a smaller --batch-per-worker, or ask for more memory"
    return ending


def explain_from_log(job_id: str, text: str) -> str:
    """What the end of a batch job's own log says of its end: slurmstepd writes it before it kills.

    For instance `slurmstepd-n8: error: *** JOB 6 ON n8 CANCELLED AT 2026-11-21T11:32:04 DUE TO TIME
    LIMIT ***`.
    """
    ends = re.findall(
        rf"\*\*\* JOB {re.escape(job_id)} ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ,-]+?))? \*\*\*",
        text,
    )
    if not ends:
        return ""
    return f"job {job_id} was cancelled" + (f" due to {ends[-1].lower()}" if ends[-1] else "")


def sick_nodes(hosts: Sequence[str]) -> str:
    """`node n10 is DOWN*` for every host that Slurm does not use; empty if all are well."""
    sick = [
        f"node {node.get('NodeName')} is {node.get('State')}"
        for node in _show_nodes(hosts)
        if any(word in node.get("State", "") for word in ("DOWN", "FAIL", "*", "NOT_RESPONDING"))
    ]
    return ", ".join(sick)


def node_cpus(hosts: Sequence[str]) -> dict[str, int]:
    """The CPUs of every host that jobs can get, as far as the controller tells."""
    # 21.08 does not tell apart those that are kept for the system.
    found = {
        node.get("NodeName", ""): node.get("CPUEfctv", node.get("CPUTot", ""))
        for node in _show_nodes(hosts)
    }
    return {host: int(count) for host, count in found.items() if count.isdecimal()}


def _show_nodes(hosts: Sequence[str]) -> list[dict[str, str]]:
    lines = _printed(["scontrol", "-o", "show", "node", ",".join(hosts)]).splitlines()
    return [parse_job(line) for line in lines]


def _from_accounting(job_id: str) -> dict[str, str]:
    """The state of a job that the controller has forgotten; nothing without accounting."""
    state = _printed(["sacct", "-n", "-X", "-P", "-o", "State", "-j", job_id]).split()
    return {"JobState": state[0]} if state else {}


def cancel_command(job_ids: Sequence[str]) -> str:
    """What a user types to end jobs."""
    return f"scancel {' '.join(job_ids)}"


def inside_job() -> bool:
    """One of the variables that a job sets is there."""
    return any(os.environ.get(name) for name in JOB_VARIABLES)


def refuse_login_node() -> None:
    """See that no controller answers here outside of a job."""
    if not inside_job() and " is UP" in _printed(["scontrol", "ping"], PING_S):
        raise UserError(
            "a Slurm controller answers and no job is active: this looks like a login node, "
            "where training is not welcome. Use LAUNCHER=slurm, run the same command inside "
            "salloc or sbatch, or overrule with --allow-login-node."
        )


def hosts_of(nodelist: str) -> tuple[str, ...]:
    """The hosts of a list such as `n[9-11]`; of an empty one, those of this job."""
    return parse_hostlist(",".join((nodelist or os.environ.get(NODELIST_VARIABLE, "")).split()))


def check_options(settings: LauncherSettings, *, jobs_by_size: bool) -> None:
    """Refuse a dependency where the suite makes jobs wait for each other."""
    waits = any(states(option, ["dependency"], "d") for option in settings.sbatch)
    if jobs_by_size and waits:
        raise UserError(
            "--jobs-by-size decides what each job waits for: leave --dependency out of --sbatch."
        )


def cores_per_node(settings: LauncherSettings) -> int:
    """CPUs of the smallest node of the partitions, or of the default one."""
    answer = run_quietly(["sinfo", "-h", "-o", "%P %c"], SUBMIT_S)
    if answer is None or answer.status != 0:
        raise UserError(
            "no Slurm answers here (sinfo is missing, or its controller is not reached): log "
            "in to a cluster's login node, or use another launcher."
        )
    partition = settings.partition or os.environ.get("SBATCH_PARTITION")  # as sbatch takes it
    return smallest_node(parse_node_sizes(answer.out), partition)


def submit(script: Path) -> str:
    """Hand a script to Slurm; return the number of the job."""
    environment = _without_overruling(script.read_text(encoding="utf-8"))
    answer = run_quietly(["sbatch", "--parsable", str(script)], SUBMIT_S, environment)
    if answer is None:
        raise UserError("sbatch is missing here or does not answer; use a cluster's login node.")
    if answer.status != 0:
        raise UserError(f"Slurm refuses the job: {' '.join(answer.err.split())}")
    said = answer.out.split()[-1:]  # a site's own sbatch may greet first
    if not said or not (number := said[0].partition(";")[0]).isdecimal():
        raise UserError(
            f"sbatch told no number of a job (it said {answer.out[-80:]!r}): see with squeue "
            "whether there is one, and cancel it."
        )
    return number


def _without_overruling(script: str) -> dict[str, str]:
    """The variables of this process, but for those that sbatch obeys rather than the script.

    Source: sbatch(1), "INPUT ENVIRONMENT VARIABLES".
    """
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    stated = [name for line in lines for name in re.findall(r"(?<=\s)--([a-z-]+)", line)]
    names = [VARIABLES.get(name, name.replace("-", "_").upper()) for name in (*RESERVED, *stated)]
    unwanted = {f"SBATCH_{name}" for name in names}
    return {name: text for name, text in os.environ.items() if name not in unwanted}


def state(job_id: str) -> str:
    """What a job is doing: `job 12 pending (Resources)`."""
    job = show_job(job_id)
    doing, reason = job.get("JobState", "unknown"), job.get("Reason", "None")
    detail = f" ({reason})" if doing == "PENDING" and reason != "None" else ""
    return f"job {job_id} {doing.lower()}{detail}"


def smallest_node(sizes: dict[str, int], partition: str | None) -> int:
    """The size that a partition has, or the default one; of several, the smallest.

    Args:
        partition: names with commas between them, as sbatch takes them.

    Raises:
        UserError: there is no such partition.
    """
    known = {name.rstrip("*"): size for name, size in sizes.items()}
    default = next((name.rstrip("*") for name in sizes if name.endswith("*")), "")
    wanted = (partition or default).split(",")
    if missing := [name for name in wanted if name not in known]:
        there_is_none = f"there is no partition {', '.join(missing)}"
        problem = there_is_none if partition else "no partition is the default"
        raise UserError(f"{problem}; choose one with --partition: {', '.join(known) or 'none'}.")
    return min(known[name] for name in wanted)


def parse_node_sizes(text: str) -> dict[str, int]:
    """The smallest number of each partition, from lines of `partition cpus`.

    The default partition's name ends in a star, and numbers may end in a plus.
    """
    sizes: dict[str, int] = {}
    for row in (line.split() for line in text.splitlines()):
        if len(row) == 2 and (match := re.match(r"\d+", row[1])):
            sizes[row[0]] = min(int(match[0]), sizes.get(row[0], int(match[0])))
    return sizes
