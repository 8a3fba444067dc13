"""The search of a study before its sweep, which measures the best settings anew.

Decides where its launches are kept, and which setting is the best.  Which settings there are, and
which of them compete, is decided by the study.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

from experiments.cli.requests import StudyRequest
from experiments.cli.sweep_command import INTERRUPTED, run_study
from experiments.sweep.definition import begun
from experiments.sweep.history import kept_records
from experiments.sweep.progress import plain_console
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.choices import SEARCH
from ps_allreduce.record.records import RunRecord, Status


def searched_first(request: StudyRequest) -> StudyRequest:
    """The request with the best of its search, whose launches are made as far as they are missing.

    As it is where the study has no search.  Ends the program where the search does not come to its
    end, or was only to be shown.

    Raises:
        UserError: what was asked for cannot be run.
        LaunchError: the host has a fault that does not pass.
    """
    search = request.study.search
    if search is None:
        return request
    wanted = replace(
        request,
        name=f"{SEARCH}/{request.name}",
        study=replace(request.study, points=search.points, search=None),
        sweep=replace(request.sweep, repetitions=1),
    )
    told = f"First a search, whose launches are kept in {wanted.sweep_dir}:"
    status = run_study(wanted, told)
    if request.sweep.dry_run:
        plain_console().print("Then its best settings are compared; these launches are not listed.")
    if status == INTERRUPTED or request.sweep.dry_run:
        sys.exit(status)
    points, block = begun(wanted.sweep_dir)
    records = kept_records(wanted.sweep_dir, block, points)
    best = best_settings(records, search.contests)
    plain_console().print(f"The best settings of the search ({len(best)}) are measured:")
    return replace(request, tuned=best, status=status)


def best_settings(
    records: Iterable[RunRecord], contests: Callable[[Experiment], Iterable[Hashable]]
) -> tuple[Experiment, ...]:
    """The best setting of each contest, each once, in the order of the contests.

    A setting is as good as the worst of its launches; these may have different seeds.  A contest in
    which nobody takes part who takes part in no other is left out.
    """
    found: dict[Hashable, dict[Experiment, tuple[bool, float]]] = {}
    own: set[Hashable] = set()
    first: dict[Experiment, Experiment] = {}
    for record in records:
        if record.status is Status.OK and record.metrics is not None:
            point, gain = record.experiment, _gain(record)
            seedless = replace(point, workload=replace(point.workload, seed=0))
            setting = first.setdefault(seedless, point)
            joined = [*contests(setting)]
            own |= {*joined} if len(joined) == 1 else set()
            for contest in joined:
                gains = found.setdefault(contest, {})
                gains[setting] = min(gains.get(setting, gain), gain)
    best = (max(gains, key=gains.__getitem__) for key, gains in found.items() if key in own)
    return tuple(dict.fromkeys(best))


def _gain(record: RunRecord) -> tuple[bool, float]:
    """What more of is better: the rate; of what learns, the target sooner, else a lower loss."""
    if record.learned is not None:
        target_s = record.learned.target_s
        return (True, 1 / target_s) if target_s else (False, -record.learned.loss[-1])
    return True, record.metrics.examples_per_sec if record.metrics else 0.0
