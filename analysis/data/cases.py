"""Which runs belong together: cases and points.

A *case* is what may be compared: one workload under the same conditions.  A *setting* is a way to
train it: a strategy with its servers and placement, or its collective.  A *point* is a setting at a
number of workers, with all its attempts.  A *turn* is made of runs that were made one right after
the other, and only these are pairs: they share what drifts.  A launch that was made again later
keeps the number of its repetition but not its neighbours.  Where trainings learn, the launches of a
point are those of all seeds, and pairs have the same seed and repetition.  What a case is called is
decided in `case_names`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data.blocks import SweepResults
from analysis.data.case_names import case_names, input_names, model_names
from analysis.data.columns import CONDITIONS, LENGTHS, SETTINGS
from analysis.data.prices import Prices
from analysis.data.setting import Setting, exchange_order, settings_of
from ps_allreduce.cluster import TaskType
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import room_for_workers
from ps_allreduce.point.models.trained import Unit
from ps_allreduce.record.records import BUSY_LIMIT, RunRecord, Status

#: A sweep makes its runs without a pause; one that was interrupted goes on after one.
PAUSE_S = 60.0


#: Columns that tell when runs were made.
_MOMENTS = ["job_id", "repetition", "status", "started_at", "finished_at", "total_s"]


def turns_of(table: pd.DataFrame) -> pd.Series:
    """For every run the number of its turn: equal for runs of one job and repetition, in a row.

    Args:
        table: all attempts of a block, whatever became of them.
    """
    runs = table[_MOMENTS].assign(job_id=table["job_id"].fillna(""))
    runs = runs.sort_values(["job_id", "started_at"], kind="stable")
    before = runs[["job_id", "repetition"]].shift()
    pause = runs["started_at"] - _ends(runs).shift()
    begins = (runs["job_id"] != before["job_id"]) | (runs["repetition"] != before["repetition"])
    begins |= pause > pd.Timedelta(seconds=PAUSE_S)
    return begins.fillna(True).astype(bool).cumsum().sub(1).reindex(table.index)


def _ends(runs: pd.DataFrame) -> pd.Series:
    """When runs were over; one that was interrupted may have been recorded much later."""
    lasted = pd.to_timedelta(runs["total_s"].astype(float).fillna(0.0), unit="s")
    interrupted = runs["status"] == Status.INTERRUPTED
    return runs["finished_at"].where(~interrupted, runs["started_at"] + lasted)


#: What launches of one point may differ in, where they learn.
_OF_LAUNCHES = ("seed", "learning_rate")

#: Stands at what the processors may have been the limit of, in tables and figures.
MARK = "*"


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A setting at a number of workers.

    Attributes:
        asked: what was asked for, by column; None where nothing was.
        attempts: rows of all attempts, by repetition and attempt.
        launches: the rows that count, by turn: of each repetition the last one that is ok.
        records: those of the attempts, in the same order.
        planned: how many launches were asked for, and at least as many as were begun.
    """

    setting: Setting
    experiment: Experiment
    asked: pd.Series
    attempts: pd.DataFrame
    launches: pd.DataFrame
    records: tuple[RunRecord, ...]
    planned: int

    @property
    def num_workers(self) -> int:
        """Workers of this point."""
        return self.experiment.num_workers

    @property
    def room(self) -> int:
        """Workers that its hosts have room for, those of servers included."""
        return room_for_workers(self.experiment)

    @property
    def threads(self) -> int:
        """TensorFlow's threads of each worker."""
        return self.experiment.resources.threads_per_worker

    @property
    def worker_cores(self) -> int | None:
        """Cores of all workers together; None where they share some, which belong to none."""
        if self._has_shared_cores:
            return None
        return self.num_workers * self.experiment.resources.cores_per_worker

    @cached_property
    def shares_cores(self) -> bool:
        """Workers that compute were dealt the same cores of one machine, in some launch."""
        return self.experiment.workload.emulated is None and self._has_shared_cores

    @cached_property
    def _has_shared_cores(self) -> bool:
        """Workers were dealt the same cores, whether they compute there or not."""
        return any(map(_share_cores, self.records))

    @property
    def sends(self) -> bool:
        """Gradients leave a worker; without servers one worker has nobody to send them to."""
        strategy = self.experiment.strategy
        return strategy.communicates() and (self.num_workers > 1 or strategy.num_ps > 0)

    @property
    def transport(self) -> str | None:
        """What carries the gradients; None where nothing is carried."""
        return self.experiment.transport

    @cached_property
    def rates(self) -> pd.Series:
        """Examples per second of each launch, by turn."""
        return self.known("examples_per_sec")

    def known(self, column: str) -> pd.Series:
        """A column of numbers of the launches, by turn, where it is known."""
        return self.launches[column].dropna().astype(float)

    def common(self, column: str) -> int | None:
        """What all launches share of a column; None where they differ or it is unknown."""
        values = self.launches[column].dropna().unique()
        complete = len(values) == 1 and self.launches[column].notna().all()
        return int(values[0]) if complete else None

    @cached_property
    def mark(self) -> str:
        """A star if the processors may have been the limit of some launch, else nothing."""
        return MARK * bool(processors_may_limit(self.launches).any())

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The launches whose raw timings were read."""
        return _rows_where(self.launches, self.launches["mean_step_s"].notna())

    @cached_property
    def unusable(self) -> pd.DataFrame:
        """Attempts that are not ok."""
        return _rows_where(self.attempts, self.attempts["status"] != Status.OK)

    @property
    def counting(self) -> list[RunRecord]:
        """The records of the launches."""
        run_ids = set(self.launches["run_id"])
        return [record for record in self.records if record.run_id in run_ids]

    @property
    def launch_files(self) -> list[tuple[RunRecord, Path]]:
        """The records of the launches, and where they are."""
        paths = dict(zip(self.attempts["run_id"], self.attempts.index, strict=True))
        return [(record, Path(str(paths[record.run_id]))) for record in self.counting]

    @property
    def lost_repetitions(self) -> int:
        """Repetitions that no attempt completed; interrupted ones are still to be made."""
        statuses, turns = self.attempts["status"], self.attempts["repetition"]
        return len({*turns[statuses != Status.INTERRUPTED]} - {*turns[statuses == Status.OK]})


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Points that may be compared with each other, by setting and workers.

    Attributes:
        name: the model, and what sets the case apart from others of the sweep.
        conditions: what agrees between all its runs, by column; None where nothing was asked for.
        may_stop_early: the sweep was to end once its main comparison is known well enough.
        prices: of hosts, where the reader states them.
    """

    name: str
    conditions: Mapping[str, Any]
    points: tuple[Point, ...]
    may_stop_early: bool = False
    prices: Prices | None = None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """In the order of the points."""
        return tuple(dict.fromkeys(point.setting for point in self.points))

    @cached_property
    def attempts(self) -> pd.DataFrame:
        """The rows of all attempts at all points."""
        return pd.concat([point.attempts for point in self.points])

    @cached_property
    def launches(self) -> pd.DataFrame:
        """The rows that count, of all points."""
        return pd.concat([point.launches for point in self.points])

    @property
    def unit(self) -> str:
        """What throughput counts: images, rows, or of text whole examples."""
        return Unit(self.conditions["unit"]).counted

    @property
    def tokens_per_example(self) -> int | None:
        """Of text; None for everything else."""
        tokens = self.conditions["tokens_per_example"]
        return None if tokens is None else int(tokens)

    @property
    def emulated(self) -> bool:
        """The compute of this case is emulated."""
        return bool(self.conditions["compute"] == "emulated")

    @cached_property
    def shares_cores(self) -> bool:
        """Workers share cores: several lose to a single one before a byte is sent."""
        return any(point.shares_cores for point in self.points)

    def at(self, setting: Setting, num_workers: int) -> Point | None:
        """The point of a setting at a number of workers."""
        at = (p for p in self.points if (p.setting, p.num_workers) == (setting, num_workers))
        return next(at, None)


def _share_cores(record: RunRecord) -> bool:
    """Some core was dealt to two workers; emulated hosts are one machine."""
    one_machine = record.experiment.network is not None
    dealt = Counter(
        ("" if one_machine else task.host, core)
        for task in record.tasks
        if task.task.startswith(TaskType.WORKER)
        for core in task.cores
    )
    return max(dealt.values(), default=0) > 1


def _rows_where(table: pd.DataFrame, wanted: pd.Series) -> pd.DataFrame:
    """Rows of a table; to copy one of so many columns takes long, so all or none are no copy."""
    if wanted.all():
        return table
    return table[wanted] if wanted.any() else table[:0]


def processors_may_limit(runs: pd.DataFrame) -> pd.Series:
    """Whether processors may have been the limit of each run: what a mark says, wherever it stands.

    Tasks that have the cores they use may keep them busy.  Where they share cores, or their hosts
    one machine, it counts how busy the processors were; where that is not known, whether tasks
    that compute have fewer cores than they use.
    """
    one_machine, crowded = runs["network"].notna(), runs["oversubscribed"].fillna(False)
    planned = crowded & (one_machine | (runs["compute"] == "real"))
    measured = (one_machine | crowded) & (runs["busy"] >= BUSY_LIMIT).fillna(False)
    return planned.where(runs["busy"].isna(), measured).astype(bool)


def make_cases(
    table: pd.DataFrame,
    records: Mapping[str, RunRecord],
    may_stop_early: bool = False,
    prices: Prices | None = None,
    planned: Collection[str] = (),
) -> tuple[Case, ...]:
    """Group runs that may be pooled.

    Cases that were asked for last come first, those of one call in order of their names; then those
    of earlier calls, the newest first.

    Args:
        records: by the index of the table.
        may_stop_early: the sweep was to end once its main comparison is known well enough.
        prices: of hosts, where the reader states them.
        planned: runs that were asked for, each `<experiment_id>/<repetition>`.
    """
    learns = table["evaluation_steps"].notna()
    seeds = table.groupby(["seed", "repetition"]).ngroup()
    attempts = table.assign(
        turn=turns_of(table).where(~learns, seeds),
        point=[records[str(path)].experiment.point_id for path in table.index],
    ).groupby("point", sort=False)
    asked = _asked_at(attempts.head(1), records)
    groups = [group for _, group in asked.groupby(list(CONDITIONS), sort=False, dropna=False)]
    of_point = {str(key): rows for key, rows in attempts}
    names = case_names(pd.concat([group.head(1) for group in groups]))
    cases = [
        Case(
            name=name,
            conditions={column: group.iloc[0][column] for column in CONDITIONS},
            points=_points(group, of_point, records, planned),
            may_stop_early=may_stop_early,
            prices=prices,
        )
        for name, group in zip(names, groups, strict=True)
    ]
    asked_for = frozenset(key.partition("/")[0] for key in planned)
    return tuple(sorted(cases, key=lambda case: _age(case, asked_for)))


def cases_of(results: SweepResults, prices: Prices | None = None) -> tuple[Case, ...]:
    """What may be compared of the block that is analysed, in every command alike."""
    files, asked = results.files, results.files.definition
    return make_cases(
        results.block.table, files.records, asked.may_stop_early, prices, asked.planned
    )


def _asked_at(runs: pd.DataFrame, records: Mapping[str, RunRecord]) -> pd.DataFrame:
    """What was asked for at every point, of which there is one run; None where nothing was."""
    runs = runs.assign(model=model_names(runs, records), input=input_names(runs))
    asked = _objects(runs.set_index("point"))
    asked.loc[asked["evaluation_steps"].notna(), [*_OF_LAUNCHES]] = None
    asked.loc[_may_differ_in_lengths(asked), [*LENGTHS]] = None
    return asked


def _may_differ_in_lengths(asked: pd.DataFrame) -> pd.Series:
    """Points that were measured for other lengths than others of the case, each for one."""
    lengths = _numbered(asked, LENGTHS)
    if lengths.nunique() < 2:
        return pd.Series(False, asked.index)
    others = [name for name in CONDITIONS if name not in LENGTHS]
    case = _numbered(asked, others)
    again = asked.duplicated([*others, *SETTINGS, "num_workers"], keep=False)
    several = lengths.groupby(case).transform("nunique") > 1
    return several & ~again.groupby(case).transform("any")


def _numbered(table: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """Numbers of rows; those are equal that have the same values."""
    return table.groupby([*columns], sort=False, dropna=False).ngroup()


def _age(case: Case, asked_for: frozenset[str]) -> tuple[bool, float, str]:
    """What orders cases; `asked_for` holds the identities of points."""
    if not asked_for.isdisjoint(case.attempts["experiment_id"]):
        return False, 0.0, case.name
    return True, -case.attempts["started_at"].max().timestamp(), case.name


def _objects(table: pd.DataFrame) -> pd.DataFrame:
    """The values as Python has them; None where one is not known."""
    values = table.to_numpy(dtype=object)
    values[table.isna().to_numpy()] = None
    return pd.DataFrame(values, table.index, table.columns, dtype=object)


def _points(
    asked: pd.DataFrame,
    attempts: Mapping[str, pd.DataFrame],
    records: Mapping[str, RunRecord],
    planned: Collection[str],
) -> tuple[Point, ...]:
    points = [
        _point(own, setting, attempts[str(key)], records, planned)
        for (key, own), setting in zip(asked.iterrows(), settings_of(asked), strict=True)
    ]
    return tuple(sorted(points, key=_order))


def _point(
    asked: pd.Series,
    setting: Setting,
    attempts: pd.DataFrame,
    records: Mapping[str, RunRecord],
    planned: Collection[str],
) -> Point:
    begun = set(attempts["experiment_id"] + "/" + attempts["repetition"].astype(str))
    own_ids = set(attempts["experiment_id"])
    good = attempts[(attempts["status"] == Status.OK) & attempts["examples_per_sec"].notna()]
    in_order = tuple(records[str(path)] for path in attempts.index)
    return Point(
        setting=setting,
        experiment=in_order[0].experiment,
        asked=asked,
        attempts=attempts,
        launches=good.drop_duplicates(["experiment_id", "repetition"], keep="last").set_index(
            "turn"
        ),
        records=in_order,
        planned=len(begun.union(key for key in planned if key.partition("/")[0] in own_ids)),
    )


def _order(point: Point) -> tuple[object, ...]:
    names = ("strategy", "layout", "placement")
    strategy, layout, placement = (point.attempts[name].cat.codes.iloc[0] for name in names)
    exchange = exchange_order(point.asked)
    servers = point.setting.num_ps or 0
    label, workers = point.setting.label, point.num_workers
    return strategy, servers, layout, placement, exchange, label, workers
