"""The table that people read, and the line that they paste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from launchers.doctor.check_findings import (
    Finding,
    Findings,
    Level,
    coloured,
    failure,
    has_failed,
    leave_out,
    ok,
    render,
    some,
    warning,
)
from launchers.sites.slurm.batch_script import exclude_text
from ps_allreduce.terminal import Terminal
from tests.cluster import Cluster
from tests.goldens import golden

FOUND = {
    "ports": [ok("every host reaches the others")],
    "memory": [warning("n9: only 3.0 GiB free", "end what else runs there")],
    "links": [
        failure("n1 is slow", "leave it out", leave_out=["n1"]),
        failure("n10 is slow", "leave it out", leave_out=["n10", "n1"]),
    ],
    "clocks": [],
}


def avoid(hosts: Sequence[str]) -> str:
    return f"leave out: {', '.join(hosts)}"


def shown(by_check: Mapping[str, Findings], num_hosts: int = 3) -> str:
    return render(by_check, num_hosts=num_hosts, seconds=31.4, avoid=avoid, width=60)


def test_how_to_avoid_hosts_is_told_in_words_or_as_something_to_paste() -> None:
    assert Cluster({}).avoid(["n1", "n10"]) == "Better without: n1 n10"
    assert exclude_text(["n1", "n10"]).splitlines() == [
        "For salloc and sbatch, or in ARGS as --sbatch=--exclude=n1,n10:",
        "--exclude=n1,n10",
    ]


LONG = {
    "ports": [failure("word " * 30, "do " * 30)],
    "folders": [ok(f"in /scratch/{'long-' * 20}")],
}


def test_a_table_is_grouped_by_check_and_breaks_long_lines_but_no_path() -> None:
    golden.check({"sentences/findings.txt": f"{shown(FOUND)}\n\n{shown(LONG, 1)}\n"})


def test_failures_decide() -> None:
    assert has_failed(FOUND)
    assert not has_failed({"memory": FOUND["memory"], "ports": FOUND["ports"]})
    assert leave_out(FOUND) == ["n1", "n10"]


def test_of_many_names_the_first_are_told() -> None:
    assert some(f"n{number}" for number in range(6)) == "n0, n1, n2, n3, n4, n5"
    assert some(f"n{number}" for number in range(8)) == "n0, n1, n2, n3, n4 and 3 more"


@pytest.mark.parametrize("level", [Level.WARNING, Level.FAILURE])
def test_nothing_is_reported_without_saying_what_to_do(level: Level) -> None:
    with pytest.raises(ValueError, match="what to do"):
        Finding(level=level, text="it is broken")


def test_on_a_terminal_levels_have_colours_and_nothing_else_has() -> None:
    hostile = {"links": [failure("n1\x1b[2J is slow", "leave it out")], "clocks": [ok("even")]}
    console = Terminal(force_terminal=True, color_system="standard", soft_wrap=True)
    with console.capture() as told:
        console.print(coloured(shown(hostile)))
    first, _, second, *_ = told.get().splitlines()
    assert first == r"links   " + "\x1b[31mFAILURE  \x1b[0m" + r"n1\x1b[2J is slow"
    assert second == "clocks  \x1b[32mok       \x1b[0meven"
