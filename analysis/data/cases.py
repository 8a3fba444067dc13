"""Which runs belong together: cases and points.

A *case* is what may be compared: one workload under the same conditions.  A *setting* is a way to
train it: a strategy with its servers and placement, or its collective.  A *point* is a setting at a
number of workers, with all its attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.data.columns import CONDITIONS
from analysis.data.exchange import exchange_order
from analysis.data.setting import Setting, settings_of
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import LayoutKind
from ps_allreduce.point.strategies import STRATEGIES
from ps_allreduce.record.records import BUSY_LIMIT, RunRecord, Status

#: Conditions that users ask for under a shorter name.
_ASKED = "asked_"


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A setting at a number of workers.

    Attributes:
        asked: what was asked for, by column; None where nothing was.
        attempts: rows of all attempts, by repetition and attempt.
        launches: the rows that count, by repetition: of each the last one that is ok.
        records: those of the attempts, in the same order.
    """

    setting: Setting
    experiment: Experiment
    asked: pd.Series
    attempts: pd.DataFrame
    launches: pd.DataFrame
    records: tuple[RunRecord, ...]

    @property
    def num_workers(self) -> int:
        """Workers of this point."""
        return self.experiment.num_workers

    @property
    def transport(self) -> str | None:
        """What carries the gradients; None where nothing is carried."""
        return self.experiment.strategy.transport

    @cached_property
    def rates(self) -> pd.Series:
        """Examples per second of each launch, by repetition."""
        return self.known("examples_per_sec")

    def known(self, column: str) -> pd.Series:
        """A column of numbers of the launches, by repetition, where it is known."""
        return self.launches[column].dropna().astype(float)

    def common(self, column: str) -> int | None:
        """What all launches share of a column; None where they differ or it is unknown."""
        values = self.launches[column].dropna().unique()
        complete = len(values) == 1 and self.launches[column].notna().all()
        return int(values[0]) if complete else None

    @property
    def oversubscribed(self) -> bool:
        """Some launch had fewer cores than its tasks use."""
        return bool(self.launches["oversubscribed"].any())

    @cached_property
    def machine_limited(self) -> bool:
        """In some launch the processors of the one machine below may have been the limit."""
        return bool(machine_was_limit(self.launches).any())

    @cached_property
    def unusable(self) -> pd.DataFrame:
        """Attempts that are not ok."""
        return self.attempts[self.attempts["status"] != Status.OK]

    @property
    def lost_repetitions(self) -> int:
        """Repetitions that no attempt completed."""
        return len(set(self.attempts["repetition"]) - set(self.launches.index))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Points that may be compared with each other, by setting and workers.

    Attributes:
        name: the model, and what sets the case apart from others of the sweep.
        conditions: what agrees between all its runs, by column; None where nothing was asked for.
    """

    name: str
    conditions: Mapping[str, Any]
    points: tuple[Point, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """In the order of the points."""
        return tuple(dict.fromkeys(point.setting for point in self.points))

    @property
    def attempts(self) -> pd.DataFrame:
        """The rows of all attempts at all points."""
        return pd.concat([point.attempts for point in self.points])

    @property
    def launches(self) -> pd.DataFrame:
        """The rows that count, of all points."""
        return pd.concat([point.launches for point in self.points])

    @property
    def unit(self) -> str:
        """What throughput counts: images, tokens, rows."""
        return str(self.conditions["unit"])

    @property
    def emulated(self) -> bool:
        """The compute of this case is emulated."""
        return bool(self.conditions["compute"] == "emulated")

    def at(self, setting: Setting, num_workers: int) -> Point | None:
        """The point of a setting at a number of workers."""
        for point in self.points:
            if point.setting == setting and point.num_workers == num_workers:
                return point
        return None


def machine_was_limit(runs: pd.DataFrame) -> pd.Series:
    """Whether emulated hosts kept their one machine busy, or it is not known that they did not."""
    unknown = runs["machine_busy"].isna()
    several = runs["network"].notna() & (runs["num_hosts"] > 1).fillna(False)
    return (runs["machine_busy"] >= BUSY_LIMIT).fillna(False) | (unknown & several)


def make_cases(table: pd.DataFrame, records: Mapping[str, RunRecord]) -> tuple[Case, ...]:
    """Group runs that may be pooled, in order of the cases' names.

    Args:
        records: by the index of the table.
    """
    experiments = table.drop_duplicates("experiment_id").set_index("experiment_id", drop=False)
    # A folder that was moved holds the same data still.
    experiments["input"] = experiments["input_checksum"].fillna(experiments["input"])
    asked = experiments.astype(object).where(experiments.notna(), None)
    groups = list(asked.groupby(list(CONDITIONS), sort=False, dropna=False))
    names = _case_names(pd.concat([group.head(1) for _, group in groups]))
    cases = [
        Case(
            name=name,
            conditions={column: group.iloc[0][column] for column in CONDITIONS},
            points=tuple(_points(group, table, records)),
        )
        for name, (_, group) in zip(names, groups, strict=True)
    ]
    return tuple(sorted(cases, key=lambda case: case.name))


def _case_names(cases: pd.DataFrame) -> list[str]:
    """The model, then whatever differs between the cases of one sweep."""
    described = cases[list(CONDITIONS)].rename(columns=_shown)
    names = []
    for _, own in described.iterrows():
        rivals = described[described["model"] == own["model"]]
        differing = [name for name in rivals if len(set(map(str, rivals[name]))) > 1]
        distinct = [f"{name} {_text(own[name])}" for name in sorted(differing)]
        names.append(", ".join([own["model"], *distinct]))
    return names


def _shown(column: str) -> str:
    return column.removeprefix(_ASKED)


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def _points(
    asked: pd.DataFrame, table: pd.DataFrame, records: Mapping[str, RunRecord]
) -> Iterator[Point]:
    attempts = dict(iter(table.groupby("experiment_id", sort=False)))
    found = [
        _point(own, setting, attempts[str(own["experiment_id"])], records)
        for (_, own), setting in zip(asked.iterrows(), settings_of(asked), strict=True)
    ]
    yield from sorted(found, key=_order)


def _point(
    asked: pd.Series, setting: Setting, runs: pd.DataFrame, records: Mapping[str, RunRecord]
) -> Point:
    attempts = runs.sort_values(["repetition", "attempt"])
    good = attempts[(attempts["status"] == Status.OK) & attempts["examples_per_sec"].notna()]
    in_order = tuple(records[str(path)] for path in attempts.index)
    return Point(
        setting=setting,
        experiment=in_order[0].experiment,
        asked=asked,
        attempts=attempts,
        launches=good.drop_duplicates("repetition", keep="last").set_index("repetition"),
        records=in_order,
    )


def _order(point: Point) -> tuple[object, ...]:
    layout, placement = point.asked["layout"], point.asked["placement"]
    return (
        list(STRATEGIES).index(point.setting.strategy),
        point.setting.num_ps or 0,
        -1 if layout is None else list(LayoutKind).index(layout),
        -1 if placement is None else list(Policy).index(placement),
        exchange_order(point.asked),
        point.setting.label,
        point.num_workers,
    )
