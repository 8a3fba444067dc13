"""Which runs belong together: cases and points.

A *case* is what may be compared: one workload under the same conditions.  A *setting* is a way to
train it: a strategy with its servers and placement, or its collective.  A *point* is a setting at a
number of workers, with all its attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from analysis.data.settings import Setting, exchange_order, settings_of
from analysis.wording import network_text
from ps_allreduce.point.experiment import Experiment, Profile, Resources
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.spread import LayoutKind
from ps_allreduce.point.strategies import Strategy
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.records import BUSY_LIMIT, RunRecord, Status
from ps_allreduce.record.steps import Metrics
from ps_allreduce.serialization import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A setting at a number of workers.

    Attributes:
        attempts: all records of it, by repetition and attempt.
    """

    setting: Setting
    experiment: Experiment
    attempts: tuple[RunRecord, ...]

    @property
    def num_workers(self) -> int:
        """Workers of this point."""
        return self.experiment.num_workers

    @property
    def launches(self) -> Mapping[int, RunRecord]:
        """The run that counts for each repetition: the last one that is ok."""
        good = [record for record in self.attempts if record.status is Status.OK]
        return {record.repetition: record for record in good}

    @property
    def rates(self) -> dict[int, float]:
        """Images per second of each launch, by repetition."""
        return {key: metrics.images_per_sec for key, metrics in self.metrics.items()}

    @property
    def metrics(self) -> dict[int, Metrics]:
        """Figures of each launch, by repetition."""
        return {key: run.metrics for key, run in self.launches.items() if run.metrics is not None}

    @property
    def oversubscribed(self) -> bool:
        """Some launch had fewer cores than its tasks use."""
        return any(record.oversubscribed for record in self.launches.values())

    @property
    def machine_limited(self) -> bool:
        """In some launch the processors of the one machine below may have been the limit."""
        return any(machine_was_limit(record) for record in self.launches.values())

    @property
    def total_cores(self) -> int | None:
        """Cores of all tasks together; None where launches differ or there is none."""
        return self._common(lambda record: record.total_cores)

    @property
    def num_hosts(self) -> int | None:
        """Hosts of all tasks together; None where launches differ or it is unknown."""
        return self._common(lambda record: len(record.hosts) or None)

    def _common(self, value: Callable[[RunRecord], int | None]) -> int | None:
        found = {value(record) for record in self.launches.values()}
        return found.pop() if len(found) == 1 else None

    @property
    def unusable(self) -> tuple[RunRecord, ...]:
        """Attempts that are not ok."""
        return tuple(record for record in self.attempts if record.status is not Status.OK)

    @property
    def lost_repetitions(self) -> tuple[RunRecord, ...]:
        """The last attempt of every repetition that no attempt completed."""
        last = {record.repetition: record for record in self.attempts}
        return tuple(record for key, record in last.items() if key not in self.launches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What must agree between runs that are compared.

    Attributes:
        network: that is emulated; None for networks as they are.
        interface: as asked for; None where the launcher chose.
        workers_per_host: None where all tasks share one host.
    """

    workload: Workload
    launcher: str
    network: EmulatedNetwork | None
    interface: str | None
    workers_per_host: int | None
    resources: Resources
    profile: Profile

    @classmethod
    def of(cls, own: Experiment) -> Conditions:
        """Those of an experiment."""
        return cls(
            workload=own.workload,
            launcher=own.launcher,
            network=own.network,
            interface=own.interface,
            workers_per_host=None if own.spread is None else own.spread.workers_per_host,
            resources=own.resources,
            profile=own.profile,
        )

    def described(self) -> dict[str, object]:
        """All items by name, nested ones side by side."""
        load, network = self.workload, self.network
        return {
            **{name: value for name, value in to_json(load).items() if name != "emulated"},
            **(to_json(load.emulated) if load.emulated else {}),
            "launcher": self.launcher,
            "network": network_text(network) if network else None,
            "network_hosts": network.num_hosts if network else None,
            "interface": self.interface,
            "workers_per_host": self.workers_per_host,
            **to_json(self.resources),
            **{f"profile_{name}": value for name, value in to_json(self.profile).items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Points that may be compared with each other, by setting and workers.

    Attributes:
        name: the model, and what sets the case apart from others of the sweep.
    """

    name: str
    conditions: Conditions
    points: tuple[Point, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """In the order of the points."""
        return tuple(dict.fromkeys(point.setting for point in self.points))

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """All attempts at all points."""
        return tuple(record for point in self.points for record in point.attempts)

    @property
    def emulated(self) -> bool:
        """The compute of this case is emulated."""
        return self.conditions.workload.emulated is not None

    def at(self, setting: Setting, num_workers: int) -> Point | None:
        """The point of a setting at a number of workers."""
        for point in self.points:
            if point.setting == setting and point.num_workers == num_workers:
                return point
        return None

    def of(self, setting: Setting) -> tuple[Point, ...]:
        """The points of a setting, by number of workers."""
        return tuple(point for point in self.points if point.setting == setting)


def machine_was_limit(record: RunRecord) -> bool:
    """Emulated hosts kept their one machine busy, or it is not known that they did not."""
    if record.machine_busy is None:
        return record.experiment.network is not None and len(record.hosts) > 1
    return record.machine_busy >= BUSY_LIMIT


def make_cases(records: Iterable[RunRecord]) -> tuple[Case, ...]:
    """Group records, in order of the cases' names."""
    groups: dict[Conditions, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(Conditions.of(record.experiment), []).append(record)
    names = _case_names(list(groups))
    cases = [
        Case(name=name, conditions=conditions, points=_points(group))
        for name, (conditions, group) in zip(names, groups.items(), strict=True)
    ]
    return tuple(sorted(cases, key=lambda case: case.name))


def _case_names(found: Sequence[Conditions]) -> list[str]:
    """The model, then whatever differs between the cases of one sweep."""
    described = [conditions.described() for conditions in found]
    names = []
    for mine in described:
        rivals = [other for other in described if other["model"] == mine["model"]]
        distinct = [
            f"{name} {_text(mine.get(name))}"
            for name in sorted(set().union(*rivals))
            if len({str(other.get(name)) for other in rivals}) > 1
        ]
        names.append(", ".join([str(mine["model"]), *distinct]))
    return names


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def _points(records: Sequence[RunRecord]) -> tuple[Point, ...]:
    by_experiment: dict[str, list[RunRecord]] = {}
    for record in records:
        by_experiment.setdefault(record.experiment_id, []).append(record)
    experiments = [group[0].experiment for group in by_experiment.values()]
    settings = settings_of(experiments)
    points = [
        Point(
            setting=setting,
            experiment=experiment,
            attempts=tuple(sorted(group, key=lambda run: (run.repetition, run.attempt))),
        )
        for setting, experiment, group in zip(
            settings, experiments, by_experiment.values(), strict=True
        )
    ]
    return tuple(sorted(points, key=_order))


def _order(point: Point) -> tuple[object, ...]:
    own = point.setting
    return (
        list(Strategy).index(own.strategy),
        own.num_ps or 0,
        -1 if own.layout is None else list(LayoutKind).index(own.layout),
        -1 if own.placement is None else list(Policy).index(own.placement),
        exchange_order(point.experiment),
        own.label,
        point.num_workers,
    )
