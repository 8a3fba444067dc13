"""One sweep with its faults, from an empty folder to the last look at what it left."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.__main__ import cli
from tests.faults.calls import CallEnd, call
from tests.faults.checks import (
    check_call,
    check_launches,
    check_left_overs,
    check_raw,
    check_reason,
    check_runs,
    check_times,
    last_line,
    of_other_versions,
    planned_runs,
    read_records,
)
from tests.faults.damage import damage
from tests.faults.ground import Ground, fresh_ground
from tests.faults.ledger import Ledger
from tests.faults.plan import Fault, Round, SweepPlan, Target
from tests.faults.tally import FaultLine, Verdict

#: So often the same command is repeated after the last fault.
MOST_REPEATS = 4

#: No run may last so many times its deadline.
LONGEST_RUN = 2.5

LAUNCHER = {"local": (), "emulated": ("--launcher", "emulated", "--hosts", "2")}

RETRY = "--retry-failed"


@dataclass(slots=True, kw_only=True)
class FaultedSweep:
    """A sweep under way.

    Attributes:
        calls: number of calls so far; `killed` of them were killed.
        begun: number of runs that they began.
        victims: of the faults that were carried out, in their order.
        found: what did not hold.
    """

    plan: SweepPlan
    ground: Ground
    ledger: Ledger = field(default_factory=Ledger)
    calls: int = 0
    begun: int = 0
    killed: int = 0
    victims: list[tuple[Fault, str]] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def run(self) -> None:
        """All rounds, and then the same command until it has nothing more to do."""
        for one in self.plan.rounds:
            self._round(one)
        self._repeat()
        self._look_at_the_end()

    def _round(self, one: Round) -> None:
        end = self._call(one.during)
        self.victims += [(fault, struck.victim) for fault, struck in end.struck]
        deleted = any(struck.deleted for _, struck in end.struck)
        if end.status == 0 and not deleted:
            self.found += [f"too early 0: {text}" for text in self._unfinished()]
        for fault in one.after:
            paths = damage(fault, self.ground)
            self.ledger.distrust(paths)
            if paths:
                self.victims.append((fault, str(paths[0].relative_to(self.ground.results))))

    def _call(self, faults: Sequence[Fault], *options: str) -> CallEnd:
        self.calls += 1
        before = set(self.ground.records())
        foreign = of_other_versions(before)
        end = call(
            self.ground,
            str(self.calls),
            faults,
            self.ledger,
            [*LAUNCHER[self.plan.launcher], *options],
        )
        self.begun, self.killed = self.begun + end.begun, self.killed + (end.status < 0)
        made, _ = read_records(set(self.ground.records()) - before)
        late = check_times(made, LONGEST_RUN * self.ground.deadline_s)
        found = [*check_call(end, foreign), *self.ledger.compare(), *check_reason(end, made), *late]
        self.found += [f"{text} (call {self.calls})" for text in found]
        if end.status == 2:  # it was told, and does what is left to the user
            for path in foreign:
                path.unlink(missing_ok=True)
        return end

    def _repeat(self) -> None:
        options: tuple[str, ...] = ()
        said = ""
        for _ in range(MOST_REPEATS):
            end = self._call((), *options)
            if end.status == 0 or end.hung:
                return
            if end.said == said:
                break  # it would say so for ever
            said = end.said
            options = (RETRY,) if end.status == 1 and _can_retry() else ()
        self.found.append(f"not completed: status {end.status}: {last_line(end.said)}")

    def _unfinished(self) -> list[str]:
        records, _ = read_records(self.ground.records())
        return check_runs(planned_runs(self.ground.sweep_dir), records)

    def _look_at_the_end(self) -> None:
        paths = self.ground.records()
        records, refused = read_records(paths)
        self.found += self._unfinished()
        self.found += [f"refused record: {name} still lies among the others" for name in refused]
        hit = {fault.target for fault, _ in self.victims}
        unreadable = check_raw(paths, records)
        if unreadable and (Target.RAW not in hit or not self._report_tells()):
            self.found += unreadable
        if hit.isdisjoint((Target.RESULTS, Target.POINT, Target.RECORD, Target.NOTE)):
            self.found += check_launches(self.begun, self.killed, records)
        self.found += check_left_overs(self.ground)

    def _report_tells(self) -> bool:
        """Whether the report says that raw timings cannot be read."""
        words = [sys.executable, "-m", "analysis", "report", "--", str(self.ground.sweep_dir)]
        done = subprocess.run(
            words, env=self.ground.environment(), capture_output=True, check=False, text=True
        )
        return ".npz: raw timings" in done.stdout + done.stderr


def _can_retry() -> bool:
    options = {name for option in cli.commands["compare"].params for name in option.opts}
    return RETRY in options


def sweep_under_faults(plan: SweepPlan, keep: Path) -> list[FaultLine]:
    """Make one sweep under its faults and judge it.

    Args:
        keep: folder that takes what calls said, if something broke.
    """
    begin = time.monotonic()
    with fresh_ground() as ground:
        sweep = FaultedSweep(plan=plan, ground=ground)
        sweep.run()
        if sweep.found:
            _keep_words(ground, keep / f"{plan.launcher}-{plan.seed}")
    return [_line(fault, sweep, time.monotonic() - begin) for fault in plan.faults]


def _keep_words(ground: Ground, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*ground.folder.glob("said-*"), *ground.folder.glob("told-*")):
        shutil.copyfile(path, folder / path.name)


def _line(fault: Fault, sweep: FaultedSweep, took_s: float) -> FaultLine:
    carried_out = [victim for other, victim in sweep.victims if other is fault]
    judged = bool(carried_out) or (not sweep.victims and bool(sweep.found))
    verdict = Verdict.BROKE if sweep.found else Verdict.HELD
    return FaultLine(
        seed=sweep.plan.seed,
        launcher=sweep.plan.launcher,
        fault=fault.kind,
        moment=str(fault.moment or "between calls"),
        victim=carried_out[0] if carried_out else "",
        company=tuple(other.kind for other, _ in sweep.victims if other is not fault),
        verdict=verdict if judged else Verdict.MISSED,
        broke=tuple(text.replace(sweep.ground.mark, "") for text in sweep.found) if judged else (),
        calls=sweep.calls,
        took_s=round(took_s, 1),
    )
