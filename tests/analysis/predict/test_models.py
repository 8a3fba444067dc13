"""Formulas of steps: limits, monotony, and what they share with the bounds."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.derive.fastest_step import most_steps_per_s
from analysis.predict.models import (
    PERFECT,
    DealtLoad,
    Fit,
    TogetherLoad,
    joined,
    largest_of,
    ring_load,
    shared_load,
    step_s,
    worker_rates,
)
from ps_allreduce.bounds import Flow, step_bound_s

PLAIN = Fit(stretch=1.0, overhead_s=0.0, hiding=1.0, round_s=0.0)
USUAL = Fit(stretch=1.2, overhead_s=0.002, hiding=3.0, round_s=0.001)

SECONDS = st.floats(0.001, 1.0)
FITS = st.builds(
    Fit,
    stretch=st.floats(1.0, 3.0),
    overhead_s=st.floats(0.0, 0.1),
    hiding=st.floats(1.0, 20.0),
    round_s=st.floats(0.0, 0.01),
)
TOGETHER = st.builds(
    TogetherLoad,
    num_workers=st.integers(1, 64),
    forward_s=SECONDS,
    backward_s=SECONDS,
    network_s=SECONDS,
    messages_s=SECONDS,
    rounds=st.integers(0, 20),
    crowd=st.floats(1.0, 4.0),
    busy=st.floats(0.0, 1.0),
    spread=st.floats(0.0, 0.2),
    message=st.floats(0.0, 1.0),
    ways=st.sampled_from((1, 2)),
)


@st.composite
def dealt(draw: st.DrawFn) -> DealtLoad:
    """Up to six workers, each with its own use of up to four links and of one machine."""
    workers, links = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    shares = st.lists(st.floats(0.0, 0.3), min_size=links, max_size=links)
    rows = st.lists(shares, min_size=workers, max_size=workers)
    times = st.lists(SECONDS, min_size=workers, max_size=workers)
    return DealtLoad(
        forward_s=np.array(draw(times)),
        backward_s=np.array(draw(times)),
        links_s=np.array(draw(rows)),
        processors_s=np.array(draw(rows))[:, :1],
    )


def on_links(load: DealtLoad, times: float) -> DealtLoad:
    """The same with links that take so many times as long."""
    return replace(load, links_s=load.links_s * times)


@given(load=TOGETHER, made=FITS, times=st.floats(0.1, 1.0))
def test_faster_links_make_no_synchronous_step_slower(
    load: TogetherLoad, made: Fit, times: float
) -> None:
    faster = replace(load, network_s=load.network_s * times)
    assert step_s(faster, made) <= step_s(load, made) * (1 + 1e-9)


@given(load=dealt(), made=FITS)
def test_links_without_limit_are_faster_than_any(load: DealtLoad, made: Fit) -> None:
    load = replace(load, processors_s=np.zeros((load.num_workers, 0)))
    unlimited = step_s(on_links(load, 0.0), made)
    assert unlimited <= step_s(load, made) * (1 + 1e-9)


@given(count=st.integers(1, 32), alone=SECONDS, demand=SECONDS, times=st.floats(0.1, 1.0))
def test_a_faster_station_makes_asynchronous_workers_no_slower(
    count: int, alone: float, demand: float, times: float
) -> None:
    slow, fast = (shared_load(count, alone, [demand * each]) for each in (1.0, times))
    assert step_s(fast, PLAIN) <= step_s(slow, PLAIN) * (1 + 1e-9)


@given(load=TOGETHER, made=FITS)
def test_no_synchronous_step_is_faster_than_its_bound(load: TogetherLoad, made: Fit) -> None:
    bound = step_bound_s(load.forward_s, load.backward_s, load.network_s)
    assert step_s(load, made) >= bound * (1 - 1e-9)
    lone = replace(load, crowd=1.0, spread=0.0, messages_s=0.0, message=0.0)
    assert step_s(lone, PERFECT) == pytest.approx(bound, rel=1e-3)


@given(load=dealt(), made=FITS)
def test_no_asynchronous_workers_are_faster_than_the_best_division_of_steps(
    load: DealtLoad, made: Fit
) -> None:
    hosts = [f"host{number}" for number in range(load.links_s.shape[1])]
    own = [
        [Flow(source="elsewhere", target=host, num_bytes=size) for host, size in pairs]
        for pairs in (zip(hosts, row, strict=True) for row in load.links_s)
    ]
    rates = dict.fromkeys(hosts, (1.0, 1.0)) | {"elsewhere": (np.inf, np.inf)}
    alone = [
        step_bound_s(f, b, row.max())
        for f, b, row in zip(load.forward_s, load.backward_s, load.links_s, strict=True)
    ]
    fastest = most_steps_per_s(own, alone, rates)
    assert worker_rates(load, made).sum() <= fastest * (1 + 1e-6)


@given(load=dealt(), made=FITS)
def test_no_station_is_used_for_more_than_all_the_time(load: DealtLoad, made: Fit) -> None:
    rates = worker_rates(load, made)
    assert (rates @ load.links_s).max() <= 1 + 1e-9
    assert (rates @ load.processors_s).max() <= 1 + 1e-9


@given(forward=SECONDS, backward=SECONDS, made=FITS)
def test_a_worker_that_sends_nothing_takes_its_measured_step(
    forward: float, backward: float, made: Fit
) -> None:
    alone = TogetherLoad(
        num_workers=1, forward_s=forward, backward_s=backward, network_s=0.0, sends=False
    )
    assert step_s(alone, made) == pytest.approx(forward + backward)


def test_workers_that_are_alike_are_those_of_mean_value_analysis() -> None:
    think, demand, queue, use = 0.5, 0.1, 0.0, 0.0
    for present in range(1, 9):
        response = demand * (1 + queue - use / 2)
        rate = min(present / (think + response), 1 / demand)
        queue, use = rate * response, rate * demand
        step = step_s(shared_load(present, think, [demand]), PLAIN)
        assert present / step == pytest.approx(rate, rel=0.03)


def test_beyond_the_knee_the_station_sets_the_rate() -> None:
    assert 40 / step_s(shared_load(40, 0.5, [0.1]), PLAIN) == pytest.approx(10.0)


def test_who_uses_the_busy_link_least_makes_the_most_steps() -> None:
    """A server beside the first of three workers: only the others send over its link."""
    load = DealtLoad(
        forward_s=np.full(3, 0.1),
        backward_s=np.zeros(3),
        links_s=np.array([[0.0], [0.2], [0.2]]),
        processors_s=np.zeros((3, 0)),
    )
    first, second, third = worker_rates(load, PLAIN)
    assert first == pytest.approx(10.0)
    assert second == third < 2.6
    even = worker_rates(replace(load, even=True), PLAIN)
    assert even[0] == even[1] == pytest.approx(second, rel=0.2)


def test_workers_that_share_processors_do_no_more_than_these() -> None:
    load = replace(shared_load(4, 0.1, [0.01]), processors_s=np.full((4, 1), 0.05))
    assert worker_rates(load, PLAIN).sum() == pytest.approx(18.0, rel=0.12)


def test_a_ring_sends_nearly_twice_the_gradients_in_many_rounds() -> None:
    loads = [ring_load(count, 0.1, 1.0) for count in (1, 2, 4)]
    assert [load.network_s for load in loads] == [0.0, 1.0, 1.5]
    assert [load.rounds for load in loads] == [0, 2, 6]
    assert step_s(loads[2], replace(PLAIN, round_s=0.1)) == pytest.approx(0.1 + 1.5 + 0.6)


def test_a_step_waits_for_the_slowest_of_all_workers() -> None:
    assert largest_of(1) == 0.0
    assert largest_of(2) == pytest.approx(0.564, abs=0.002)
    assert largest_of(16) == pytest.approx(1.766, abs=0.01)
    load = TogetherLoad(
        num_workers=2, forward_s=0.5, backward_s=0.5, network_s=0.0, spread=0.1, crowd=2.0
    )
    assert step_s(load, PLAIN) == pytest.approx(2.0 * 1.0564, rel=1e-3)


def test_one_message_hides_nothing_and_with_servers_travels_twice() -> None:
    load = TogetherLoad(num_workers=2, forward_s=0.1, backward_s=0.2, network_s=0.5, message=1.0)
    assert step_s(load, PERFECT) == pytest.approx(0.8)
    assert step_s(replace(load, ways=2), PERFECT) == pytest.approx(1.3)
    assert step_s(replace(load, message=0.25), PERFECT) == pytest.approx(0.1 + 0.175 + 0.375)


def test_processors_handle_messages_beside_links_but_not_beside_computation() -> None:
    load = TogetherLoad(
        num_workers=2, forward_s=0.1, backward_s=0.5, network_s=0.5, messages_s=0.3, message=0.1
    )
    assert step_s(load, PERFECT) == pytest.approx(0.1 + 0.55, rel=0.01)
    crowded = replace(load, busy=1.0)
    assert step_s(crowded, PERFECT) == pytest.approx(0.1 + 0.5 + 0.3, rel=0.01)
    assert step_s(replace(crowded, messages_s=0.0), PERFECT) == pytest.approx(0.1 + 0.55, rel=0.01)


def test_times_that_overlap_are_between_the_larger_and_their_sum() -> None:
    assert joined(3.0, 4.0, 1.0) == pytest.approx(7.0)
    assert joined(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert joined(0.0, 0.0, 2.0) == 0.0


@pytest.mark.parametrize("wrong", [{"hiding": 0.5}, {"stretch": -1.0}, {"round_s": -0.1}])
def test_what_no_step_can_take_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="no step"):
        replace(USUAL, **wrong)


def test_loads_of_different_numbers_of_workers_are_refused() -> None:
    load = shared_load(2, 0.1, [0.1])
    with pytest.raises(ValueError, match="workers"):
        replace(load, backward_s=np.zeros(3))
    with pytest.raises(ValueError, match="times as long"):
        TogetherLoad(num_workers=1, forward_s=0.1, backward_s=0.1, network_s=0.0, crowd=0.5)
    with pytest.raises(ValueError, match="times as long"):
        TogetherLoad(num_workers=1, forward_s=0.1, backward_s=0.1, network_s=0.0, busy=1.5)


def simulated_rate(workers: int, think_s: float, service_s: float, spread: float) -> float:
    """Steps per second of workers that queue, first come first served, for one fixed service."""
    random = np.random.default_rng(workers)
    shape = 1.0 / spread**2

    def thinks() -> float:
        return float(random.gamma(shape, think_s / shape))

    arrivals = sorted(thinks() for _ in range(workers))
    free, steps, warm = 0.0, 20_000, 2_000
    begun = 0.0
    for step in range(steps):
        arrived = heapq.heappop(arrivals)
        free = max(free, arrived) + service_s
        heapq.heappush(arrivals, free + thinks())
        begun = free if step == warm else begun
    return (steps - 1 - warm) / (free - begun)


@pytest.mark.parametrize("spread", [0.3, 1.0])
@pytest.mark.parametrize("service", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_the_closed_form_is_near_a_simulation_of_events(
    workers: int, service: float, spread: float
) -> None:
    found = workers / step_s(shared_load(workers, 1.0, [service]), PLAIN)
    assert found == pytest.approx(simulated_rate(workers, 1.0, service, spread), rel=0.07)
