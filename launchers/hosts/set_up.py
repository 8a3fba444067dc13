"""All hosts of a file made ready, at the same time.

Decides that every host is looked at first, that one which fails stops nobody else, and that hosts
with one folder take turns: whoever comes later is looked at again, and finds most of it done.
Decides also how long a host may be silent, and that a command which is given up ends there, too.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psutil

from launchers.hosts.goal import Goal
from launchers.hosts.needs import (
    FilesThere,
    FoundThere,
    Step,
    copy_command,
    copy_wheels_command,
    explain_failure,
    groups_of,
    look_command,
    parse_found,
    set_up_command,
    steps_for,
)
from launchers.processes import start_with_input
from launchers.sites.ssh.command_line import REACHED, ssh_command
from launchers.sites.ssh.hostfile import SshHost
from ps_allreduce.errors import HostFault, LaunchError, SuiteError

#: Until the shell of a host says that it is there.
ANSWER_DEADLINE_S = 15.0

#: Without a sign of life from a command that works.
SILENCE_S = 600.0

POLL_S = 0.1

#: Of tar, where a file is gone or changes meanwhile, as those of editors.  Source: tar(1).
VANISHED = 1


class HostCall:
    """A command on a host while it runs.

    Args:
        command: for the shell there.
        log: what is said is appended.
        stop: set when everybody is to end.
        source: the command here whose output is its input; none: its input stays open and empty.
    """

    def __init__(
        self, host: SshHost, command: str, log: Path, stop: Event, source: Sequence[str]
    ) -> None:
        self._host = host
        self._log = log
        self._stop = stop
        self._begin = log.stat().st_size if log.exists() else 0
        self._seen = (0, 0)
        self._answered = False
        self._started = self._moved = time.monotonic()
        self._words = source
        words = ssh_command(host, command)
        self._program, self._source = start_with_input(words, log, os.environ, source)

    def status(self) -> int:
        """Wait for the end of the command: the status that ssh ends with.

        Raises:
            HostFault: the host does not answer or is silent for too long, or the source failed.
            LaunchError: everybody is to end.
        """
        while (status := self._program.status(within_s=POLL_S)) is None:
            self._look_after()
        failed = 0 if status or self._source is None else self._source.process.wait()
        if failed not in (0, VANISHED):
            raise HostFault(
                f"what {self._host.name} is to get cannot be read: '{shlex.join(self._words)}' "
                f"ended with status {failed} here."
            )
        return status

    def said(self) -> str:
        """What ssh and the command have said."""
        with self._log.open("rb") as stream:
            stream.seek(self._begin)
            return stream.read().decode(errors="replace")

    def end(self) -> None:
        """Cut the line if it is still there; what runs at its other end ends as well."""
        if self._source is not None and self._source.status() is None:
            self._source.kill()
        self._program.end()

    def _look_after(self) -> None:
        if self._stop.is_set():
            raise LaunchError(f"the work on {self._host.name} was given up.")
        now, seen = time.monotonic(), (self._log.stat().st_size, self._num_sent())
        if seen != self._seen:
            self._seen, self._moved = seen, now
        self._answered = self._answered or REACHED in self.said()
        if now - self._started > ANSWER_DEADLINE_S and not self._answered:
            raise HostFault(
                f"{self._host.name} does not answer within {ANSWER_DEADLINE_S:g} s: see that "
                f"'ssh {self._host.destination}' works by hand."
            )
        if now - self._moved > SILENCE_S:
            raise HostFault(f"{self._host.name} was silent for {SILENCE_S / 60:g} minutes.")

    def _num_sent(self) -> int:
        """Bytes that the source has written: what is sent is a sign of life."""
        try:
            pid = 0 if self._source is None else self._source.process.pid
            return psutil.Process(pid).io_counters().write_chars if pid else 0
        except psutil.Error:
            return 0


def run_on(
    host: SshHost, command: str, log: Path, stop: Event, source: Sequence[str] = ()
) -> tuple[int, str]:
    """Run a command on a host: the status that ssh ends with, and what was said.

    Args:
        source: the command here whose output is its input; none: its input stays open and empty.

    Raises:
        HostFault: the host does not answer or is silent for too long, or the source failed.
        LaunchError: everybody is to end.
    """
    call = HostCall(host, command, log, stop, source)
    try:
        return call.status(), call.said()
    finally:
        call.end()


#: Hosts that are worked on at once.
AT_ONCE = 16

#: Told a host, and what is being done there.
Tell = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOutcome:
    """What became of a host.

    Attributes:
        text: what was done, or why it failed, in a sentence.
        has_failed: the host is not ready.
    """

    host: str
    text: str
    has_failed: bool = False


class HostSetUp:
    """One host on its way.

    Args:
        number: of the host in the file.
        log: of all that is done there.
        stop: set when everybody is to end.
    """

    def __init__(
        self, number: int, host: SshHost, goal: Goal, log: Path, stop: Event, tell: Tell
    ) -> None:
        self.number = number
        self._host = host
        self._goal = goal
        self._log = log
        self._stop = stop
        self._tell = tell

    def begin(self) -> FoundThere | HostOutcome:
        """See what is there; an outcome if it is ready, or cannot be made so."""
        try:
            found = self._look()
            steps = steps_for(self._host.name, found, self._goal)
            return found if steps else self._ready(found, ())
        except SuiteError as error:
            return self._failed(error)

    def finish(self, found: FoundThere | None) -> HostOutcome:
        """Do what is missing.

        Args:
            found: None if another host with the same folder was worked on since it was looked at.
        """
        try:
            found = found or self._look()
            steps = steps_for(self._host.name, found, self._goal)
            for step in steps:
                self._do(step)
            return self._ready(found, steps)
        except SuiteError as error:
            return self._failed(error)

    def leave_out(self, other: str) -> HostOutcome:
        """Nothing is tried, as another host has the same folder and failed."""
        return self._failed(HostFault(f"{self._host.name} shares its folder with {other}."))

    def _ready(self, found: FoundThere, steps: Sequence[Step]) -> HostOutcome:
        shares = found.files is FilesThere.SHARED
        told = [*(["shares this folder"] if shares else []), *(DONE[step] for step in steps)]
        return HostOutcome(host=self._host.name, text=", ".join(["ready", *told]))

    def _failed(self, error: SuiteError) -> HostOutcome:
        return HostOutcome(host=self._host.name, text=str(error), has_failed=True)

    def _look(self) -> FoundThere:
        command = look_command(self._goal, self.number)
        found = parse_found(self._run("looking", command, self._goal.pack_words))
        if found is None:
            raise HostFault(f"{self._host.name} did not tell what it has.")
        return found

    def _do(self, step: Step) -> None:
        goal = self._goal
        if step is Step.COPY:
            self._run(step, copy_command(goal), goal.pack_words)
        elif step is Step.COPY_WHEELS:
            assert goal.wheelhouse is not None
            self._run(step, copy_wheels_command(goal, self.number), goal.wheelhouse.pack_words)
        else:
            self._run(step, set_up_command(goal, only_check=step is Step.CHECK))

    def _run(self, doing: str, command: str, source: Sequence[str] = ()) -> str:
        """What a command said; its input is what another one writes here.

        Raises:
            HostFault: it failed.
        """
        self._tell(self._host.name, doing)
        try:
            status, said = run_on(self._host, command, self._log, self._stop, source)
        except OSError as error:  # of a file here
            raise HostFault(f"{doing} failed for {self._host.name}: {error}.") from error
        if status:
            raise HostFault(explain_failure(self._host, doing, status, said))
        return said


#: How a step is told of when it is done.
DONE = {
    Step.COPY: "checkout copied",
    Step.COPY_WHEELS: "wheelhouse copied",
    Step.SET_UP: "environment set up",
    Step.CHECK: "environment checked",
}


def set_up_hosts(
    hosts: Sequence[SshHost], goal: Goal, logs: Path, tell: Tell
) -> Generator[HostOutcome, None, None]:
    """What becomes of each host, as soon as it is known.

    Closing the generator ends all that runs, here and there.

    Args:
        logs: a folder; a log in it has the name of its host.
    """
    stop = Event()
    ones = [
        HostSetUp(number, host, goal, log_of(logs, host.name), stop, tell)
        for number, host in enumerate(hosts)
    ]
    for host in hosts:
        log_of(logs, host.name).unlink(missing_ok=True)
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        looks = {pool.submit(one.begin): one.number for one in ones}
        found = {}
        for look in as_completed(looks):
            seen = look.result()
            if isinstance(seen, HostOutcome):
                yield seen
            else:
                found[looks[look]] = seen
        groups = [[(ones[n], found[n]) for n in group] for group in groups_of(found)]
        for done in as_completed([pool.submit(_take_turns, group) for group in groups]):
            yield from done.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _take_turns(group: Sequence[tuple[HostSetUp, FoundThere]]) -> Sequence[HostOutcome]:
    """Work on hosts that share a folder; what fails on the first is not tried again and again."""
    (first, found), *others = group
    done = first.finish(found)
    if not done.has_failed:
        return [done, *(one.finish(None) for one, _ in others)]
    return [done, *(one.leave_out(done.host) for one, _ in others)]


def log_of(logs: Path, host: str) -> Path:
    """The log of a host."""
    return logs / f"{host}.log"
