"""Lists of hosts as Slurm writes them, held against the real `scontrol` where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.sites.slurm.hostlist import (
    MAX_HOSTS,
    MAX_NAME,
    parse_hostlist,
    parse_tasks_per_node,
    render_hostlist,
)
from ps_allreduce.errors import UserError
from tests.conftest import skip_or_fail

# ---- examples


def test_a_long_list_is_shown_around_its_mistake() -> None:
    message = refusal(parse_hostlist, "n1," * 1000 + "n[2-1]," + "n2," * 1000)
    assert message == (
        "host list, character 3005 (near ',n1,n1,n1,n1,n1,n[2-1],n2,n2,n2,n2,n2,n2'): "
        "expected no less than the number before it."
    )


def test_as_many_hosts_are_read_as_the_bound_allows() -> None:
    assert len(parse_hostlist(f"r[1-256]n[1-{MAX_HOSTS // 256}]")) == MAX_HOSTS
    assert len(parse_hostlist(",".join(["n"] * MAX_HOSTS))) == MAX_HOSTS
    assert parse_hostlist("a" * MAX_NAME) == ("a" * MAX_NAME,)
    assert parse_tasks_per_node(f"1(x{MAX_HOSTS})") == (1,) * MAX_HOSTS


def test_hosts_are_rendered_as_they_stand() -> None:
    assert render_hostlist(["n10", "n9", "n10", "gpu-a_1.local"]) == "n10,n9,n10,gpu-a_1.local"
    with pytest.raises(UserError, match="name at least one host"):
        render_hostlist([])


@pytest.mark.parametrize(
    "name",
    ["", "-w", "--uid=0", "a b", "a,b", "n[1-2]", "a\n", "a/b", "a*2", "\xe9", "\u0661", "a" * 254],
)
def test_what_is_no_host_name_is_not_rendered(name: str) -> None:
    with pytest.raises(UserError, match=r"^host 2 of 2, .* is not a host name: expected 1 to 253"):
        render_hostlist(["good", name])


# ---- properties

names = st.from_regex(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,12}", fullmatch=True)

near_tasks = st.text("0129(x),", max_size=16)


@dataclass(frozen=True, slots=True)
class Bracket:
    """Text of a bracket, and what it stands for."""

    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A prefix and a bracket, again and again, and what stands behind the last."""

    pairs: tuple[tuple[str, Bracket], ...]
    suffix: str

    @property
    def text(self) -> str:
        return "".join(f"{prefix}[{bracket.text}]" for prefix, bracket in self.pairs) + self.suffix

    @property
    def hosts(self) -> list[str]:
        """Slurm's way: fill the last bracket but one, begin again, and in the end fill the last."""
        if not self.pairs:
            return [self.suffix]
        *early, (prefix, last) = self.pairs
        starts = [""]
        for text, bracket in early:
            starts = [start + text + word for word in bracket.words for start in starts]
        return [start + prefix + word + self.suffix for start in starts for word in last.words]


@st.composite
def brackets(draw: st.DrawFn) -> Bracket:
    texts: list[str] = []
    words: list[str] = []
    for _ in range(draw(st.integers(1, 2))):
        low = draw(st.integers(0, 10**6) | st.integers(0, 120))
        high = low + draw(st.integers(0, 2))
        written = str(low).rjust(draw(st.integers(0, 4)), "0")
        single = low == high and draw(st.booleans())
        texts.append(written if single else f"{written}-{high}")
        words.extend(str(number).rjust(len(written), "0") for number in range(low, high + 1))
    return Bracket(",".join(texts), tuple(words))


@st.composite
def entries(draw: st.DrawFn, *, suffixes: list[str], most_brackets: int = 4) -> Entry:
    number = draw(st.integers(0, most_brackets))
    if number == 0:
        return Entry((), draw(names))
    first = (draw(names | st.just("")), draw(brackets()))
    between = st.sampled_from(["", "n", "-", "n-0", "."])
    later = [(draw(between), draw(brackets())) for _ in range(number - 1)]
    return Entry((first, *later), draw(st.sampled_from(suffixes)))


def lists_of(
    entry: st.SearchStrategy[Entry], max_size: int = 8
) -> st.SearchStrategy[tuple[str, list[str]]]:
    """Texts with the hosts that they name."""
    separators = st.sampled_from([",", ",,", ", ", " ", "\t"])

    def join(found: list[Entry], separator: str) -> tuple[str, list[str]]:
        text = separator.join(part.text for part in found)
        return text, [host for part in found for host in part.hosts]

    return st.builds(join, st.lists(entry, max_size=max_size), separators)


@st.composite
def near_lists(draw: st.DrawFn) -> str:
    """A list with a few characters put in the place of others: every branch of a reader is met."""
    text, _ = draw(lists_of(entries(suffixes=["", "-ib"], most_brackets=2), max_size=2))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.integers(0, 2))
        text = text[:start] + draw(st.text("n019[]-,+x ;", max_size=2)) + text[end:]
    return text


@given(lists_of(entries(suffixes=["", "-ib", "x", ".a.b", "0"])))
def test_what_was_written_is_read(pair: tuple[str, list[str]]) -> None:
    text, hosts = pair
    assert list(parse_hostlist(text)) == hosts


@given(st.lists(names, min_size=1, max_size=20))
def test_what_was_rendered_is_read(hosts: list[str]) -> None:
    assert parse_hostlist(render_hostlist(hosts)) == tuple(hosts)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 50)), max_size=20))
def test_tasks_that_were_written_are_read(groups: list[tuple[int, int]]) -> None:
    text = ",".join(f"{number}(x{times})" if times > 1 else f"{number}" for number, times in groups)
    expected = [number for number, times in groups for _ in range(times)]
    assert list(parse_tasks_per_node(text)) == expected


@given(st.text() | near_lists())
def test_any_text_is_a_list_of_names_or_refused(text: str) -> None:
    hosts = read_or_check_refusal(parse_hostlist, text)
    if hosts:
        assert parse_hostlist(render_hostlist([str(host) for host in hosts])) == hosts


@given(st.text() | near_tasks)
def test_any_text_is_a_list_of_numbers_or_refused(text: str) -> None:
    read_or_check_refusal(parse_tasks_per_node, text)


@given(st.lists(st.text() | names, max_size=3))
def test_any_names_are_rendered_safely_or_refused(hosts: list[str]) -> None:
    try:
        text = render_hostlist(hosts)
    except UserError as error:
        text = str(error)
        assert text.endswith(".")
    else:
        assert re.fullmatch(r"[A-Za-z0-9._][A-Za-z0-9._,-]*", text)
    assert len(text.splitlines()) == 1


def refusal(parse: Callable[[str], object], text: str) -> str:
    with pytest.raises(UserError) as caught:
        parse(text)
    return str(caught.value)


def read_or_check_refusal(
    parse: Callable[[str], tuple[object, ...]], text: str
) -> tuple[object, ...]:
    """What was read; nothing if it was refused in one line with a position inside the text."""
    try:
        return parse(text)
    except UserError as error:
        message = str(error)
    position = re.match(r"[a-zA-Z ]+, character (\d+) \(near ", message)
    assert position is not None
    assert 1 <= int(position[1]) <= len(text)
    assert message.endswith(".")
    assert len(message.splitlines()) == 1
    return ()


# ---- the oracle: `make test-slurm` asks it

Scontrol = Callable[[str], list[str] | None]


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> Scontrol:
    """What the real program makes of a list; None if it refuses."""
    program = shutil.which("scontrol")
    if program is None:
        skip_or_fail("scontrol (Slurm) is not installed")
    configuration = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    configuration.write_text("ClusterName=test\nSlurmctldHost=localhost\n", encoding="ascii")

    def expand(text: str) -> list[str] | None:
        done = subprocess.run(
            [str(program), "show", "hostnames", text],
            env={"SLURM_CONF": str(configuration), "PATH": os.defpath},
            capture_output=True,
            check=False,
            encoding="utf-8",
            timeout=30,
        )
        return None if done.stderr else done.stdout.split("\n")[:-1]

    return expand


@pytest.mark.slurm
@given(pair=lists_of(entries(suffixes=[""])))
def test_scontrol_agrees_on_lists(scontrol: Scontrol, pair: tuple[str, list[str]]) -> None:
    text, hosts = pair
    assert scontrol(text) == hosts
