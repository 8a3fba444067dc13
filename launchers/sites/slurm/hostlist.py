"""Slurm's lists of hosts, and of tasks per host: from text to values and back.  Pure.

Decides which hosts a list names, and in which order: that of `scontrol show hostnames`, never
sorted and with repeats, because SLURM_TASKS_PER_NODE and the ranks of tasks count along it.  It
does not decide whether a host exists or what runs on it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ps_allreduce.errors import UserError

_T = TypeVar("_T")

#: Hosts that a list may name, as many as Slurm allows in one range.
MAX_HOSTS = 65_536

#: Characters of a host name, the bound of the domain name system.
MAX_NAME = 253

#: Digits of a number of tasks, CPUs or hosts.
MAX_DIGITS = 9

#: An entry of a list: what stands between commas and blanks that are outside of brackets.
_ENTRY = re.compile(r"(?:\[[^\]]*+\]?|[^\[, \t]++)++")

_NAME_PIECE = re.compile(r"[A-Za-z0-9._-]+")

_DIGITS = re.compile(r"[0-9]+")

_NAME = re.compile(rf"[A-Za-z0-9._][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}")


def parse_hostlist(text: str) -> tuple[str, ...]:
    """Hosts of a list such as `login,rack[1-2]n[01-03,7]`.

    Entries are separated by commas, blanks or tabs; empty ones are passed over, and an empty
    list has no hosts.  Numbers are padded with zeros to the width of a range's lower bound.  Of
    several brackets the last counts fastest, then the first, the second and so on, as in Slurm:
    of three, the one in the middle counts slowest.

    On purpose this differs from `scontrol show hostnames` (22.05) in what it accepts:

    * text after the last bracket (`n[1-2]-ib`), which Slurm refuses;
    * numbers above 64 bits, which Slurm turns into 18446744073709551615, in names too;

    and in what it refuses, where Slurm goes on with names that nobody meant:

    * characters that no host name has, a dash at its beginning, more than 253 characters;
    * brackets that do not pair (`n[1-3` is the host `n]` for Slurm);
    * ranges without an upper bound (`n[1-]`), and blanks, signs or else within brackets, which
      Slurm counts as digits of the padding (`n[1, 2]` are n1 and n02 for it);
    * more than 65 536 hosts in the whole list, where Slurm bounds each range.

    Raises:
        UserError: the list cannot be read; the text names the character, counted from 1.
    """
    reader = _Reader(what="host list", text=text)
    hosts: list[str] = []
    for match in _ENTRY.finditer(text):
        entry = reader.entry(*match.span())
        if len(hosts) + entry.count > MAX_HOSTS:
            raise reader.error(match.start(), f"expected at most {MAX_HOSTS} hosts in all")
        hosts.extend(entry.hosts())
    return tuple(hosts)


def parse_tasks_per_node(text: str) -> tuple[int, ...]:
    """Number of every host, from a list such as `2(x3),1`, which is (2, 2, 2, 1).

    SLURM_TASKS_PER_NODE and SLURM_JOB_CPUS_PER_NODE are written so, in the order of
    SLURM_JOB_NODELIST.  An empty text is a list of no hosts.

    Raises:
        UserError: the list cannot be read; the text names the character, counted from 1.
    """
    reader = _Reader(what="list of tasks or CPUs per node", text=text)
    numbers: list[int] = []
    while reader.position < len(text):
        if numbers:
            reader.expect(",", repr(","))
        start = reader.position
        number, times = reader.repeated()
        if len(numbers) + times > MAX_HOSTS:
            raise reader.error(start, f"expected at most {MAX_HOSTS} hosts in all")
        numbers.extend([number] * times)
    return tuple(numbers)


def render_hostlist(hosts: Sequence[str]) -> str:
    """The hosts with commas between them, as `--nodelist` takes them; order and repeats stay.

    Raises:
        UserError: there is no host, or a name that no host can have: it could be read as an
            option, a range or a file.
    """
    if not hosts:
        raise UserError("a host list for Slurm cannot be empty; name at least one host.")
    for number, host in enumerate(hosts, start=1):
        if _NAME.fullmatch(host) is None:
            raise UserError(
                f"host {number} of {len(hosts)}, {host!r:.80}, is not a host name: expected 1 to "
                f"{MAX_NAME} letters, digits, '.', '_' or '-', the first of them not '-'."
            )
    return ",".join(hosts)


#: The numbers of a part of a bracket, and to how many digits they are padded.
_Range = tuple[range, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One entry of a host list: a template with `{}` for every bracket, and the brackets."""

    template: str
    brackets: tuple[tuple[_Range, ...], ...]

    @property
    def count(self) -> int:
        # A range has no length that is above 64 bits.
        return math.prod(
            sum(numbers.stop - numbers.start for numbers, _ in each) for each in self.brackets
        )

    @property
    def longest(self) -> int:
        literal = len(self.template) - len("{}") * len(self.brackets)
        return literal + sum(
            max(max(width, len(str(numbers[-1]))) for numbers, width in bracket)
            for bracket in self.brackets
        )

    def hosts(self) -> Iterator[str]:
        words = [
            [f"{number:0{width}d}" for numbers, width in bracket for number in numbers]
            for bracket in self.brackets
        ]
        for choice in itertools.product(*_in_turn(words)):
            yield self.template.format(*_in_turn(choice))


def _in_turn(brackets: Sequence[_T]) -> tuple[_T, ...]:
    """From the order of the text to the order of counting, slowest first; and back again.

    Slurm opens the last bracket before the final one, then the one before that, and so on.
    """
    return (*brackets[-2::-1], *brackets[-1:])


@dataclass(slots=True, kw_only=True)
class _Reader:
    """A text that is read from left to right, and how its mistakes are told."""

    what: str
    text: str
    position: int = 0

    def error(self, index: int, problem: str) -> UserError:
        near = self.text[max(0, index - 20) : index + 20]
        return UserError(f"{self.what}, character {index + 1} (near {near!r}): {problem}.")

    def unexpected(self, expected: str) -> UserError:
        if self.position < len(self.text):
            found = self.text[self.position]
            return self.error(self.position, f"expected {expected}, found {found!r}")
        return self.error(len(self.text) - 1, f"expected {expected} after it, found the end")

    def accept(self, character: str) -> bool:
        """Pass over a character if it stands here."""
        stands = self.text.startswith(character, self.position)
        self.position += stands
        return stands

    def expect(self, character: str, expected: str) -> None:
        if not self.accept(character):
            raise self.unexpected(expected)

    def digits(self, most: int) -> str:
        """The digits that stand here, at least one.

        Only these are made numbers, so their length is bounded before `int` sees them.
        """
        match = _DIGITS.match(self.text, self.position)
        if match is None:
            raise self.unexpected("a digit")
        if len(match[0]) > most:
            raise self.error(self.position, f"expected a number of at most {most} digits")
        self.position = match.end()
        return match[0]

    def repeated(self) -> tuple[int, int]:
        """A number, and for how many hosts it stands."""
        number, times = int(self.digits(MAX_DIGITS)), 1
        if self.accept("("):
            self.expect("x", repr("x"))
            begin = self.position
            times = int(self.digits(MAX_DIGITS))
            if times == 0:
                raise self.error(begin, "expected at least one host")
            self.expect(")", repr(")"))
        return number, times

    def entry(self, start: int, end: int) -> _Entry:
        template: list[str] = []
        brackets: list[tuple[_Range, ...]] = []
        self.position = start
        if self.text[start] == "-":
            raise self.unexpected("a letter, a digit, '.', '_' or '['")
        while self.position < end:
            if piece := _NAME_PIECE.match(self.text, self.position):
                template.append(piece[0])
                self.position = piece.end()
            else:
                template.append("{}")
                brackets.append(tuple(self.bracket(end)))
        entry = _Entry(template="".join(template), brackets=tuple(brackets))
        if entry.longest > MAX_NAME:
            raise self.error(start, f"expected a host name of at most {MAX_NAME} characters")
        return entry

    def bracket(self, end: int) -> Iterator[_Range]:
        opened = self.position
        self.expect("[", "a letter, a digit, '.', '_', '-', '[' or ','")
        if "]" not in self.text[opened:end]:
            raise self.error(opened, "expected a ']' for the '[' that stands here")
        while True:
            low = high = self.digits(MAX_NAME)
            if self.accept("-"):
                begin = self.position
                high = self.digits(MAX_NAME)
                if int(high) < int(low):
                    raise self.error(begin, "expected no less than the number before it")
            yield range(int(low), int(high) + 1), len(low)
            if self.accept("]"):
                return
            self.expect(",", "',' or ']'")
