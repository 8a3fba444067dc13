"""The sweep that faults are injected into: `swept.py TOLD DEADLINE RESULTS OPTION...`.

Three very short runs through the suite's own command line.  Every stage is also told, a line each,
to the file TOLD, for faults that wait for it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TextIO
from unittest.mock import patch

from experiments import __main__ as command_line
from experiments import surroundings
from experiments.cli import sweep_command
from experiments.studies.study import Study
from experiments.sweep.progress import SweepProgress
from experiments.sweep.sweep import PlannedRun
from ps_allreduce.process import end_with
from ps_allreduce.record.records import RunRecord
from tests.real.tiny_sweep import TINY, tiny

NUM_RUNS = 3


def telling(told: TextIO) -> type[SweepProgress]:
    """The suite's own progress, which also writes stages down."""

    class TellingProgress(SweepProgress):
        def start(self, run: PlannedRun) -> None:
            super().start(run)
            told.write(f"run {run.experiment.experiment_id}/{run.repetition}\n")

        def stage(self, text: str) -> None:
            super().stage(text)
            told.write(f"stage {text}\n")

        def finish(self, record: RunRecord, log_tail: str) -> None:
            super().finish(record, log_tail)
            told.write(f"finished {record.run_id}\n")

    return TellingProgress


def main(told: str, deadline_s: str, results: str, *options: str) -> int:
    """Run the sweep; return the suite's exit status."""
    profile = replace(TINY, repetitions=1, deadline_s=float(deadline_s))
    profiles = {"quick": profile}
    study = Study(about="Three short points.", points=tiny, profiles=profiles, looks_first=False)
    command_line.add_study("compare", study)
    # Without its commit: whoever edits the source meanwhile would begin a new block.
    words = ["compare", "--results", results, "--allow-login-node", *options]
    with (
        open(told, "w", buffering=1, encoding="utf-8") as stream,
        patch.object(surroundings, "source_state", lambda: "faults"),
        patch.object(sweep_command, "SweepProgress", telling(stream)),
    ):
        return command_line.main(words)


if __name__ == "__main__":
    end_with(main(*sys.argv[1:]))
