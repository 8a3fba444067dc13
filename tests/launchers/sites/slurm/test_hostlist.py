"""Lists of hosts as Slurm writes them, held against the real `scontrol` where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import assume, example, given, settings
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

ACCEPTED = [
    ("n1", "n1"),
    ("", ""),
    ("n[1-3,7]", "n1 n2 n3 n7"),
    ("n[8-11]", "n8 n9 n10 n11"),
    ("n[08-11]", "n08 n09 n10 n11"),
    ("n[099-101]", "n099 n100 n101"),
    ("n[1-02]", "n1 n2"),
    ("n[01-2,1-2]", "n01 n02 n1 n2"),
    ("n[00]", "n00"),
    ("n0[9-10]", "n09 n010"),
    ("n[7,3,5]", "n7 n3 n5"),
    ("n10,n9", "n10 n9"),
    ("b,a,b", "b a b"),
    ("n[1-2],n[2-3]", "n1 n2 n2 n3"),
    ("rack[1-2]n[01-03]", "rack1n01 rack1n02 rack1n03 rack2n01 rack2n02 rack2n03"),
    ("n[1,3]m[4,2]", "n1m4 n1m2 n3m4 n3m2"),
    ("[1-2][3-4]", "13 14 23 24"),
    ("a[1-2]b[3-4]c[5-6]", "a1b3c5 a1b3c6 a2b3c5 a2b3c6 a1b4c5 a1b4c6 a2b4c5 a2b4c6"),
    ("login,n[1-2],gpu-a[1-2],n1.example.com", "login n1 n2 gpu-a1 gpu-a2 n1.example.com"),
    ("_n,n-,n--1", "_n n- n--1"),
    ("a,,b,", "a b"),
    (" a b\tc, d ", "a b c d"),
    ("n[9999999999-10000000000]", "n9999999999 n10000000000"),
]

#: What scontrol 22.05 refuses, or gets wrong.
BEYOND_SLURM = [
    ("n[1-2]-ib", "n1-ib n2-ib"),
    ("r[1-2]n[1-2].local,m", "r1n1.local r1n2.local r2n1.local r2n2.local m"),
    ("n[18446744073709551615-18446744073709551616]", "n18446744073709551615 n18446744073709551616"),
    ("n18446744073709551616", "n18446744073709551616"),
]

REFUSED = [
    ("n[]", 3, "expected a digit, found ']'"),
    ("n[,]", 3, "expected a digit, found ','"),
    ("n[1,]", 5, "expected a digit, found ']'"),
    ("n[1,,2]", 5, "expected a digit, found ','"),
    ("n[-1]", 3, "expected a digit, found '-'"),
    ("n[1-]", 5, "expected a digit, found ']'"),
    ("n[1--2]", 5, "expected a digit, found '-'"),
    ("n[1-2-3]", 6, "expected ',' or ']', found '-'"),
    ("m,n[3-1]", 7, "expected no less than the number before it"),
    ("n[10-9]", 6, "expected no less than the number before it"),
    ("n[a-c]", 3, "expected a digit, found 'a'"),
    ("n[1x3]", 4, "expected ',' or ']', found 'x'"),
    ("n[1-5/2]", 6, "expected ',' or ']', found '/'"),
    ("n[1, 2]", 5, "expected a digit, found ' '"),
    ("n[+1]", 3, "expected a digit, found '+'"),
    ("n[1_0]", 4, "expected ',' or ']', found '_'"),
    ("n[\u0661]", 3, "expected a digit, found '\u0661'"),
    ("n[1-3", 2, "expected a ']' for the '['"),
    ("n[1-3,m[4-5]", 7, "expected a digit, found 'm'"),
    ("n[1-3,m2", 2, "expected a ']' for the '['"),
    ("n[1][", 5, "expected a ']' for the '['"),
    ("n1-3]", 5, "found ']'"),
    ("n[1-3]]", 7, "found ']'"),
    ("n[[1-3]]", 3, "expected a digit, found '['"),
    ("a,-x", 3, "expected a letter, a digit, '.', '_' or '[', found '-'"),
    ("-[1-2]", 1, "found '-'"),
    ("a\n", 2, "found '\\n'"),
    ("a;b", 2, "found ';'"),
    ("a/b", 2, "found '/'"),
    ("a*2", 2, "found '*'"),
    ("n{}[1-2]", 2, "found '{'"),
    ("\xe9", 1, "found '\xe9'"),
    ("\udcff", 1, "found '\\udcff'"),
    ("n\x00", 2, "found '\\x00'"),
    ("n[0-99999999]", 1, "expected at most 65536 hosts in all"),
    ("n[1-" + "9" * 20 + "]", 1, "expected at most 65536 hosts in all"),
    ("m,n[1-65536]", 3, "expected at most 65536 hosts in all"),
    ("r[1-257]n[1-256]", 1, "expected at most 65536 hosts in all"),
    ("[1-99999]" * 20, 1, "expected at most 65536 hosts in all"),
    ("m," + "a" * 254, 3, "expected a host name of at most 253 characters"),
    ("a" * 250 + "[1-9999]", 1, "expected a host name of at most 253 characters"),
    ("n[" + "9" * 5000 + "]", 3, "expected a number of at most 253 digits"),
]


@pytest.mark.parametrize(("text", "hosts"), [*ACCEPTED, *BEYOND_SLURM])
def test_a_list_names_its_hosts_in_order(text: str, hosts: str) -> None:
    assert parse_hostlist(text) == tuple(hosts.split())


@pytest.mark.parametrize(("text", "position", "problem"), REFUSED)
def test_a_broken_list_is_refused_with_the_position(text: str, position: int, problem: str) -> None:
    message = refusal(parse_hostlist, text)
    assert message.startswith(f"host list, character {position} (near ")
    assert problem in message


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


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2(x3),1", (2, 2, 2, 1)),
        ("72(x2),36", (72, 72, 36)),
        ("1", (1,)),
        ("4,4,2(x1)", (4, 4, 2)),
        ("0", (0,)),
        ("", ()),
        (f"1(x{MAX_HOSTS})", (1,) * MAX_HOSTS),
    ],
)
def test_tasks_per_node_are_one_number_per_host(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_tasks_per_node(text) == numbers


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("2(x3", 4, "expected ')' after it, found the end"),
        ("2(x", 3, "expected a digit after it, found the end"),
        ("2(", 2, "expected 'x' after it, found the end"),
        ("2,", 2, "expected a digit after it, found the end"),
        (",2", 1, "expected a digit, found ','"),
        ("2,,2", 3, "expected a digit, found ','"),
        ("2(y3)", 3, "expected 'x', found 'y'"),
        ("2(x0)", 4, "expected at least one host"),
        ("2(x-1)", 4, "expected a digit, found '-'"),
        ("2(x3)1", 6, "expected ',', found '1'"),
        ("2x3", 2, "expected ',', found 'x'"),
        ("-1", 1, "expected a digit, found '-'"),
        ("2, 1", 3, "expected a digit, found ' '"),
        ("2\n", 2, "expected ',', found '\\n'"),
        ("\xb2", 1, "expected a digit, found '\xb2'"),
        ("1(x65536),1", 11, "expected at most 65536 hosts in all"),
        ("1(x999999999)", 1, "expected at most 65536 hosts in all"),
        ("1(x9999999999)", 4, "expected a number of at most 9 digits"),
        ("9" * 5000, 1, "expected a number of at most 9 digits"),
    ],
)
def test_broken_tasks_per_node_are_refused_with_the_position(
    text: str, position: int, problem: str
) -> None:
    message = refusal(parse_tasks_per_node, text)
    assert message.startswith(f"list of tasks or CPUs per node, character {position} (near ")
    assert problem in message


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


# ---- the oracle

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


@pytest.mark.parametrize(("text", "hosts"), ACCEPTED)
def test_scontrol_agrees_on_the_examples(scontrol: Scontrol, text: str, hosts: str) -> None:
    assert scontrol(text) == hosts.split()


@pytest.mark.parametrize("text", [text for text, _ in BEYOND_SLURM])
def test_scontrol_still_differs_where_we_say_so(scontrol: Scontrol, text: str) -> None:
    assert scontrol(text) != list(parse_hostlist(text))


@given(pair=lists_of(entries(suffixes=[""])))
def test_scontrol_agrees_on_lists(scontrol: Scontrol, pair: tuple[str, list[str]]) -> None:
    text, hosts = pair
    assert scontrol(text) == hosts


def has_suffix(text: str) -> bool:
    return re.search(r"\][^][, \t]+(?:[, \t]|$)", text) is not None


def is_nothing_that_anybody_meant(text: str, hosts: list[str]) -> bool:
    """What scontrol expands although it is no name, no pair of brackets, no range or too much."""
    is_name = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")
    return (
        any(is_name.fullmatch(host) is None for host in hosts)
        or text.count("[") != text.count("]")
        or re.search(r"\[[^]]*(?:[^]0-9,-]|-[],])", text) is not None
        or len(hosts) > MAX_HOSTS
    )


def can_be_asked(text: str) -> bool:
    """No option, no number of more than 64 bits, no range that scontrol would be slow with."""
    ranges = re.findall(r"(?<![0-9])(?=([0-9]+)[^0-9]*-[^0-9]*([0-9]+))", text)
    return (
        not text.startswith("-")
        and re.search("[0-9]{19}", text) is None
        and all(int(high) - int(low) <= 200 for low, high in ranges)
    )


@settings(max_examples=300)
@given(text=near_lists())
@example(text="n[1-2]x")
@example(text="n[1-]")
@example(text="n[1;-2]")
@example(text="[1")
def test_scontrol_differs_only_where_we_say_so(scontrol: Scontrol, text: str) -> None:
    assume(can_be_asked(text))
    theirs = scontrol(text)
    try:
        ours = list(parse_hostlist(text))
    except UserError:
        assert theirs is None or is_nothing_that_anybody_meant(text, theirs)
    else:
        assert theirs == (None if has_suffix(text) else ours)
