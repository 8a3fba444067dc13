"""Which runs belong together: cases, settings and points.

A *case* is what may be compared: one workload on the same resources through the same launcher.  A
*setting* is a way to train it: a strategy with its servers and placement, or its collective.  A
*point* is a setting at a number of workers, with all its attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ps_allreduce.experiment import Collective, Experiment, Profile, Resources, Workload
from ps_allreduce.placement import Policy
from ps_allreduce.records import RunRecord, Status
from ps_allreduce.serialization import to_json
from ps_allreduce.spread import LayoutKind
from ps_allreduce.steps import Metrics
from ps_allreduce.strategies import TRAITS, Strategy, StrategyTraits


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A way to train, whatever the number of workers.

    Attributes:
        num_ps: None where the number of servers follows the number of workers.
        label: short, and different from that of every other setting of its case.
    """

    strategy: Strategy
    num_ps: int | None
    placement: Policy | None
    split_bytes: int | None
    layout: LayoutKind | None
    collective: Collective | None
    bytes_per_pack: int | None
    label: str

    @property
    def traits(self) -> StrategyTraits:
        """What sets its strategy apart."""
        return TRAITS[self.strategy]


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
    def total_cores(self) -> int | None:
        """Cores of all tasks together; None where launches differ or there is none."""
        found = {record.total_cores for record in self.launches.values()}
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
class Case:
    """Points that may be compared with each other, by setting and workers.

    Attributes:
        name: the model, and what sets the case apart from others of the sweep.
    """

    name: str
    workload: Workload
    launcher: str
    resources: Resources
    profile: Profile
    points: tuple[Point, ...]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """In the order of the points."""
        return tuple(dict.fromkeys(point.setting for point in self.points))

    @property
    def emulated(self) -> bool:
        """The compute of this case is emulated."""
        return self.workload.emulated is not None

    def at(self, setting: Setting, num_workers: int) -> Point | None:
        """The point of a setting at a number of workers."""
        for point in self.points:
            if point.setting == setting and point.num_workers == num_workers:
                return point
        return None

    def of(self, setting: Setting) -> tuple[Point, ...]:
        """The points of a setting, by number of workers."""
        return tuple(point for point in self.points if point.setting == setting)


def make_cases(records: Iterable[RunRecord]) -> tuple[Case, ...]:
    """Group records, in order of the cases' names."""
    groups: dict[tuple[Workload, str, Resources, Profile], list[RunRecord]] = {}
    for record in records:
        own = record.experiment
        key = (own.workload, own.launcher, own.resources, own.profile)
        groups.setdefault(key, []).append(record)
    names = _case_names(list(groups))
    cases = [
        Case(
            name=names[position],
            workload=workload,
            launcher=launcher,
            resources=resources,
            profile=profile,
            points=_points(groups[workload, launcher, resources, profile]),
        )
        for position, (workload, launcher, resources, profile) in enumerate(groups)
    ]
    return tuple(sorted(cases, key=lambda case: case.name))


def _case_names(keys: Sequence[tuple[Workload, str, Resources, Profile]]) -> list[str]:
    """The model, then whatever differs between the cases of one sweep."""
    described = [_flat(key) for key in keys]
    names = []
    for mine in described:
        rivals = [other for other in described if other["model"] == mine["model"]]
        distinct = [
            f"{name} {mine.get(name, 'none')}"
            for name in sorted(set().union(*rivals))
            if len({str(other.get(name)) for other in rivals}) > 1
        ]
        names.append(", ".join([str(mine["model"]), *distinct]))
    return names


def _flat(key: tuple[Workload, str, Resources, Profile]) -> dict[str, object]:
    workload, launcher, resources, profile = key
    emulated = to_json(workload.emulated) if workload.emulated else {}
    own = {name: value for name, value in to_json(workload).items() if name != "emulated"}
    rest = {f"profile_{name}": value for name, value in to_json(profile).items()}
    return {**own, **emulated, "launcher": launcher, **to_json(resources), **rest}


def _points(records: Sequence[RunRecord]) -> tuple[Point, ...]:
    by_experiment: dict[str, list[RunRecord]] = {}
    for record in records:
        by_experiment.setdefault(record.experiment_id, []).append(record)
    experiments = [group[0].experiment for group in by_experiment.values()]
    settings = _settings(experiments)
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


def _order(point: Point) -> tuple[int, int, int, int, str, int]:
    own = point.setting
    return (
        list(Strategy).index(own.strategy),
        own.num_ps or 0,
        -1 if own.placement is None else list(Policy).index(own.placement),
        own.bytes_per_pack or 0,
        own.label,
        point.num_workers,
    )


def _settings(experiments: Sequence[Experiment]) -> list[Setting]:
    follows = _servers_follow_workers(experiments)
    return [
        Setting(
            strategy=own.strategy,
            num_ps=None if follows else own.num_ps,
            placement=own.placement,
            split_bytes=own.split_bytes,
            layout=own.layout,
            collective=own.collective,
            bytes_per_pack=own.bytes_per_pack,
            label=_label(own, experiments, follows),
        )
        for own in experiments
    ]


def _servers_follow_workers(experiments: Sequence[Experiment]) -> bool:
    """Every number of workers has one number of servers, so that is no setting of its own."""
    with_servers = sorted(
        (own.num_workers, own.num_ps) for own in experiments if own.traits.uses_servers
    )
    grouped = groupby(with_servers, key=lambda pair: pair[0])
    counts = [{num_ps for _, num_ps in pairs} for _, pairs in grouped]
    return all(len(found) == 1 for found in counts) and len(set().union(*counts)) > 1


def _label(own: Experiment, experiments: Sequence[Experiment], follows: bool) -> str:
    """The strategy and whatever differs between the settings of that strategy."""
    rivals = [other for other in experiments if other.strategy is own.strategy]

    def varies(name: str) -> bool:
        return len({getattr(other, name) for other in rivals}) > 1

    parts = [str(own.strategy)]
    if own.traits.uses_servers:
        parts.append(str(own.placement))
        if not follows and varies("num_ps"):
            parts.append(f"{own.num_ps} ps")
        if own.layout is not None and varies("layout"):
            parts.append(str(own.layout))
        if own.split_bytes is not None and len({o.split_bytes for o in rivals} - {None}) > 1:
            parts.append(f"split {own.split_bytes / 1e6:g} MB")
    if own.traits.uses_collective and varies("collective"):
        parts.append(str(own.collective))
    if own.bytes_per_pack is not None and varies("bytes_per_pack"):
        parts.append(pack_label(own.bytes_per_pack))
    return ", ".join(parts)


def pack_label(bytes_per_pack: int) -> str:
    """How a pack size is written; 0 is one pack for all gradients."""
    return f"{bytes_per_pack / 1e6:g} MB packs" if bytes_per_pack else "one pack"


def workers_text(count: int) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} worker{'s' * (count != 1)}"
