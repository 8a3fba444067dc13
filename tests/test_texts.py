"""What texts of people, schedulers and TensorFlow are read as: a golden holds value or refusal."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest

from experiments.models.model_text import model_code, parse_argument
from launchers.cli.types import (
    COUNTS,
    DELAY,
    INTERFACE,
    MINUTES,
    RATE,
    SIZE,
    TRAFFIC,
    WHOLE,
    WORDS,
)
from launchers.sites.emulated.held_network import explain_refusal
from launchers.sites.slurm.allocation import owns_nodes, read_allocation
from launchers.sites.slurm.hostlist import MAX_HOSTS, parse_hostlist, parse_tasks_per_node
from launchers.sites.slurm.slurm_scheduler import explain_state
from launchers.sites.ssh.hostfile import parse_host_file
from ps_allreduce.cluster import TaskId, TfConfig
from ps_allreduce.errors import UserError
from ps_allreduce.fork_server.child import explain_out_of_memory
from ps_allreduce.tf_texts import essence
from tests.goldens import golden
from tests.launchers.sites.slurm.test_jobs import ALLOCATED

#: A line for each text: what it is to be, the text in JSON, and what comes of it.  A new one is
#: written there without the last.
TEXTS = "sentences/texts.txt"


def third_line(text: str) -> object:
    """Of a host file; the first one names n8, and its address."""
    *_, last = parse_host_file(f"n8 10.0.0.8\n\n{text}\n", "my/hosts")
    return last


def pairs(text: str) -> dict[str, str]:
    """Names and values, as Slurm and the kernel tell them."""
    return dict(each.split("=", 1) for each in shlex.split(text))


def are_its_own(text: str) -> str:
    """Of a job with 8 CPUs of n9, or as many as it says, and hosts of which nothing is known."""
    told = pairs(text)
    granted = {"n9": int(told.pop("n9", "8")), **{name: 8 for name in told if name == "n10"}}
    return "its own" if owns_nodes(told, granted, {"n9": 8}) else "shared"


READERS: Mapping[str, Callable[[str], object]] = {
    "host list": parse_hostlist,
    "tasks per node": parse_tasks_per_node,
    "line of a host file": third_line,
    "minutes": MINUTES,
    "size": SIZE,
    "whole number": WHOLE,
    "interface": INTERFACE,
    "counts": COUNTS,
    "rate": RATE,
    "delay": DELAY,
    "words": WORDS,
    "traffic": TRAFFIC,
    "model": lambda text: model_code(text, Path("/home/ann")).name,
    "argument of a model": parse_argument,
    "task": TaskId.parse,
    "job of slurm": lambda text: read_allocation(ALLOCATED | pairs(text))[0].job_id,
    "nodes of a job": are_its_own,
    "end of a job": lambda text: explain_state("12", pairs(text)),
    "no namespaces": lambda text: explain_refusal("Operation not permitted", pairs(text)),
    "want of memory": lambda text: explain_out_of_memory(text, "chief:0"),
    "error of tensorflow": essence,
    "tf config": lambda text: TfConfig.parse(text).task,
}


def said_of(kind: str, text: str) -> str:
    try:
        value = READERS[kind](text)
    except (UserError, click.BadParameter) as error:
        return f"Error: {error}"
    return json.dumps(value) if isinstance(value, tuple) else str(value)


def test_texts_are_read_or_refused_in_a_sentence() -> None:
    held = (golden.FILES / TEXTS).read_text(encoding="utf-8")
    texts = re.findall(r'^([a-z ]+) ("(?:[^"\\]|\\.)*")', held, re.MULTILINE)
    assert {kind for kind, _ in texts} == set(READERS)
    lines = [f"{kind} {text} -> {said_of(kind, json.loads(text))}\n" for kind, text in texts]
    golden.check({TEXTS: "".join(lines)})


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("host list", "[1-99999]" * 20, f"expected at most {MAX_HOSTS} hosts in all"),
        ("host list", "m," + "a" * 254, "character 3 (near 'm,aaaa"),
        ("host list", "a" * 250 + "[1-9999]", "expected a host name of at most 253 characters"),
        ("host list", "n[" + "9" * 5000 + "]", "expected a number of at most 253 digits"),
        ("tasks per node", "9" * 5000, "expected a number of at most 9 digits"),
        ("size", "9" * 400 + "GB", "is no size"),
        ("counts", "9" * 5000, "is no list"),
        ("minutes", "9" * 5000, "is no time"),
    ],
)
def test_texts_without_end_are_refused(kind: str, text: str, told: str) -> None:
    assert told in said_of(kind, text)
