"""Rows of the wire: what launches reached of their bounds, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from analysis.suite.wire_targets import wire_table
from analysis.suite.wire_text import render_wire
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.strategies.all_reduce import Packs
from ps_allreduce.point.strategies.base import Altered
from ps_allreduce.point.wire import UNBUCKETED, Wire
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import RunRecord, Status
from tests.analysis.builders import links_between, metrics, placement_used, run, table_of, tasks_on
from tests.fakes import make_experiment, make_host

NETWORK = EmulatedNetwork(num_hosts=6, bits_per_s=1e9)

SILENT = EmulatedCompute(forward_s=0.001, backward_s=0.001, groups=1)


def a_point(
    strategy: type[AnyStrategy] = SynchronousServers,
    compute: EmulatedCompute = SILENT,
    **changes: Any,
) -> Experiment:
    """Two workers that send 25 MB, to one server if there are any."""
    model = TensorSet(count=16, num_bytes=25_000_000)
    settings = {"num_ps": 1} if strategy.uses_servers else {}
    return make_experiment(
        strategy,
        workload=Workload(model=model, batch_per_worker=1, emulated=compute),
        launcher="emulated",
        network=NETWORK,
        spread=Spread(),
        **(({} if strategy.as_shipped else {"wire": Wire()}) | settings | changes),
    )


def launch(point: Experiment, rate: float | None, repetition: int = 0, **changes: Any) -> RunRecord:
    """Two workers and a server on hosts of their own, links of 1 Gbit/s of which one looked slower.

    Args:
        rate: rows per second; a step has two.
    """
    places = {"worker:0": "a", "worker:1": "b", "ps:0": "c"}
    settings: dict[str, Any] = {
        "attempt": 0,
        "metrics": metrics(rate) if rate else None,
        "gradient_bytes": 25_000_000,
        "hosts": tuple(map(make_host, "abc")),
        "links": (*links_between("ab", 0.9e9), *links_between("bc", 1e9)),
        "tasks": tasks_on(places),
        "placement": placement_used(25_000_000) if point.num_ps else None,
    }
    return run(point, rate, repetition, **(settings | changes))


def tabled(*records: RunRecord) -> pd.DataFrame:
    return wire_table(*table_of(records))


def only_row(*records: RunRecord) -> Mapping[str, Any]:
    (row,) = tabled(*records).to_dict("records")
    return {str(name): value for name, value in row.items()}


@pytest.mark.parametrize(
    ("point", "bound_s", "target"),
    [
        pytest.param(a_point(), 0.4, 0.93, id="server"),
        pytest.param(a_point(AllReduce), 0.2, 0.92, id="ring"),
        pytest.param(
            a_point(compute=EmulatedCompute(forward_s=0.1, backward_s=0.2)), 0.5, 0.85, id="overlap"
        ),
        pytest.param(a_point(wire=UNBUCKETED), 0.4, None, id="unbucketed"),
    ],
)
def test_a_step_is_held_against_the_fastest_link(
    point: Experiment, bound_s: float, target: float | None
) -> None:
    row = only_row(launch(point, 2 * 0.8 / bound_s))
    assert row["link_bits_per_s"] == 1e9
    assert row["step_s"] == pytest.approx(bound_s / 0.8)
    assert row["bound_s"] == pytest.approx(bound_s)
    assert row["fraction_of_bound"] == pytest.approx(0.8)
    assert (row["gradient_bytes"], row["num_tensors"]) == (25_000_000, 16)
    assert (row["met"], row["reason"]) == (None if target is None else False, "")
    assert row["target"] == target or target is None


def test_the_median_of_the_launches_counts() -> None:
    row = only_row(*(launch(a_point(), rate, n) for n, rate in enumerate((4.8, 4.7, 4.0))))
    assert (row["met"], row["repetitions"]) == (True, 3)
    assert row["fraction_of_bound"] == pytest.approx(0.94)
    assert (row["fraction_low"], row["fraction_high"]) == (pytest.approx(0.8), pytest.approx(0.96))


def test_one_launch_that_failed_is_a_miss_with_its_reason() -> None:
    row = only_row(launch(a_point(), 4.8), launch(a_point(), None, 1))
    assert (row["met"], row["repetitions"]) == (False, 1)
    assert row["reason"] == f"{Status.FAILED}: worker:1 ended with signal 9"


def test_what_is_faster_than_its_links_is_to_be_measured_again() -> None:
    # A bound of 0.4 s, and two rows per step: 0.2 of the bound for each row per second.
    assert only_row(launch(a_point(), 5.245))["met"]
    table = tabled(launch(a_point(), 5.255))
    assert list(table["met"]) == [False]
    text = render_wire(table)
    assert any("1.051 of the bound cannot be" in line for line in text)
    assert text[-2].startswith("To measure these again, move the records away")
    assert a_point().experiment_id in text[-1]


def test_the_table_says_what_is_reached_and_what_processors_cost() -> None:
    costs = {"cpu_s_per_gigabyte": 6.0, "core_bits_per_s": 2e9, "machine_busy": 0.5}
    records = [launch(a_point(), 4.9), launch(a_point(AllReduce), 5.0)]
    plain = launch(a_point(wire=UNBUCKETED), 4.0)
    table, named = table_of([*records, plain])
    for name, value in costs.items():
        table[name] = value
        table.loc[table["experiment_id"] == plain.experiment_id, name] = value / 2
    text = render_wire(wire_table(table, named))
    assert [line.split()[0] for line in text[1:4]] == ["allreduce", "ps_sync", "ps_sync"]
    heading, _, served = text[:3]
    for name, shown in {"fraction": "0.980", "busy": "0.50", "Gbit/s per core": "2.00"}.items():
        assert served.index(shown) + len(shown) == heading.index(name) + len(name)
    assert served.endswith(" met")
    assert text[3].endswith("unbucketed")
    assert "allreduce: 0 of 1 rows reach 0.92; worst 0.500 (allreduce, 2 workers, 25 MB" in text[4]
    assert "ps_sync: 1 of 1 rows reach 0.93; worst 0.980 (ps_sync, 2 workers, 1 ps" in text[5]
    assert text[-1] == (
        "ps_sync: one core per host keeps up with links of 2.00 Gbit/s (2.00 to 2.00); processor "
        "time per byte 2.00 of unbucketed"
    )


def test_rows_that_are_slower_than_plain_tensorflow_are_named() -> None:
    def launched(strategy: type[AnyStrategy], rate: float | None, **changes: Any) -> RunRecord:
        point = a_point(strategy)
        return launch(replace(point, strategy=replace(point.strategy, **changes)), rate)

    unbucketed, one_pack = {"wire": UNBUCKETED}, {"sending": Packs()}
    # A step has two rows, and its bound is 0.4 s with a server and 0.2 s in a ring.
    fused = {"altered": Altered.OPTIMIZER}
    stock = [launched(StockServers, 4.4), launched(StockAllReduce, 8.0)]
    stock += [launched(StockServers, 4.3, **fused), launched(StockAllReduce, 6.0, **fused)]
    suite = [
        launched(AsynchronousServers, 4.0),
        launched(AsynchronousServers, 4.6, **unbucketed),
        launched(AsynchronousServers, 4.6, wire=Wire(in_flight=0)),
        launched(SynchronousServers, 1.0),  # trains in another way
        launched(AllReduce, 9.0),
        launched(AllReduce, 5.0, **one_pack),
    ]
    text = render_wire(tabled(*suite, *stock))
    ends = ["unbucketed", "pack", "optimizer", "optimizer"]
    assert [line.split()[-1] for line in text[5:9]] == ends
    where = "2 workers, 1 ps colocated, 25 MB in 16 tensors"
    assert text[-3:] == [
        "2 of 5 rows of the suite are slower than plain TensorFlow at the same point:",
        f"  ps_async, {where}: 0.500 s, stock_ps 0.455 s: 1.10 times as long; most by the "
        "limit of messages in flight (1.15)",
        "  allreduce, one pack, 2 workers, 25 MB in 16 tensors: 0.400 s, stock_allreduce 0.250 s: "
        "1.60 times as long; most by the fused optimizer (1.33)",
    ]
    assert not any("plain" in line for line in render_wire(tabled(*suite)))
    failed = render_wire(tabled(*suite, stock[0], launched(StockAllReduce, None)))
    assert any(line.startswith("1 of 3 rows of the suite") for line in failed)
