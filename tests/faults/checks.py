"""What is promised, and what of it did not hold: pure functions over what was seen.

Every finding is one line, `kind: details`; kinds are counted over the days.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from experiments.sweep.history import SETTLED
from ps_allreduce.record.files import load_raw, load_record
from ps_allreduce.record.records import FORMAT_VERSION, RunRecord, Status
from tests.faults.calls import CallEnd
from tests.faults.ground import Ground
from tests.faults.plan import Fault, Target, Verb
from tests.faults.swept import NUM_RUNS

INTERRUPTING = (Verb.SIGINT, Verb.SIGTERM, Verb.SIGHUP)

#: Others that fork servers fork have no such name: no run is of them.
TASK = re.compile(r"(chief|worker|ps):\d+")

#: A line of a task's log is shown behind this.
QUOTED = "      | "


def check_call(end: CallEnd, foreign: Sequence[Path] = ()) -> list[str]:
    """What every call promises, whatever happens to it.

    Args:
        foreign: records of other versions that lay there when it began.
    """
    found = [f"survivor: {process}" for process in end.survivors]
    if end.hung:
        return [*found, f"hang: the last line is {last_line(end.said)!r}"]
    if traceback := traceback_in(end.said):
        found.append(f"traceback: {traceback}")
    allowed = allowed_statuses([fault for fault, _ in end.struck])
    if foreign and not any(struck.deleted for _, struck in end.struck):
        # The user has to say what becomes of them; only a fault may end the call before.
        allowed = allowed - ({0} if end.struck else {0, 1}) | {2}
        found += [f"foreign: {path.name} was moved" for path in foreign if not path.exists()]
    if end.status not in allowed:
        found.append(f"status: {end.status} and not {sorted(allowed)}: {last_line(end.said)}")
    return found


def allowed_statuses(faults: Sequence[Fault]) -> set[int]:
    """How a call may end under these faults; after 0, everything must be there."""
    return set().union({0}, *map(_explained, faults)) if faults else {0, 1}


def _explained(fault: Fault) -> set[int]:
    if fault.verb in INTERRUPTING:
        return {130}
    if fault.target is Target.SUITE and fault.verb in (Verb.KILL, Verb.STOP):
        return {-9} if fault.verb is Verb.KILL or fault.for_good else set()
    # What is wrong with these disks, and with the suite's own limits, the user has to mend first.
    own_limit = fault.verb is Verb.FEW_HANDLES and fault.target is Target.SUITE
    return {1, 2} if own_limit or fault.target in (Target.RESULTS, Target.TMPDIR) else {1}


def traceback_in(said: str) -> str:
    """The last line of the first traceback that is not quoted from a task's log; else nothing."""
    lines = [line for line in said.splitlines() if not line.startswith(QUOTED)]
    for number, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            inside = lines[number + 1 :]
            return next((text for text in inside if not text.startswith(" ")), "without an end")
    return ""


def last_line(said: str) -> str:
    """The last line that is not empty."""
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")[:300]


def read_records(paths: Iterable[Path]) -> tuple[list[RunRecord], list[str]]:
    """Records that the suite's own reader takes, in their place; and the names of others."""
    records, refused = [], []
    for path in paths:
        try:
            # A FIFO has no end, and a reader would wait for it.
            record = load_record(path) if path.is_file() else None
        except Exception:  # whatever the reader does about it: it is refused
            record = None
        if record is None or f"{path.parent.name}/{path.stem}" != record.run_id:
            refused.append(path.name)
        else:
            records.append(record)
    return records, refused


def of_other_versions(paths: Iterable[Path]) -> list[Path]:
    """Records that another version of the suite may have written."""
    found = []
    for path in paths:
        if path.is_file():
            with suppress(ValueError, RecursionError):
                content = json.loads(path.read_bytes())
                version = content.get("format_version") if isinstance(content, dict) else None
                if isinstance(version, int) and version != FORMAT_VERSION:
                    found.append(path)
    return found


def planned_runs(sweep_dir: Path) -> list[str]:
    """Keys of the runs of `sweep.json`; none if it cannot be read."""
    try:
        order = json.loads((sweep_dir / "sweep.json").read_bytes())["order"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return [str(key) for key in order] if isinstance(order, list) else []


def check_runs(planned: Sequence[str], records: Sequence[RunRecord]) -> list[str]:
    """Every planned run has exactly one usable record."""
    usable = Counter(
        f"{record.experiment_id}/{record.repetition}"
        for record in records
        if record.status in SETTLED
    )
    if len(planned) != NUM_RUNS:
        return [f"planned: sweep.json tells of {len(planned)} runs and not of {NUM_RUNS}"]
    missing = [f"missing: no usable record of {key}" for key in planned if not usable[key]]
    twice = [f"doubled: {number} of {key}" for key, number in usable.items() if number > 1]
    strange = [f"strange: {key} was not planned" for key in usable if key not in planned]
    return missing + twice + strange


def check_launches(begun: int, killed: int, records: Sequence[RunRecord]) -> list[str]:
    """Every run that was begun has a record; `killed` calls may have been about to begin one."""
    missing = begun - killed - len(records)
    return [f"not recorded: {missing} of {begun} runs that were begun"] if missing > 0 else []


def check_times(records: Iterable[RunRecord], longest_s: float) -> list[str]:
    """No run goes on long after its deadline; before, it may have imported TensorFlow."""
    found = []
    for record in records:
        begin, end = map(datetime.fromisoformat, (record.started_at, record.finished_at))
        took_s = (end - begin).total_seconds()
        of_suite = record.reason.startswith("the suite ended")
        if took_s > longest_s and not of_suite:
            found.append(f"late: {record.run_id} took {took_s:.0f} s and not {longest_s:.0f} s")
    return found


def check_reason(end: CallEnd, records: Iterable[RunRecord]) -> list[str]:
    """Who was stopped for good is named by the run that it made fail."""
    stopped = [
        struck.victim
        for fault, struck in end.struck
        if fault.verb is Verb.STOP and fault.for_good and TASK.fullmatch(struck.victim)
    ]
    reasons = [r.reason for r in records if r.status in (Status.FAILED, Status.TIMED_OUT)]
    if len(end.struck) > 1 or not stopped or not reasons:
        return []
    if any(stopped[0] in reason for reason in reasons):
        return []
    return [f"reason: {stopped[0]} was stopped, and what is said is {reasons}"]


def check_left_overs(ground: Ground) -> list[str]:
    """Nothing temporary is left where the suite may write."""
    left = [f"left over: {path.name} in TMPDIR" for path in ground.tmpdir.iterdir()]
    hidden = [path for path in ground.results.rglob(".*") if path.name != ".lock"]
    left += [f"left over: {path.name} in RESULTS" for path in hidden]
    if (ground.sweep_dir / "in_flight.json").exists():
        left.append("left over: in_flight.json")
    return left


def check_raw(paths: Iterable[Path], records: Iterable[RunRecord]) -> list[str]:
    """Every run that is ok has raw timings that can be read."""
    good = {record.run_id for record in records if record.status is Status.OK}
    found = []
    for path in paths:
        if f"{path.parent.name}/{path.stem}" in good:
            try:
                load_raw(path.with_suffix(".npz"))
            except Exception as error:
                found.append(f"raw: {path.stem} of {path.parent.name}: {type(error).__name__}")
    return found
