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

_PIECE = re.compile(r"[A-Za-z0-9._-]+|\[(?P<ranges>[^\]]*)\]")

_DIGITS = re.compile(r"[0-9]*")

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
    source = _Source(what="host list", text=text)
    hosts: list[str] = []
    for match in _ENTRY.finditer(text):
        entry = _read_entry(source, *match.span())
        if len(hosts) + entry.count > MAX_HOSTS:
            raise source.error(match.start(), f"expected at most {MAX_HOSTS} hosts in all")
        hosts.extend(entry.hosts())
    return tuple(hosts)


def parse_tasks_per_node(text: str) -> tuple[int, ...]:
    """Number of every host, from a list such as `2(x3),1`, which is (2, 2, 2, 1).

    SLURM_TASKS_PER_NODE and SLURM_JOB_CPUS_PER_NODE are written so, in the order of
    SLURM_JOB_NODELIST.  An empty text is a list of no hosts.

    Raises:
        UserError: the list cannot be read; the text names the character, counted from 1.
    """
    source = _Source(what="list of tasks or CPUs per node", text=text)
    numbers: list[int] = []
    position = 0
    while text:
        number, times, end = _read_repeated(source, position)
        if len(numbers) + times > MAX_HOSTS:
            raise source.error(position, f"expected at most {MAX_HOSTS} hosts in all")
        numbers.extend([number] * times)
        if end == len(text):
            break
        position = source.skip(end, ",")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A text that is read, and how its mistakes are told."""

    what: str
    text: str

    def error(self, index: int, problem: str) -> UserError:
        near = self.text[max(0, index - 20) : index + 20]
        return UserError(f"{self.what}, character {index + 1} (near {near!r}): {problem}.")

    def unexpected(self, index: int, expected: str) -> UserError:
        if index < len(self.text):
            return self.error(index, f"expected {expected}, found {self.text[index]!r}")
        return self.error(len(self.text) - 1, f"expected {expected} after it, found the end")

    def skip(self, index: int, character: str) -> int:
        """The index behind a character that has to stand here."""
        if not self.text.startswith(character, index):
            raise self.unexpected(index, repr(character))
        return index + 1

    def digits(self, index: int, most: int) -> str:
        """The digits that stand here, at least one.

        Only these are made numbers, so their length is bounded before `int` sees them.
        """
        match = _DIGITS.match(self.text, index)
        digits = match[0] if match else ""
        if not digits:
            raise self.unexpected(index, "a digit")
        if len(digits) > most:
            raise self.error(index, f"expected a number of at most {most} digits")
        return digits


#: The numbers of a part of a bracket, and to how many digits they are padded.
_Range = tuple[range, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One entry of a host list: a template with `{}` for every bracket, and the brackets."""

    template: str
    brackets: tuple[tuple[_Range, ...], ...]

    @property
    def count(self) -> int:
        return math.prod(sum(len(numbers) for numbers, _ in each) for each in self.brackets)

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


def _read_entry(source: _Source, start: int, end: int) -> _Entry:
    if source.text[start] == "-":
        raise source.unexpected(start, "a letter, a digit, '.', '_' or '['")
    template: list[str] = []
    brackets: list[tuple[_Range, ...]] = []
    for piece in _pieces(source, start, end):
        if piece["ranges"] is None:
            template.append(piece[0])
        else:
            template.append("{}")
            brackets.append(tuple(_read_ranges(source, *piece.span("ranges"))))
    entry = _Entry(template="".join(template), brackets=tuple(brackets))
    if entry.longest > MAX_NAME:
        raise source.error(start, f"expected a host name of at most {MAX_NAME} characters")
    return entry


def _pieces(source: _Source, start: int, end: int) -> Iterator[re.Match[str]]:
    """The brackets of an entry, and the texts between them."""
    while start < end:
        piece = _PIECE.match(source.text, start, end)
        if piece is None and source.text[start] == "[":
            raise source.error(start, "expected a ']' for the '[' that stands here")
        if piece is None:
            raise source.unexpected(start, "a letter, a digit, '.', '_', '-', '[' or ','")
        yield piece
        start = piece.end()


def _read_ranges(source: _Source, start: int, end: int) -> Iterator[_Range]:
    """What a bracket holds; `end` is the index of the one that closes it."""
    while True:
        low = high = source.digits(start, MAX_NAME)
        start += len(low)
        if source.text[start] == "-":
            high = source.digits(start + 1, MAX_NAME)
            if int(high) < int(low):
                raise source.error(start + 1, "expected no less than the number before it")
            start += 1 + len(high)
        yield range(int(low), int(high) + 1), len(low)
        if start == end:
            return
        if source.text[start] != ",":
            raise source.unexpected(start, "',' or ']'")
        start += 1


def _read_repeated(source: _Source, start: int) -> tuple[int, int, int]:
    """A number, for how many hosts it stands, and the index behind both."""
    number = source.digits(start, MAX_DIGITS)
    end = start + len(number)
    if source.text[end : end + 1] != "(":
        return int(number), 1, end
    begin = source.skip(end + 1, "x")
    times = source.digits(begin, MAX_DIGITS)
    if int(times) == 0:
        raise source.error(begin, "expected at least one host")
    return int(number), int(times), source.skip(begin + len(times), ")")
