"""The jobs of a sweep in a batch system: submit them, remember them, and follow them.

Decides that a sweep has one job at a time, and what is shown of it.  Whoever follows only reads
what a job leaves in the results folder, and may go away and come back.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.sweep.execute import RunListener
from experiments.sweep.history import load_if_complete
from experiments.sweep.jobs import PlannedJob, this_command
from launchers.fork_servers.client import last_lines
from launchers.scheduler import Scheduler
from ps_allreduce.errors import UserError
from ps_allreduce.record.files import iter_record_paths, write_atomically
from ps_allreduce.record.records import RunRecord, Status

JOB_FILE = "slurm_job.json"

POLL_S = 2.0

#: A shared file system may show a record some time after the job has ended.
LAST_LOOK_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepJobs:
    """The jobs of one sweep.

    Attributes:
        sweep_dir: where they leave their records, and where they are remembered.
        sleep: waits for so many seconds.
    """

    scheduler: Scheduler
    sweep_dir: Path
    sleep: Callable[[float], None] = time.sleep

    def submit(self, jobs: Sequence[PlannedJob]) -> list[str]:
        """Write the scripts and submit them, each to begin after the one before; remember them."""
        submitted: list[dict[str, str]] = []
        for one in jobs:
            job = replace(one.job, after=submitted[-1]["job_id"] if submitted else None)
            script = job.log.with_suffix(".sh")
            write_atomically(script, self.scheduler.script(job).encode())
            job_id = self.scheduler.submit(script)
            submitted.append({"job_id": job_id, "script": str(script), "log": str(job.log)})
            note = {"command": list(job.command), "jobs": submitted}
            write_atomically(
                self.sweep_dir / JOB_FILE, (json.dumps(note, indent=1) + "\n").encode()
            )
        return [note["job_id"] for note in submitted]

    def live(self) -> list[str]:
        """The jobs that wait or run, in their order.

        Raises:
            UserError: there are some, but they were asked for with another command than this one.
        """
        try:
            note = json.loads((self.sweep_dir / JOB_FILE).read_text(encoding="utf-8"))
            job_ids, command = [str(job["job_id"]) for job in note["jobs"]], list(note["command"])
        except (OSError, ValueError, KeyError, TypeError):
            return []
        living = [job_id for job_id in job_ids if not self.scheduler.is_over(job_id)]
        if living and command != list(this_command()):
            raise UserError(
                f"job {living[0]} of this sweep is still there, but another command asked for it: "
                f"{shlex.join(command[3:])}. Repeat that command to follow the job, or first end "
                f"it with {self.scheduler.cancel_command(living)}."
            )
        return living

    def follow(
        self,
        job_ids: Sequence[str],
        known: Sequence[Path],
        listener: RunListener,
        tell: Callable[[str], None],
    ) -> str:
        """Tell of every record that jobs leave, one job after the other, until all are over.

        Args:
            known: records that were there before.
            tell: told in words whenever a job waits for another reason, or begins.

        Returns:
            What the scheduler says about the jobs' ends; empty if those were good ones.
        """
        seen = set(known)
        endings = [self._follow_one(job_id, seen, listener, tell) for job_id in job_ids]
        return "; ".join(filter(None, endings))

    def _follow_one(
        self,
        job_id: str,
        seen: set[Path],
        listener: RunListener,
        tell: Callable[[str], None],
    ) -> str:
        state = ""
        while not self.scheduler.is_over(job_id):
            self._tell_of_new(seen, listener)
            if state != (state := self.scheduler.state(job_id)):
                tell(state)
            listener.stage(state)
            self.sleep(POLL_S)
        self.sleep(LAST_LOOK_S)
        self._tell_of_new(seen, listener)
        return self.scheduler.explain(job_id)

    def _tell_of_new(self, seen: set[Path], listener: RunListener) -> None:
        for path in iter_record_paths(self.sweep_dir):
            if path not in seen and (record := load_if_complete(path)) is not None:
                seen.add(path)
                listener.finish(record, "")

    def made_by(self, job_ids: Sequence[str]) -> list[RunRecord]:
        """All records of jobs, without runs in which an earlier job was interrupted."""
        records = (load_if_complete(path) for path in iter_record_paths(self.sweep_dir))
        return [record for record in records if record is not None and record.job_id in job_ids]

    def last_output(self) -> str:
        """The end of what the last job wrote."""
        logs = sorted((self.sweep_dir / "slurm").glob("*.log"), key=lambda log: log.stat().st_mtime)
        return last_lines(logs[-1]) if logs else "(no log)"


def all_well(made: Sequence[RunRecord], ending: str) -> bool:
    """A job came to its end and every run in it to a good one."""
    return bool(made) and not ending and all(record.status is Status.OK for record in made)
