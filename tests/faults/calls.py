"""One call of the suite, and the faults that strike while it runs.

Decides when a fault is due, that it is undone in time, and how long a call may take.  What the
outcome is worth is decided in `checks`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from launchers.run.launcher import JOB_DEADLINE_S
from tests.faults.ground import Ground, end_all, patience
from tests.faults.ledger import Ledger
from tests.faults.plan import Fault, Moment, Stage
from tests.faults.strike import Struck, importing, strike

SWEPT = Path(__file__).with_name("swept.py")

#: A call that takes longer hangs.  On an idle machine one takes 15 s, and a model that is stopped
#: while it is described may be silent for as long as any model may take to be built.
CALL_DEADLINE_S = JOB_DEADLINE_S + 120.0

#: Processes of a call may live so long after it.
SURVIVAL_S = 5.0

TICK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """How a call ended.

    Attributes:
        status: as `subprocess` tells it.
        hung: it was killed because its time was up.
        said: all that it printed.
        begun: how many runs it began.
        struck: the faults that were carried out, and on whom.
        survivors: command lines of processes that outlived it.
    """

    status: int
    hung: bool
    said: str
    begun: int
    struck: tuple[tuple[Fault, Struck], ...]
    survivors: tuple[str, ...]


#: The words with which `swept.py` tells of a stage.
TOLD = {
    "stage warmup": Stage.WARMUP,
    "stage measured": Stage.MEASURED,
    "run": Stage.STARTING,
    "finished": Stage.BETWEEN_RUNS,
}


@dataclass(slots=True)
class Stages:
    """When stages began, by the lines that `swept.py` tells; `runs` have begun."""

    began: dict[tuple[Stage, int], float] = field(default_factory=dict)
    runs: int = 0
    read: int = 0

    def hear(self, told: Path, now: float) -> None:
        """Read what is new; the call begins when the suite can tell anything."""
        if not told.exists():
            return
        self.began.setdefault((Stage.CALL, 1), now)
        lines = told.read_text(encoding="utf-8").splitlines()
        for line in lines[self.read :]:
            self.runs += line.startswith("run ")
            stage = TOLD.get(line) or TOLD.get(line.split()[0])
            if stage is not None:
                self.began.setdefault((stage, max(1, self.runs)), now)
        self.read = len(lines)

    def is_due(self, moment: Moment, now: float) -> bool:
        """Whether a moment has come."""
        began = self.began.get((moment.stage, moment.nth))
        return began is not None and now >= began + moment.delay_s


@dataclass(slots=True, kw_only=True)
class FaultedCall:
    """A call that is under way.

    Attributes:
        waiting: faults whose moment has not come, or whose victim is not there.
        undo_at: moments at which faults are undone.
    """

    ground: Ground
    ledger: Ledger
    suite: psutil.Popen
    told: Path
    waiting: list[Fault]
    stages: Stages = field(default_factory=Stages)
    struck: list[tuple[Fault, Struck]] = field(default_factory=list)
    undo_at: list[tuple[float, Struck]] = field(default_factory=list)

    def follow(self) -> bool:
        """Strike until the call is over; return whether it was in time."""
        begin = time.monotonic()
        while self.suite.poll() is None:
            now = time.monotonic()
            if now > begin + CALL_DEADLINE_S * patience():
                return False
            self.stages.hear(self.told, now)
            if (Stage.IMPORT, 1) not in self.stages.began and importing(self.suite):
                self.stages.began[Stage.IMPORT, 1] = now  # nobody tells it
            self.ledger.look(self.ground)
            self._strike_all(now)
            self._undo(now)
            time.sleep(TICK_S)
        return True

    def _strike_all(self, now: float) -> None:
        for fault in list(self.waiting):
            if fault.moment is None or not self.stages.is_due(fault.moment, now):
                continue
            struck = strike(fault, self.suite, self.ground)
            if struck is not None:
                self.waiting.remove(fault)
                self.struck.append((fault, struck))
                self.ledger.forget(struck.deleted)
                self._plan_undoing(fault, struck, now)

    def _plan_undoing(self, fault: Fault, struck: Struck, now: float) -> None:
        # A suite that is stopped for good would never end: who waits for it kills it.
        if not fault.for_good or struck.victim == "suite":
            self.undo_at.append((now + fault.lasts_s, struck))

    def _undo(self, now: float) -> None:
        for moment, struck in [entry for entry in self.undo_at if entry[0] <= now]:
            struck.undo()
            self.undo_at.remove((moment, struck))


def call(
    ground: Ground, name: str, faults: Sequence[Fault], ledger: Ledger, options: Sequence[str]
) -> CallEnd:
    """Call the suite once and have faults strike meanwhile.

    Args:
        name: of the call, for the files with what it told and said.
        options: of the suite.
    """
    told, output = ground.folder / f"told-{name}", ground.folder / f"said-{name}"
    suite = _start(ground, told, output, options)
    under_way = FaultedCall(
        ground=ground, ledger=ledger, suite=suite, told=told, waiting=list(faults)
    )
    in_time = under_way.follow()
    if not in_time:
        suite.kill()
    status = suite.wait()
    survivors = _outlive(ground)
    for _, struck in under_way.struck:
        struck.undo()
    end_all(ground)
    ledger.look(ground)
    return CallEnd(
        status=status,
        hung=not in_time,
        said=output.read_text(encoding="utf-8", errors="replace"),
        begun=told.read_text(encoding="utf-8").count("run ") if told.exists() else 0,
        struck=tuple(under_way.struck),
        survivors=survivors,
    )


def _start(ground: Ground, told: Path, output: Path, options: Sequence[str]) -> psutil.Popen:
    own = (str(told), str(ground.deadline_s), str(ground.results))
    with output.open("wb") as stream:
        return psutil.Popen(
            [sys.executable, str(SWEPT), *own, *options],
            env=ground.environment(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def _outlive(ground: Ground) -> tuple[str, ...]:
    deadline = time.monotonic() + SURVIVAL_S * patience()
    while (living := ground.processes()) and time.monotonic() < deadline:
        time.sleep(TICK_S)
    return tuple(_command_line(process) for process in living)


def _command_line(process: psutil.Process) -> str:
    try:
        return f"{process.status()}: {' '.join(process.cmdline())[-120:]}"
    except psutil.Error:
        return "a process that is gone by now"
