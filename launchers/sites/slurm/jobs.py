"""What Slurm says about its jobs.

Decides how a job's state becomes a sentence.  Where Slurm's commands are missing or do not answer,
nothing is known, which is no error here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from launchers.fork_servers.client import last_lines
from launchers.processes import run_quietly

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

Fields = Mapping[str, str]


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
    answer = run_quietly(["scontrol", "-o", "show", "job", job_id], ANSWER_S)
    if answer is None or answer.status != 0:
        return {}
    return parse_job(answer.out.splitlines()[0] if answer.out else "")


def job_is_over(job_id: str) -> bool:
    """The controller knows the job no more, or knows that it has ended."""
    answer = run_quietly(["scontrol", "-o", "show", "job", job_id], ANSWER_S)
    if answer is None:
        return False
    if answer.status != 0:
        return "Invalid job id" in answer.err
    return parse_job(answer.out).get("JobState", "") not in LIVING


def explain_job(job_id: str) -> str:
    """Why a job ended, or is ending, in the scheduler's words; empty if it is not."""
    job = show_job(job_id) or _from_accounting(job_id)
    said = explain(job_id, job)
    if not said and job.get("StdErr"):
        # While a job is being ended the controller says COMPLETING and no more.
        said = explain_from_log(job_id, last_lines(Path(job["StdErr"]), LOG_LINES))
    return said


def explain(job_id: str, job: Fields) -> str:
    """`job 12 reached its time limit (TIMEOUT, reason TimeLimit)`; empty for one that is well."""
    state = job.get("JobState", "").split()[0] if job.get("JobState") else ""
    if state not in MEANING:
        return ""
    reason = job.get("Reason", "None")
    detail = f"{state}, reason {reason}" if reason not in ("None", "") else state
    return f"job {job_id} {MEANING[state]} ({detail})"


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
    answer = run_quietly(["scontrol", "-o", "show", "node", ",".join(hosts)], ANSWER_S)
    if answer is None or answer.status != 0:
        return ""
    nodes = [parse_job(line) for line in answer.out.splitlines() if line]
    sick = [
        f"node {node.get('NodeName')} is {node.get('State')}"
        for node in nodes
        if any(word in node.get("State", "") for word in ("DOWN", "FAIL", "*", "NOT_RESPONDING"))
    ]
    return ", ".join(sick)


def _from_accounting(job_id: str) -> dict[str, str]:
    """The state of a job that the controller has forgotten; nothing without accounting."""
    words = ["sacct", "-n", "-X", "-P", "-o", "State", "-j", job_id]
    answer = run_quietly(words, ANSWER_S)
    if answer is None or answer.status != 0 or not answer.out.strip():
        return {}
    return {"JobState": answer.out.split()[0]}
