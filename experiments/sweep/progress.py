"""Show how a sweep goes on: a line for every run, and the time left, on a terminal in a bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from experiments.sweep.session import RunListener
from experiments.sweep.sweep import PlannedRun
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.evaluation_timings import LearningCurve
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.terminal import Terminal


def plain_console() -> Console:
    """Standard error, for people: every text in one piece, wrapped by the terminal alone."""
    return Terminal(stderr=True, highlight=False, markup=False, soft_wrap=True)


def _bar(console: Console) -> Progress:
    """What is being done, how far it is, and the time left; nothing where there is no terminal."""
    return Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=12),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        TextColumn(
            "{task.fields[doing]}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=console,
        expand=True,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def counting_bar(console: Console, doing: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that is told how many are done, of how many."""
    with _bar(console) as bar:
        task = bar.add_task("", total=None, doing=doing)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class SweepProgress(RunListener):
    """A listener for people.

    Args:
        console: a plain one.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = _bar(console)
        self._task = self._bar.add_task("", total=None, doing="preparing")
        self._title = ""
        self._total = 0
        self._done = 0
        self._begun = monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def prepare(self, text: str, done: int, total: int) -> None:
        """Show how far it is."""
        self._bar.update(self._task, completed=done, total=total, doing=text)

    def begin(self, total: int, kept: int) -> None:
        """Start the bar; say what is kept from earlier."""
        self._total, self._begun = total, monotonic()
        if kept:
            self._console.print(f"Runs made before: {kept}; to go: {total}.")
        elif total > 1 and not self._console.is_terminal:
            self._console.print(f"{total} runs to make; each ends with a line.")
        self._bar.reset(self._task, total=total, doing="starting")

    def expect(self, more: int) -> None:
        """Correct the total."""
        self._total = self._done + more
        self._bar.update(self._task, total=self._total)

    def start(self, run: PlannedRun) -> None:
        """Name the run."""
        self._title = f"{run.experiment.run_title} #{run.repetition + 1}"
        self.stage("starting")

    def stage(self, text: str) -> None:
        """Say what it is doing."""
        self._bar.update(self._task, doing=": ".join(filter(None, [self._title, text])))

    def finish(self, record: RunRecord, log_tail: str) -> None:
        """One line for every run that is over; the end of the right log if it failed."""
        self._done += 1
        self._total = max(self._total, self._done)  # a second attempt comes on top
        title = record.experiment.run_title
        line = f"{self._done:>3}/{self._total} {title} #{record.repetition + 1}: "
        if record.status is Status.OK and record.metrics is not None:
            line += _rate_text(record.experiment.workload, record.metrics.examples_per_sec)
            line += _learned_text(record.learned)
        else:
            line += ", ".join(filter(None, [record.status, record.reason]))
        self._console.print(line + self._left_text())
        # Who interrupts a run knows why it ended.
        for text in log_tail.splitlines() if record.status is not Status.INTERRUPTED else ():
            self._console.print(f"      | {text}")
        self._bar.update(self._task, completed=self._done, total=self._total)

    def _left_text(self) -> str:
        """The time left, if runs go on as they did; on a terminal the bar tells it."""
        if self._console.is_terminal or self._done == self._total:
            return ""
        left_s = (monotonic() - self._begun) / self._done * (self._total - self._done)
        about = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s"
        return f"; about {about} left"

    def refused(self, reason: str) -> None:
        """What is no record, and why."""
        self._console.print(reason)

    def recovered(self, record: RunRecord) -> None:
        """What became of the run that was being made when the suite was killed."""
        self._console.print(f"recorded {record.run_id}: {record.status}, {record.reason}")


def _rate_text(workload: Workload, rate: float) -> str:
    """`12.0 images/s`, and of text also the tokens."""
    tokens = workload.tokens_per_sec(rate)
    beside = "" if tokens is None else f" ({tokens:.0f} tokens/s)"
    return f"{rate:.1f} {workload.unit.counted}/s{beside}"


def _learned_text(learned: LearningCurve | None) -> str:
    """When a training reached its target; nothing for what was not to learn."""
    if learned is None:
        return ""
    reached = learned.target_s
    return ", target missed" if reached is None else f", target after {reached:.3g} s"
