"""What is written is read back the same; what is damaged or misspelt is refused with its place."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Shard
from ps_allreduce.record.hosts import Gpu
from ps_allreduce.record.records import (
    LinkRecord,
    Phases,
    RunRecord,
    Sample,
    Status,
    TaskRecord,
)
from ps_allreduce.record.step_table import Metrics
from ps_allreduce.record.variables import PlacementUsed
from ps_allreduce.serialization import (
    Columns,
    changed_parts,
    column,
    from_json,
    parse_json,
    to_json,
)
from tests.examples import experiments, fast, seconds
from tests.fakes import METRICS, make_experiment, make_facts, make_host, make_record


@dataclass(frozen=True, kw_only=True)
class Told(Columns):
    kind_column: ClassVar[str | None] = "what"
    kind: ClassVar[str] = "told"

    renamed: int = field(default=1, metadata=column("name"))
    unsaid: int = field(default=2, metadata=column(None))
    status: Status = Status.OK
    plain: bool = False


def test_fields_are_columns_and_what_is_changed_is_said() -> None:
    assert Told(unsaid=3).columns() == {"what": "told", "name": 1, "status": "ok", "plain": False}
    assert changed_parts(Told(renamed=4, plain=True)) == ["renamed 4", "plain"]


COUNTS = st.integers(0, 1 << 60)


def through_a_file(value: object) -> Any:
    """What a reader gets of a value."""
    return json.loads(json.dumps(to_json(value)))


@fast
@given(experiments())
def test_an_experiment_is_read_back_as_itself(experiment: Experiment) -> None:
    again = from_json(Experiment, through_a_file(experiment))
    assert again == experiment
    assert again.experiment_id == experiment.experiment_id


def several(some: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(some, max_size=3).map(tuple)


def records() -> st.SearchStrategy[RunRecord]:
    tasks = st.builds(
        TaskRecord,
        task=st.just("worker:0"),
        host=st.text(),
        address=st.text(),
        cores=several(st.integers(0, 99)),
        gpus=st.none() | st.text(),
        pid=COUNTS,
        exit=st.none() | st.integers(-64, 255),
        cpu_s=st.none() | seconds(),
    )
    samples = st.builds(
        Sample,
        time=seconds(),
        host=st.text(),
        busy_s=seconds(),
        idle_s=seconds(),
        cpu_s=st.dictionaries(st.text(), seconds(), max_size=2),
        memory_bytes=st.dictionaries(st.text(), COUNTS, max_size=2),
        sent_bytes=st.dictionaries(st.text(), COUNTS, max_size=2),
        received_bytes=st.just({}),
    )
    placements = st.builds(
        PlacementUsed,
        shards=several(st.builds(Shard, variable=COUNTS, server=COUNTS, num_bytes=COUNTS)),
        variables=several(st.text()),
        bytes_per_server=several(COUNTS),
        max_over_mean=seconds(),
    )
    metrics = st.builds(
        lambda counts, **spans: replace(METRICS, steps_per_worker=tuple(counts), **spans),
        st.lists(st.integers(1, 1 << 60), min_size=1, max_size=3),
        examples_per_sec=st.floats(1e-3, 1e6),
        communication_s=seconds().map(lambda value: -value),
        window_s=st.floats(1e-3, 1e6),
    )
    hosts = st.builds(
        make_host,
        st.text(),
        clock_offset_s=seconds().map(lambda value: -value),
        import_s=st.none() | seconds(),
        facts=st.builds(
            make_facts,
            gpus=several(st.builds(Gpu, identity=st.text(), model=st.text())),
            versions=st.dictionaries(st.text(), st.text(), max_size=2),
        ),
    )
    links = st.builds(
        LinkRecord, source=st.text(), target=st.text(), bits_per_s=seconds(), round_trip_s=seconds()
    )
    return st.builds(
        make_record,
        experiment=experiments(),
        metrics=metrics,
        tasks=st.lists(tasks, min_size=1, max_size=3).map(tuple),
        samples=several(samples),
        placement=st.none() | placements,
        phases=st.builds(Phases, bring_up_s=st.none() | seconds()),
        warnings=several(st.text()),
        hosts=several(hosts),
        links=several(links),
        machine_busy=st.none() | st.floats(0, 1),
    )


@fast
@given(records())
def test_a_record_is_read_back_as_itself(record: RunRecord) -> None:
    assert from_json(RunRecord, through_a_file(record)) == record


@pytest.mark.parametrize("kind", ["ps", [], None])
def test_a_strategy_of_no_known_kind_is_told_which_there_are(kind: object) -> None:
    content = through_a_file(make_experiment()) | {"strategy": {"kind": kind}}
    with pytest.raises(RecordFormatError, match=r"strategy: unknown kind .*one of single, no"):
        from_json(Experiment, content)


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_a_record_is_an_object(value: object) -> None:
    with pytest.raises(RecordFormatError, match="top level: expected an object"):
        from_json(RunRecord, value)


def test_whole_numbers_may_stand_for_real_ones() -> None:
    metrics = from_json(Metrics, through_a_file(METRICS) | {"compute_s": 1})
    assert isinstance(metrics.compute_s, float)


def test_what_makes_no_sense_is_refused_though_its_types_are_right() -> None:
    content = through_a_file(make_experiment())
    with pytest.raises(UserError, match="num_workers must be at least 1"):
        from_json(Experiment, content | {"num_workers": 0})


def test_what_has_no_json_form_is_a_defect() -> None:
    with pytest.raises(TypeError, match=r"Path has no JSON form"):
        to_json({"path": Path("x")})


def test_enumerations_are_written_by_value() -> None:
    assert to_json((Status.TIMED_OUT, None, True)) == ["timed_out", None, True]


def test_a_repeated_key_is_refused() -> None:
    with pytest.raises(ValueError, match="key 'a' is repeated"):
        parse_json('{"b": {"a": 1, "a": 2}}')


def test_values_nested_too_deeply_are_no_defect() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)
    with pytest.raises(RecordFormatError, match=r"\[+\.\.\.\]+ is not a valid"):
        from_json(Status, parse_json("[" * 500 + "]" * 500))
