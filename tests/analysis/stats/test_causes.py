"""Why one point is faster: the largest part comes first, and equals have no cause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.data.cases import Case, make_cases
from analysis.derive.network_causes import better_placement, network_causes
from analysis.figures.bars import explanation_data, plot_explanation
from analysis.report.explanation import (
    MEANINGS,
    explanation_lines,
    explanation_note,
    explanation_sentence,
    explanation_table,
    main_reason,
)
from analysis.report.pages.case_pages import CASE_PAGES
from analysis.report.pages.page_parts import CaseReport, PagePart
from analysis.report.remedies import advice_text
from analysis.report.table import text_table
from analysis.report.verdict import verdict
from analysis.report.where_time_goes import parts_note, parts_table, pop_note, pop_table
from analysis.stats.causes import CausedPart, Difference, difference, explanations
from analysis.stats.explained_parts import MOST_STRETCH, Cause, explained_parts
from analysis.stats.statistics import Estimate, subtract
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy, Shard
from ps_allreduce.point.resources import Coordinator, LayoutKind, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    StockAllReduce,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings, StrategySettings
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.variables import PlacementUsed, RowsAsked
from tests.analysis.builders import (
    case_of,
    cases_of,
    links_between,
    on_own_hosts,
    run,
    runs,
    table_of,
    tasks_on,
    times,
)
from tests.analysis.report.test_sentences import of_links
from tests.fakes import LOOKING_UP, OWN, make_experiment, make_host

#: A launch whose workers do the same: 60 ms of compute, 20 ms of exchange.
SOUND = {
    "mean_step_s": 0.1,
    "compute_s": 0.06,
    "fastest_compute_s": 0.06,
    "fastest_stated_s": 0.06,
    "input_wait_s": 0.005,
    "last_input_s": 0.005,
    "backward_s": 0.02,
    "dispatch_s": 0.005,
    "waiting_s": 0.005,
    "exchange_s": 0.025,
    "network_s": 0.03,
    "hot_server_s": 0.0,
    "hot_rows_s": 0.0,
    "slow_link_s": 0.0,
    "slow_worker_s": 0.0,
    "late_start_s": 0.0,
    "fastest_link_bits_per_s": 1e8,
    "foreign_load": 0.0,
    "stalled_s": 0.0,
    "stalled_waiting_s": 0.0,
    "segments_sent": 100_000,
    "segments_sent_again": 30,
    "loss_probes": 29,
    "port_drops": float("nan"),
    "port_loss": float("nan"),
}


def launches(noise_s: float = 0.0005, count: int = 4, **changes: float) -> pd.DataFrame:
    """Launches with changes, and some noise in what is exchanged."""
    shifts = [noise_s * ((-1) ** number) for number in range(count)]
    longer = sum(changes.get(name, 0.0) for name in _LONGER)
    rows = [
        {name: value + changes.get(name, 0.0) for name, value in SOUND.items()}
        for _ in range(count)
    ]
    for row, shift in zip(rows, shifts, strict=True):
        row["exchange_s"] += shift
        row["mean_step_s"] += shift + longer
    return pd.DataFrame(rows).assign(strategy="ps_sync", num_ps=2)


_LONGER = ("compute_s", "input_wait_s", "waiting_s", "exchange_s", "dispatch_s")

SLOWER: Mapping[Cause, Mapping[str, float]] = {
    Cause.WORKER: {"compute_s": 0.01, "waiting_s": 0.01, "slow_worker_s": 0.02},
    Cause.IN_TURN: {"waiting_s": 0.02},
    Cause.INPUT: {"input_wait_s": 0.02, "last_input_s": 0.02},
    Cause.HOT_SERVER: {"exchange_s": 0.02, "hot_server_s": 0.018, "network_s": 0.018},
    Cause.HOT_ROWS: {"exchange_s": 0.02, "hot_rows_s": 0.018, "network_s": 0.018},
    Cause.SLOW_LINK: {"exchange_s": 0.02, "slow_link_s": 0.018, "network_s": 0.018},
    Cause.SLOWED: {"compute_s": 0.02, "fastest_compute_s": 0.02},
    Cause.LOST: {
        "exchange_s": 0.015,
        "waiting_s": 0.005,
        "stalled_s": 0.02,
        "stalled_waiting_s": 0.005,
        "segments_sent_again": 200,
    },
    Cause.EXCHANGE: {"exchange_s": 0.02},
    Cause.DISPATCH: {"dispatch_s": 0.02},
    Cause.FOREIGN: {"exchange_s": 0.02, "foreign_load": 0.5},
}


@pytest.mark.parametrize("cause", list(SLOWER))
@pytest.mark.parametrize("count", [1, 4])
def test_the_cause_comes_first_with_its_milliseconds(cause: Cause, count: int) -> None:
    found = difference(launches(count=count, **SLOWER[cause]), launches(), None)
    assert [part.cause for part in found.told] == [cause]
    assert found.causes[0].cause is cause
    assert found.causes[0].seconds.mean == pytest.approx(0.02, rel=0.2)
    assert found.causes[0].sure
    assert sum(part.seconds.mean for part in found.parts) == pytest.approx(found.step.mean)


def test_other_programs_explain_no_more_than_a_verdict_grants_them() -> None:
    """A tenth of the processors explains 0.19 of a step of 160 ms."""
    found = difference(launches(exchange_s=0.06, foreign_load=0.1), launches(), None)
    others, rest = found.parts
    assert (others.cause, others.limit, others.interval) == (Cause.FOREIGN, "up to", (None, None))
    assert others.seconds.mean == pytest.approx(0.19 * 0.16)
    assert (rest.cause, rest.limit) == (Cause.EXCHANGE, "at least")
    shorter = difference(launches(exchange_s=-0.01, foreign_load=0.1), launches(), None)
    assert Cause.FOREIGN not in {part.cause for part in shorter.parts}


def test_other_programs_explain_nothing_that_undisturbed_launches_take_as_well() -> None:
    """They took half of a host beside one launch of four, whose step is but 3 ms longer."""
    slower = launches(exchange_s=0.06)
    one = slower.assign(foreign_load=[0.5, 0.0, 0.0, 0.0])
    alike = {part.cause: part for part in difference(one, launches(), None).parts}
    assert alike[Cause.EXCHANGE].seconds.mean > 0.059
    longer = one.assign(
        **{name: one[name] + [0.003, 0.0, 0.0, 0.0] for name in ("exchange_s", "mean_step_s")}
    )
    found = {part.cause: part for part in difference(longer, launches(), None).parts}
    others, rest = found[Cause.FOREIGN], found[Cause.EXCHANGE]
    # With the noise, it is 4 ms longer than the shortest one.
    assert others.seconds.mean == pytest.approx(0.004 / 4)
    assert (others.limit, rest.limit) == ("up to", "at least")


@pytest.mark.parametrize(("saved_s", "cause"), [(0.0, Cause.EXCHANGE), (0.018, Cause.SLOW_LINK)])
def test_waits_for_a_worker_that_always_begins_late_are_the_exchange(
    saved_s: float, cause: Cause
) -> None:
    """Others wait for the worker at a slow link: no worker is slow in turn."""
    slow = launches(waiting_s=0.02, late_start_s=0.02, slow_link_s=saved_s, network_s=saved_s)
    found = difference(slow, launches(), None)
    assert [part.cause for part in found.told] == [cause]
    assert found.told[0].seconds.mean == pytest.approx(0.02, rel=0.2)


def test_a_setting_beside_itself_has_no_cause() -> None:
    assert not difference(launches(count=1), launches(), None).told
    assert not difference(launches(), launches(noise_s=0.001), None).told


def test_a_longer_computation_hides_more_of_the_exchange() -> None:
    slow = launches(compute_s=0.01, waiting_s=0.01, slow_worker_s=0.02, exchange_s=-0.008)
    found = difference(slow, launches(), None)
    assert found.causes[0].cause is Cause.WORKER
    assert found.causes[0].seconds.mean == pytest.approx(0.012)


def test_the_hottest_server_takes_no_more_than_the_exchange_is_longer() -> None:
    """What workers compute longer was measured, and stays a part of its own."""
    linked = launches(exchange_s=0.02, compute_s=0.004, fastest_compute_s=0.004)
    slow = linked.assign(hot_server_s=0.05, network_s=0.08)
    parts = {part.cause: part.seconds.mean for part in difference(slow, launches(), None).parts}
    assert parts == {
        Cause.HOT_SERVER: pytest.approx(0.02),
        Cause.SLOWED: pytest.approx(0.004),
    }


@pytest.mark.parametrize(("servers", "told"), [(0, True), (1, False), (2, True), (4, False)])
def test_the_hottest_server_is_no_cause_beside_other_numbers_of_servers(
    servers: int, told: bool
) -> None:
    """Of two servers one holds nearly all, as a single one does: both need the link as long."""
    slow = launches(exchange_s=0.02).assign(hot_server_s=0.02, network_s=0.04)
    beside = launches().assign(num_ps=servers, network_s=0.04)
    cause = Cause.HOT_SERVER if told else Cause.EXCHANGE
    assert [part.cause for part in difference(slow, beside, None).parts] == [cause]


def test_what_a_launch_shows_is_not_hidden_by_what_is_taken_off_it() -> None:
    """Workers wait for each other now more, now less: input that is late hides some of that."""
    sound = launches()
    uneven = pd.Series([0.0, 0.012, 0.0, 0.012])
    sound = sound.assign(
        waiting_s=sound["waiting_s"] + uneven, mean_step_s=sound["mean_step_s"] + uneven
    )
    late = launches(count=1, input_wait_s=0.012, last_input_s=0.012)
    found = difference(late, sound, None)
    assert [part.cause for part in found.told] == [Cause.INPUT]
    # What there is to gain is less than the wait, and varies as the waits for others do.
    assert found.told[0].seconds.mean < 0.01
    assert not found.told[0].sure


def test_links_are_held_against_those_of_the_other_side() -> None:
    """Of two hosts, a slow link makes both look slow."""
    slow = launches(exchange_s=0.02, network_s=0.015)
    found = difference(slow.assign(fastest_link_bits_per_s=1e8 / 1.5), launches(), None)
    assert found.causes[0].cause is Cause.SLOW_LINK
    assert found.causes[0].seconds.mean == pytest.approx(0.02, rel=0.2)


def test_a_link_that_is_as_slow_for_both_makes_no_difference() -> None:
    both = launches(slow_link_s=0.018, network_s=0.018)
    slower = launches(exchange_s=0.02, slow_link_s=0.018, network_s=0.018)
    found = difference(slower, both, None)
    assert [part.cause for part in found.parts] == [Cause.EXCHANGE]
    assert found.parts[0].seconds.mean == pytest.approx(0.02, rel=0.2)


def test_lost_packets_make_the_same_exchange_longer_without_a_stall() -> None:
    found = difference(
        launches(count=1, exchange_s=0.02, segments_sent_again=200), launches(), None
    )
    assert [part.cause for part in found.told] == [Cause.LOST]
    assert found.told[0].seconds.mean == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("other", ["another strategy", "more bytes", "lost as well"])
def test_another_exchange_may_be_longer_without_lost_packets(other: str) -> None:
    slow, fast = launches(exchange_s=0.02, segments_sent_again=200), launches()
    if other == "another strategy":
        fast = fast.assign(strategy="allreduce")
    elif other == "more bytes":
        slow = slow.assign(network_s=0.032)
    else:
        fast = fast.assign(segments_sent_again=200)
    found = difference(slow, fast, None)
    assert Cause.LOST not in {part.cause for part in found.parts}
    assert found.told[0].cause is Cause.EXCHANGE


def test_fewer_workers_need_more_of_their_steps() -> None:
    found = difference(launches(), launches(), None, growth=2.0)
    assert found.causes[0].cause is Cause.FEWER_WORKERS
    ring = make_experiment(AllReduce, 4, launcher="slurm", spread=Spread())
    (told,) = explanations(case_of(runs(SPREAD, times(1.0)), runs(ring, times(3.0))))
    said = "For the examples of a step of all-reduce, ps_sync, round_robin takes "
    assert said in explanation_sentence(told)
    assert found.causes[0].seconds.mean == pytest.approx(0.1)


POSITIVE = st.floats(0.0, 0.1)


@given(st.fixed_dictionaries(dict.fromkeys(SOUND, POSITIVE)), st.none() | POSITIVE)
def test_causes_add_up_to_the_step(row: dict[str, float], alone_s: float | None) -> None:
    row["mean_step_s"] = sum(row[name] for name in _LONGER)
    parts = explained_parts(pd.DataFrame([row]), alone_s)
    assert parts.sum(axis="columns")[0] == pytest.approx(row["mean_step_s"], abs=1e-12)


def test_one_launch_is_held_against_where_another_of_the_others_would_lie() -> None:
    several = pd.Series([1.0, 2.0, 3.0])
    found = subtract(pd.Series([5.0], index=[9]), several)
    assert found.mean == 3.0
    assert found.low == pytest.approx(3 - 4.3027 * (4 / 3) ** 0.5, abs=1e-3)
    assert subtract(several + 1, several).ends == pytest.approx((1.0, 1.0, 1.0))
    assert subtract(several[:1], several[:1]).low is None


#: Two servers on hosts of their own; one holds three quarters of the bytes.
SHARDS = tuple(
    Shard(variable=number, server=server, num_bytes=size)
    for number, (server, size) in enumerate([(0, 200), (1, 100), (0, 100)])
)
HOT = PlacementUsed(
    shards=SHARDS, variables=("a", "b", "c"), bytes_per_server=(300, 100), max_over_mean=1.5
)
SPREAD = make_experiment(
    SynchronousServers, num_ps=2, layout=LayoutKind.DEDICATED, launcher="slurm", spread=Spread()
)


def on_hosts(own: Experiment, slow_bits_per_s: float = 800.0) -> dict[str, Any]:
    names = [f"n{number}" for number in range(4)]
    tasks = dict(zip(("worker:0", "worker:1", "ps:0", "ps:1"), names, strict=True))
    links = list(links_between(names, 800.0))
    links[2:] = [replace(links[2], bits_per_s=slow_bits_per_s), *links[3:]]
    links[1] = replace(links[1], bits_per_s=slow_bits_per_s)
    shown = {task: name for task, name in tasks.items() if own.num_ps or "ps" not in task}
    return {
        "tasks": tasks_on(shown),
        "hosts": tuple(make_host(name) for name in names),
        "links": tuple(links),
        "placement": HOT if own.num_ps else None,
        "gradient_bytes": 400,
    }


def test_what_the_busiest_link_would_save() -> None:
    found = network_causes(run(SPREAD, 100.0, **on_hosts(SPREAD)))
    # Two workers push 300 bytes each to ps:0, at 100 bytes/s; balanced, 200 each.
    assert found is not None
    assert (found.hot_server_s, found.slow_link_s) == pytest.approx((2.0, 0.0))
    slow = network_causes(run(SPREAD, 100.0, **on_hosts(SPREAD, slow_bits_per_s=400.0)))
    assert slow is not None
    assert slow.slow_link_s == pytest.approx(6.0)
    assert network_causes(run(SPREAD, 100.0)) is None
    assert better_placement(HOT) == (0.5, Policy.LARGEST_FIRST)


def test_what_hot_rows_cost_and_where_else_to_put_them() -> None:
    rows = RowsAsked(
        row_bytes=92, asked=9.0, unique=4.0, longest=32.0, union=6.0, per_server=(3.0, 1.0)
    )
    stated = StrategySettings(
        num_ps=2,
        layout=LayoutKind.DEDICATED,
        embeddings=Embeddings.SPARSE,
        table_rows=RowRule.RANGE,
    )
    ranges = SynchronousServers.of(stated)
    sparse = replace(SPREAD, strategy=ranges, workload=LOOKING_UP)
    launched = runs(sparse, times(1.0), **on_hosts(sparse), rows_asked=rows)
    found = network_causes(launched[0])
    assert found is not None
    # Of two workers three rows of 100 bytes each, and not two, at 100 bytes/s.
    assert found.hot_rows_s == pytest.approx(2.0)
    even = replace(rows, per_server=(2.0, 2.0))
    modulo = SynchronousServers.of(replace(stated, table_rows=RowRule.MODULO))
    spread = replace(sparse, strategy=modulo)
    faster = runs(spread, times(2.0), **on_hosts(spread), rows_asked=even)
    (told,) = explanations(case_of(launched, faster))
    assert advice_text(told, Cause.HOT_ROWS) == (
        "ps:0 is asked for 1.5 times the mean rows of a server. Place rows by hash (--table-rows)."
    )


def case_of_pair(spread_s: float = 0.0, less_s: float = 0.0) -> Case:
    """Servers that take twice as long as all-reduce, for their hottest server.

    Args:
        spread_s: by so much the exchange of three launches differs from one to the next.
        less_s: by so much their steps begin sooner than those of all-reduce.
    """
    ring = make_experiment(AllReduce, launcher="slurm", spread=Spread())
    slow = runs(SPREAD, times(1.0), **on_hosts(SPREAD))
    alone = runs(make_experiment(Single, launcher="slurm", spread=Spread()), times(1.0))
    fast = runs(ring, times(2.0), **on_hosts(ring))
    stock = make_experiment(StockAllReduce, launcher="slurm", spread=Spread())
    plain = runs(stock, times(3.0), **on_hosts(stock))
    table, records = table_of([*slow, *fast, *alone, *plain])
    served = (table["strategy"] == "ps_sync").to_numpy()
    table.loc[served, ["exchange_s", "hot_server_s", "network_s"]] = [0.105, 0.03, 0.05]
    table.loc[served, "mean_step_s"] += 0.1
    for column in ("exchange_s", "mean_step_s"):
        table.loc[served, column] += [-spread_s, 0.0, spread_s]
    table.loc[(table["strategy"] == "allreduce").to_numpy(), ["dispatch_s", "mean_step_s"]] += (
        less_s
    )
    (case,) = make_cases(table, records)
    return case


def test_a_sentence_says_how_much_and_what_to_change() -> None:
    case = case_of_pair()
    told = {(e.faster.setting.strategy, e.slower.setting.strategy): e for e in explanations(case)}
    said, *unseen = explanation_lines(case)
    assert said == explanation_sentence(told["allreduce", "ps_sync"])
    assert said.startswith("All-reduce is 2.00x [")
    assert " ms more than one of all-reduce: up to " in said
    assert " ms the hottest server" in said
    reason = main_reason(case)
    assert said.split(": ")[1] in reason
    assert reason.endswith(
        "With 2 servers, ps:0 holds 75% of the bytes under round_robin. largest_first would give "
        "each 50%."
    )
    assert unseen == [
        "Steps of plain TensorFlow are not divided into parts.",
        "make ladder measures one by one what the suite does differently.",
    ]
    rows = explanation_table(case)
    assert len(rows) == sum(not each.unseen for each in told.values())
    assert list(rows["the hottest server ms"]) != ["-"] * len(rows)


@pytest.mark.parametrize(
    ("hosts", "group_bytes", "told"),
    [
        (1, 100, "Try fewer and larger messages."),
        (1, 500_000, ""),  # which holds all
        (2, 100, ""),
    ],
)
def test_links_that_were_not_measured_are_no_processor_time(
    hosts: int, group_bytes: int, told: str
) -> None:
    case = case_of_pair()
    (explained, *_) = explanations(case)
    explained.slower.asked["group_bytes"] = group_bytes
    for point in (explained.faster, explained.slower):
        point.launches[["network_s", "num_hosts"]] = [float("nan"), hosts]
    advice = advice_text(explained, Cause.EXCHANGE)
    assert advice.startswith(told)
    assert bool(advice) is bool(told)
    said = verdict(case)
    text = " ".join([said.headline, said.reason, said.network, *said.details])
    assert text.count("Whether links were the limit is not known.") == (hosts > 1)
    assert "not measured" not in text, "the records hold rates of links"


def test_parts_that_are_more_than_the_difference_say_what_takes_less() -> None:
    for spread_s in (0.0, 0.01):
        said, *_ = re.split(r"\. (?=[A-Z])", main_reason(case_of_pair(spread_s, less_s=0.06)))
        step, *parts, less = (float(text) for text in re.findall(r"([\d.]+) ms", said))
        assert said.endswith("less")
        assert sum(parts) - less == pytest.approx(step, rel=0.02)
        assert "less" not in main_reason(case_of_pair(spread_s))
    # However little that is: no part is more than the whole without a word.
    assert main_reason(case_of_pair(less_s=0.002)).split(". ")[0].endswith(" ms less")


def test_what_a_least_part_leaves_is_a_least_too() -> None:
    told = explanations(case_of_pair())[0]
    parts = [
        CausedPart(cause=cause, seconds=estimated(mean), proof=estimated(mean), limit=limit)
        for cause, mean, limit in (
            (Cause.EXCHANGE, 1.2, "at least"),
            (Cause.HOT_SERVER, 0.3, "up to"),
            (Cause.COMPUTE, -0.5, ""),
        )
    ]
    found = Difference(step=estimated(1.0), share=1.0, parts=tuple(parts))
    said = explanation_sentence(replace(told, difference=found))
    assert said.endswith(
        "at least 1200 ms exchange and update; all other parts together take at least 200 ms less."
    )


def test_what_most_launches_do_not_show_is_no_sure_cause() -> None:
    """A slow link in two of five launches, whose steps are no longer than the others."""
    told = explanations(case_of_pair())[0]
    seconds, proof = estimated(0.4), replace(estimated(0.1), low=-0.1, high=0.3)
    part = CausedPart(cause=Cause.SLOW_LINK, seconds=seconds, proof=proof, limit="up to")
    found = Difference(step=estimated(0.4), share=1.0, parts=(part,))
    said = explanation_sentence(replace(told, difference=found))
    assert "What causes it is not certain: " in said
    assert not part.sure


def test_parts_are_told_until_little_is_left() -> None:
    told = explanations(case_of_pair())[0]
    seconds = {Cause.EXCHANGE: 0.4, Cause.LOST: 0.3, Cause.INPUT: 0.15, Cause.COMPUTE: 0.1}
    parts = [
        CausedPart(cause=cause, seconds=estimated(mean), proof=estimated(mean))
        for cause, mean in [*seconds.items(), (Cause.DISPATCH, 0.05)]
    ]
    found = Difference(step=estimated(1.0), share=1.0, parts=tuple(parts))
    (said,) = re.findall(r": ([^:]*)\.$", explanation_sentence(replace(told, difference=found)))
    assert [cause for cause in Cause if str(cause) in said] == sorted(seconds, key=[*Cause].index)


def test_a_small_part_is_not_told_and_what_is_left_is() -> None:
    told = explanations(case_of_pair())[0]
    unsure = replace(estimated(0.249), low=-0.1, high=0.6)
    parts = [
        CausedPart(cause=cause, seconds=seconds, proof=seconds)
        for cause, seconds in (
            (Cause.EXCHANGE, estimated(0.75)),
            (Cause.COMPUTE, unsure),
            (Cause.WORKER, estimated(0.001)),
        )
    ]
    found = Difference(step=estimated(1.0), share=1.0, parts=tuple(parts))
    said = explanation_sentence(replace(told, difference=found))
    assert said.endswith("exchange and update; all other parts together take 250 ms more.")
    assert "slow worker" not in said


def estimated(mean: float) -> Estimate:
    return Estimate(mean=mean, low=mean, high=mean)


def test_beside_a_certain_part_only_such_ones_are_told() -> None:
    """Waits for input that vary around a mean of 5 ms are in the table alone."""
    (told, *_) = explanations(case_of_pair())
    waits = pd.Series([0.005, -0.03, 0.045, 0.0])
    slower = launches(exchange_s=0.03)
    slower = slower.assign(
        **{name: slower[name] + waits for name in ("last_input_s", "input_wait_s", "mean_step_s")}
    )
    found = difference(slower, launches(), None)
    assert [part.cause for part in found.causes][:2] == [Cause.EXCHANGE, Cause.INPUT]
    said = explanation_sentence(replace(told, difference=found))
    assert "exchange and update" in said
    assert "waiting for input" not in said


def test_a_server_that_holds_nearly_all_bytes_does_not_hold_all() -> None:
    case = case_of_pair()
    loads = PlacementUsed(
        shards=(replace(SHARDS[0], num_bytes=99_900), replace(SHARDS[1], num_bytes=100)),
        variables=("a", "b"),
        bytes_per_server=(99_900, 100),
        max_over_mean=1.998,
    )
    told = next(each for each in explanations(case) if each.slower.setting.strategy == "ps_sync")
    (own,) = cases_of(
        [replace(record, placement=loads) for record in told.slower.counting],
        told.faster.counting,
    )
    (again,) = explanations(own)
    assert advice_text(again, Cause.HOT_SERVER).startswith(
        "With 2 servers, ps:0 holds nearly all the bytes under round_robin."
    )


def test_what_takes_less_by_an_estimate_is_one() -> None:
    case = case_of_pair()
    for point in case.points:
        hot_s = {"allreduce": 0.03, "ps_sync": 0.0}.get(point.setting.strategy, 0.0)
        point.launches[["hot_server_s", "network_s"]] = [hot_s, 0.05]
    said, *_ = main_reason(case).split(". ")
    assert re.search(r": at most [\d.]+ ms exchange and update; ", said)
    assert re.search(r" together take up to [\d.]+ ms less", said)
    # An estimate that leaves nothing of what it is taken off is one all the same.
    found = difference(
        launches(exchange_s=0.02, hot_server_s=0.1, network_s=0.1, input_wait_s=-0.001),
        launches(exchange_s=-0.025),
        None,
    )
    assert {part.limit for part in found.parts} == {"up to", ""}
    (told, *_) = explanations(case)
    said = explanation_sentence(replace(told, difference=found))
    assert re.search(r"up to 45 ms the hottest server; .* together take up to 1 ms less", said)


@pytest.mark.parametrize(
    ("shares", "needs", "told"),
    [
        ((0.2, 0.3, 0.4), 1.0, "less than half the step on the busiest link: try larger messages"),
        ((0.5, 0.6, 0.7), 0.5, "half the step or more on the busiest link: send fewer"),
        ((0.5, 0.6, 0.7), 1.0, ""),  # equally many bytes make no difference
        ((0.2, 0.3, 0.4), 0.5, ""),  # and fewer may be all of it
        ((0.4, 0.5, 0.6), 1.0, ""),  # launches lie on both sides of the limit
        ((0.4, 0.5, 0.6), 0.5, ""),
    ],
)
def test_bytes_and_messages_are_advised_where_all_launches_say_that_they_may_help(
    shares: tuple[float, ...], needs: float, told: str
) -> None:
    (explained, *_) = explanations(case_of_pair())
    slower, faster = explained.slower, explained.faster
    slower.launches["network_s"] = slower.launches["mean_step_s"] * list(shares)
    faster.launches["network_s"] = slower.launches["network_s"].mean() * needs
    slower.asked["group_bytes"] = 100
    advice = advice_text(explained, Cause.EXCHANGE)
    assert advice.startswith(f"Bytes need {told}" if told else "")
    assert bool(advice) is bool(told)
    slower.asked["group_bytes"] = 500_000  # one message holds all
    assert ("larger messages" in advice_text(explained, Cause.EXCHANGE)) is False


@pytest.mark.parametrize(
    ("strategy", "told"),
    [(SynchronousServers, ""), (AsynchronousServers, "Steps begin late: let ")],
)
def test_only_a_setting_that_the_strategy_has_is_advised(
    strategy: type[AnyStrategy], told: str
) -> None:
    slow, fast = (make_experiment(each, 2) for each in (strategy, AllReduce))
    (explained,) = explanations(case_of(runs(slow, times(1.0)), runs(fast, times(2.0))))
    advice = advice_text(explained, Cause.DISPATCH)
    assert advice.startswith(told)
    assert bool(advice) is bool(told)
    assert "threads" not in advice_text(explained, Cause.SLOWED), "each worker has one"


def advice_on(slower: Experiment, cause: Cause, faster: Experiment, **changes: Any) -> str:
    """What is advised where a setting is slower than another one."""
    sides = [runs(slower, times(1.0), **changes), runs(faster, times(9.0))]
    (explained,) = explanations(case_of(*sides))
    return advice_text(explained, cause)


def test_servers_are_advised_beside_workers_only_where_they_are_apart() -> None:
    """A chief on a host of its own leaves workers fewer hosts, too."""
    ring = make_experiment(AllReduce, 4, launcher="slurm", spread=Spread())
    own_host = Spread(coordinator=Coordinator.OWN_HOST)
    chief = make_experiment(SynchronousServers, 3, launcher="slurm", spread=own_host)
    told = advice_on(SPREAD, Cause.FEWER_WORKERS, ring)
    assert told.startswith("Hosts of servers compute no gradients: ")
    assert advice_on(chief, Cause.FEWER_WORKERS, ring) == ""


def test_nobody_is_told_to_decode_less_of_what_is_made_up() -> None:
    own = Workload(model=OWN, data=OwnDataset())
    for load, told in ((Workload(), ""), (own, "Workers wait for input: ")):
        served, ring = (
            make_experiment(each, 2, workload=load) for each in (SynchronousServers, AllReduce)
        )
        advice = advice_on(served, Cause.INPUT, ring)
        assert advice.startswith(told)
        assert bool(advice) is bool(told)


def test_nothing_is_advised_that_the_slower_one_has() -> None:
    ring = make_experiment(AllReduce, 2)
    several = make_experiment(AsynchronousServers, 2, steps_per_dispatch=4)
    assert advice_on(several, Cause.DISPATCH, ring) == ""
    bounded = make_experiment(AsynchronousServers, 2, staleness=1)
    assert advice_on(bounded, Cause.DISPATCH, ring) == "", "no room for several steps"
    one = make_experiment(
        SynchronousServers, 2, placement=Policy.PARTITIONED, wire=Wire(in_flight=1)
    )
    assert "--in-flight" not in advice_on(one, Cause.LOST, ring)
    served = make_experiment(SynchronousServers, 2)
    assert advice_on(served, Cause.SLOWED, ring) == "", "tasks have the cores that they use"
    told = "Workers compute longer than one alone: give tasks cores of their own."
    assert advice_on(served, Cause.SLOWED, ring, oversubscribed=True) == told


def test_hosts_are_left_out_only_where_each_may_differ_on_its_own() -> None:
    on_slurm: dict[str, Any] = {"launcher": "slurm", "spread": Spread()}
    network = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)
    emulated: dict[str, Any] = {"launcher": "emulated", "network": network, "spread": Spread()}
    differing = EmulatedCompute(forward_s=0.1, backward_s=0.2, factors=(1.5,))
    told = "worker:0 computes longest in every launch"
    wheres: list[tuple[dict[str, Any], str]] = [
        ({}, f"{told}."),
        (emulated, f"{told}."),
        ({"workload": Workload(emulated=differing)}, ""),
        (on_slurm, f"{told}: leave its host out."),
    ]
    for where, said in wheres:
        sides = [make_experiment(each, 2, **where) for each in (SynchronousServers, AllReduce)]
        hosts = on_own_hosts(2, 1e9) if "spread" in where else {}
        assert advice_on(sides[0], Cause.WORKER, sides[1], **hosts) == said
    served, ring = (make_experiment(s, 2, **on_slurm) for s in (SynchronousServers, AllReduce))
    places = {"worker:0": "n0", "worker:1": "n1", "ps:0": "n0"}
    beside = on_own_hosts(2, 1e9) | {"tasks": tasks_on(places)}
    said = f"{told}; its host runs ps:0, too."
    assert advice_on(served, Cause.WORKER, ring, **beside) == said


def test_rows_are_not_advised_to_travel_in_16_bits() -> None:
    stated: dict[str, Any] = {"workload": LOOKING_UP, "wire": Wire(), "spread": Spread()}
    stated |= {"embeddings": Embeddings.SPARSE, "launcher": "slurm"}
    slow, fast = (make_experiment(kind, 2, **stated) for kind in (SynchronousServers, AllReduce))
    sides = [runs(own, times(f), **on_hosts(own)) for own, f in ((slow, 1.0), (fast, 2.0))]
    (explained,) = explanations(case_of(*sides))
    explained.slower.launches["network_s"] = 0.9 * explained.slower.launches["mean_step_s"]
    explained.faster.launches["network_s"] = 0.001
    assert advice_text(explained, Cause.EXCHANGE) == "", "rows travel in float32"


def test_what_is_broken_is_repaired_before_messages_are_changed() -> None:
    (left_out,) = explanations(of_links(0.4e9))
    assert advice_text(left_out, Cause.EXCHANGE) == ""  # said beside it
    (found, *_) = explanations(case_of_pair())
    launches = found.slower.launches
    found.slower.asked["group_bytes"] = 100
    for point in (found.slower, found.faster):
        point.launches["network_s"] = 0.01
    assert advice_text(found, Cause.EXCHANGE).startswith("Bytes need ")
    launches["network_s"] = 1.1 * launches["mean_step_s"]
    assert advice_text(found, Cause.EXCHANGE) == "", "the rates were not those of the runs"
    launches[["port_drops", "port_loss"]] = [100, 0.01]
    assert advice_text(found, Cause.EXCHANGE).startswith(
        "Lost packets may be a part of it. To lose fewer packets, give switch ports more memory or "
        "let"
    )


@pytest.mark.parametrize(
    ("rates", "used", "told"),
    [
        (
            (4, 8, 8, 8),
            0.9,
            "link n0 to n1 carried 4 bit/s {}: repair it, or leave out one of its hosts.",
        ),
        (
            (4, 4, 8, 8),
            0.9,
            "links n0 to n1 and n1 to n2 carried 4 bit/s {}: repair them, or leave out n1.",
        ),
        (
            (4, 8, 5, 8),
            0.9,
            "links n0 to n1 and n2 to n3 carried 4 bit/s to 5 bit/s {}: repair them.",
        ),
        (
            (4, 4, 8, 8),
            1.1,
            "links n0 to n1 and n1 to n2 carried 4 bit/s {}: measure again, as the counted bytes "
            "would take longer than a step.",
        ),
    ],
)
def test_all_links_are_named_that_must_be_repaired(
    rates: tuple[int, ...], used: float, told: str
) -> None:
    ring = make_experiment(AllReduce, launcher="slurm", spread=Spread())
    links = links_between(("n0", "n1", "n2", "n3"), 8.0)
    slow = tuple(replace(e, bits_per_s=float(r)) for e, r in zip(links, rates, strict=True))
    sides = [
        runs(own, times(factor), **on_hosts(own) | {"links": slow})
        for own, factor in ((SPREAD, 1.0), (ring, 2.0))
    ]
    (explained,) = explanations(case_of(*sides))
    launches = explained.slower.launches
    launches["network_s"] = used * launches["mean_step_s"]
    told = f"The {told.format('before the runs (medians), the fastest one 8 bit/s')}"
    assert advice_text(explained, Cause.SLOW_LINK) == told


def test_links_that_were_asked_to_be_slow_are_not_to_be_repaired() -> None:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=1e8, slow_host=1, slow_bits_per_s=5e7)
    where: dict[str, Any] = {"launcher": "emulated", "spread": Spread(), "network": network}
    slow, fast = (make_experiment(each, 2, **where) for each in (SynchronousServers, AllReduce))
    sides = [runs(own, times(f), **on_hosts(own, 400.0)) for own, f in ((slow, 1.0), (fast, 2.0))]
    (explained,) = explanations(case_of(*sides))
    told = "Links differ as asked of the emulated network."
    assert advice_text(explained, Cause.SLOW_LINK) == told


def test_nothing_is_advised_that_the_faster_one_shows() -> None:
    few, more = (make_experiment(SynchronousServers, 2, num_ps=count) for count in (1, 2))
    (told,) = explanations(case_of(runs(few, times(1.0)), runs(more, times(2.0))))
    assert advice_text(told, Cause.EXCHANGE) == ""
    cut = make_experiment(SynchronousServers, 2, placement=Policy.PARTITIONED)
    (told,) = explanations(case_of(runs(more, times(1.0)), runs(cut, times(2.0))))
    assert advice_text(told, Cause.HOT_SERVER) == (
        "With 2 servers, ps:0 holds 75% of the bytes under round_robin."
    )


def test_what_links_would_save_is_told_as_no_measurement() -> None:
    case = case_of_pair(spread_s=0.01)
    assert " ms the hottest server, " in main_reason(case)
    assert " ms exchange and update. With 2 servers, ps:0" in main_reason(case)
    for text in explanation_table(case)["the hottest server ms"]:
        if text != "-":
            told = re.fullmatch(r"up to ([\d.]+) \(([\d.]+)\)", text)
            assert told, "the factor by which an estimate is stretched can be read"
            assert 1 <= float(told[1]) / float(told[2]) <= MOST_STRETCH + 0.01
    assert re.search(r"up to [\d.]+ ms the hottest server", main_reason(case))
    drawn = explanation_data(case).set_index("part")["ms_low"]
    assert drawn[[str(Cause.HOT_SERVER), str(Cause.EXCHANGE)]].isna().all()
    # What an estimate leaves is no measurement either.
    assert ", at least " in main_reason(case)


@pytest.mark.parametrize(
    ("strategy", "num_hosts", "placement", "told"),
    [
        (SynchronousServers, 4, Policy.ROUND_ROBIN, "(--placement partitioned, more servers, --in"),
        (SynchronousServers, 4, Policy.PARTITIONED, "sent to one server at once (more servers, --"),
        (SynchronousServers, 2, Policy.PARTITIONED, "to one server at once (--in-flight)."),
        (AllReduce, 4, Policy.PARTITIONED, "be under way at once (--in-flight)."),
    ],
)
def test_lost_packets_come_with_what_to_change(
    strategy: type[AnyStrategy], num_hosts: int, placement: Policy, told: str
) -> None:
    where: dict[str, Any] = {"launcher": "emulated", "spread": Spread()}
    where["network"] = EmulatedNetwork(num_hosts=num_hosts, bits_per_s=1e8)
    servers = make_experiment(SynchronousServers, placement=placement, **where)
    sides = [
        runs(own, times(1.0 if own.strategy.kind == strategy.kind else 2.0))
        for own in (servers, make_experiment(AllReduce, bytes_per_pack=None, **where))
    ]
    table, records = table_of(record for side in sides for record in side)
    rows = (table["strategy"] == strategy.kind).to_numpy()
    lost = {"stalled_s": 0.3, "stalled_waiting_s": 0.0, "port_drops": 100, "port_loss": 0.01}
    table.loc[rows, [*lost]] = [*lost.values()]
    table.loc[rows, ["exchange_s", "mean_step_s"]] += 0.4
    (case,) = make_cases(table, records)
    (explained,) = explanations(case)
    said = explanation_sentence(explained)
    assert "300 ms [300, 300] delays beside lost packets" in said
    advice = advice_text(explained, Cause.LOST)
    assert "packets, give switch ports more memory than 4 MB (--port-buffer) or let " in advice
    figure = plot_explanation(case)
    assert figure is not None
    assert "delays beside lost packets" in figure.axes[0].get_legend_handles_labels()[1]
    assert told in advice


def test_ports_that_hold_a_step_are_not_what_loses_packets() -> None:
    where: dict[str, Any] = {"launcher": "emulated", "spread": Spread()}
    where["network"] = EmulatedNetwork(num_hosts=4, bits_per_s=1e8)
    fast, slow = (make_experiment(each, **where) for each in (SynchronousServers, AllReduce))
    for size, told in (
        (400, "Larger switch ports would not help"),
        (10**7, "To lose fewer packets, give switch ports more"),
    ):
        sides = [
            runs(own, times(factor), **on_hosts(own) | {"gradient_bytes": size})
            for own, factor in ((slow, 1.0), (fast, 2.0))
        ]
        (explained,) = explanations(case_of(*sides))
        advice = advice_text(explained, Cause.LOST)
        assert advice.startswith(told)
        assert "--in-flight" not in advice, "packs have no such setting"


def test_more_memory_is_no_advice_where_packets_are_lost_at_random() -> None:
    network = EmulatedNetwork(num_hosts=4, bits_per_s=1e8, loss=0.002)
    where: dict[str, Any] = {"launcher": "emulated", "spread": Spread(), "network": network}
    fast, slow = (make_experiment(each, **where) for each in (SynchronousServers, AllReduce))
    (explained,) = explanations(case_of(runs(slow, times(1.0)), runs(fast, times(2.0))))
    told = "The network loses 0.200% of packets at random, as asked (--loss)."
    assert advice_text(explained, Cause.LOST) == told


def test_tables_show_every_point() -> None:
    case = case_of_pair()
    parts = parts_table(case).set_index("setting")
    assert parts.loc["single", "exchange and update ms"] == "-"
    assert parts.loc["single", "update ms"] != "-"
    assert parts.loc["stock_allreduce", "compute alone ms"] == "-"
    free = make_experiment(AsynchronousServers, num_ps=2, launcher="slurm", spread=Spread())
    (row,) = parts_table(case_of(runs(free, times(1.0), **on_hosts(free)))).to_dict("records")
    assert row["hidden at least ms"] == "-", "the link may carry what another worker sends"
    metrics = pop_table(case).set_index("setting")
    assert "stock_allreduce" not in metrics.index
    paid = metrics["parallel, per machine paid for"].astype(float)["ps_sync, round_robin"]
    workers = metrics["parallel efficiency"].astype(float)["ps_sync, round_robin"]
    assert paid == pytest.approx(workers / 2, abs=0.01)
    of_communication = ["communication efficiency", "serialisation", "transfer"]
    assert set(metrics.loc["single", of_communication]) == {"-"}, "it sends nothing"
    assert "-" not in set(metrics.loc["all-reduce", of_communication])


def test_a_link_that_needs_longer_than_the_step_tells_of_no_hidden_communication() -> None:
    ring = make_experiment(AllReduce, launcher="slurm", spread=Spread())
    (row,) = parts_table(case_of(runs(ring, times(1.0), **on_hosts(ring)))).to_dict("records")
    assert row["hidden at least ms"] == "-", "its rate was not that of the run"


def test_no_launch_hides_less_than_nothing() -> None:
    """So the mean over launches may be more than that of the row's means."""
    ring = make_experiment(AllReduce, launcher="slurm", spread=Spread())
    table, records = table_of(runs(ring, times(1.0), **on_hosts(ring)))
    hidden = (1e-3, -9e-3, -9e-3)
    needed = table["mean_step_s"] - table["compute_s"] + list(hidden)
    (case,) = make_cases(table.assign(network_s=needed), records)
    assert parts_table(case)["hidden at least ms"].tolist() == ["0.33"]
    assert "in no launch less than 0" in parts_note(case, parts_table(case))


def test_notes_tell_of_no_column_without_a_value() -> None:
    case = case_of(runs(make_experiment(Single, 1), times(1.0)))
    note, metrics = parts_note(case, parts_table(case)), pop_note(case, pop_table(case))
    assert "Compute alone is at most what the same work takes in strategy single" in note
    assert all(part not in note for part in ("Hidden", "Exchange", "accelerator"))
    assert "asynchronous" not in metrics.casefold()
    assert "Computation scaling" in metrics


def test_what_only_some_explanations_have_is_said_only_beside_these() -> None:
    estimated = explanation_note(case_of_pair())
    assert '"up to" and "down to": estimates from' in estimated
    assert "Where the global batches differ" not in estimated


def test_one_worker_sends_gradients_to_servers_alone() -> None:
    kinds = {"all-reduce": AllReduce, "ps_sync, round_robin": SynchronousServers}
    case = case_of(*(runs(make_experiment(kind, 1), times(1.0)) for kind in kinds.values()))
    sent = {"all-reduce": False, "ps_sync, round_robin": True}
    parts, metrics = (each(case).set_index("setting") for each in (parts_table, pop_table))
    steps = text_table(case).set_index("setting")
    for own, is_sent in sent.items():
        assert (parts.loc[own, "exchange and update ms"] != "-") is is_sent
        assert (parts.loc[own, "update ms"] == "-") is is_sent
        assert (metrics.loc[own, "communication efficiency"] != "-") is is_sent
        assert (steps.loc[own, "communication_s"] != "-") is is_sent


def test_use_of_links_is_of_named_settings_where_the_headline_begins_with_others() -> None:
    told = verdict(case_of_pair())
    assert told.headline.startswith("Against plain TensorFlow, both synchronous: stock_allreduce")
    assert "% with all-reduce and ps_sync, round_robin (at the rates measured" in told.network


def test_hosts_that_are_used_are_paid_for_wherever_servers_were_asked_to_be() -> None:
    beside = make_experiment(SynchronousServers, num_ps=2, launcher="slurm", spread=Spread())
    (row,) = pop_table(case_of(runs(beside, times(1.0), **on_hosts(beside)))).to_dict("records")
    paid = float(row["parallel, per machine paid for"])
    assert paid == pytest.approx(float(row["parallel efficiency"]) / 2, abs=0.01)


def test_a_page_explains_nothing_where_nothing_differs_or_raw_timings_are_missing() -> None:
    alone, ring = make_experiment(Single), make_experiment(AllReduce, 2)
    pair = [*runs(ring, times(1.0)), *runs(make_experiment(SynchronousServers, 2), times(2.0))]
    table, records = table_of(pair)
    (case,) = make_cases(table.assign(mean_step_s=float("nan")), records)
    assert explanation_page(case).is_empty
    # A single worker that is slower than several is no difference to be explained.
    equal = runs(make_experiment(SynchronousServers, 2), times(1.0))
    case = case_of(runs(alone, times(0.5)), runs(ring, times(1.0)), equal)
    assert explanation_page(case).is_empty


def explanation_page(case: Case) -> PagePart:
    part_of = CASE_PAGES["explanation", "Why one setting is faster than another"]
    return part_of(CaseReport(case=case, verdict=verdict(case), figures=[]))


def test_every_part_has_a_meaning() -> None:
    assert set(MEANINGS) == {*Cause} - {Cause.UNSEEN}
