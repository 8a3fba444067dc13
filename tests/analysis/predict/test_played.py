"""Steps that are played: what single links take, who waits for whom, and the closed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.predict.models import PERFECT, TogetherLoad, step_s
from analysis.predict.played import PIECES, Play, played_s
from ps_allreduce.bounds import Flow, network_time_s

RATE, MESSAGE, COUNT = 1e6, 10_000, 10

HOSTS = ("a", "b", "c", "d")


def beside(held: tuple[int, ...], slower: Mapping[str, float] | None = None) -> Play:
    """A worker and a server on each of four hosts, some with slower links."""
    times = slower or {}
    rates = {host: (RATE / times.get(host, 1.0),) * 2 for host in HOSTS}
    return Play(
        workers=HOSTS,
        servers=HOSTS,
        held=held,
        pushed=1.0,
        backward_s=0.0,
        message=MESSAGE,
        in_flight=4,
        rates=rates,
    )


def apart(workers: int) -> Play:
    """One server on a host of its own, with links that are all alike."""
    hosts = tuple(map(str, range(workers)))
    return replace(
        beside((MESSAGE * COUNT,)),
        workers=hosts,
        servers=("server",),
        rates=dict.fromkeys((*hosts, "server"), (RATE, RATE)),
        in_flight=0,
    )


EVEN = beside((MESSAGE * COUNT,) * 4)


def busiest_s(play: Play) -> float:
    """In which the busiest link of hosts carries its bytes."""
    flows = [
        Flow(source=source, target=target, num_bytes=size)
        for server, size in zip(play.servers, play.held, strict=True)
        for worker in play.workers
        if worker != server
        for source, target in ((worker, server), (server, worker))
    ]
    return network_time_s(flows, play.rates)


def test_the_last_value_of_a_lone_worker_comes_after_all_gradients() -> None:
    one = MESSAGE / RATE
    assert played_s(apart(1)) == pytest.approx((COUNT + 1) * one + 2 * one / PIECES)


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("backward_s", [0.0, 0.1, 1.0])
def test_the_closed_form_is_near_a_played_step(workers: int, backward_s: float) -> None:
    play = replace(apart(workers), backward_s=backward_s)
    load = TogetherLoad(
        num_workers=workers,
        forward_s=0.0,
        backward_s=backward_s,
        network_s=workers * MESSAGE * COUNT / RATE,
        message=1 / COUNT,
        ways=2,
    )
    assert step_s(load, PERFECT) == pytest.approx(played_s(play), rel=0.03)


@pytest.mark.parametrize("host", HOSTS)
def test_a_link_that_is_slower_than_all_others_waits_for_nobody(host: str) -> None:
    play = replace(EVEN, rates=beside(EVEN.held, {host: 3.0}).rates)
    assert played_s(play) == pytest.approx(busiest_s(play), rel=0.05)
    assert played_s(EVEN) > 1.05 * busiest_s(EVEN)


def test_a_hot_server_behind_a_slow_link_still_sends_its_last_value_afterwards() -> None:
    play = beside((MESSAGE * COUNT, 0, 0, 0), {"a": 3.0})
    last = (len(HOSTS) - 1) * MESSAGE / (RATE / 3.0)
    assert played_s(play) >= busiest_s(play) + 0.99 * last


def test_what_goes_to_another_rack_shares_its_uplink() -> None:
    play = replace(EVEN, racks=dict(zip(HOSTS, "0011", strict=True)), uplink=RATE / 4)
    crossing = 2 * 2 * 2 * MESSAGE * COUNT / play.uplink
    assert played_s(play) == pytest.approx(crossing, rel=0.05)


@given(
    held=st.tuples(*[st.integers(0, 6).map(lambda count: count * MESSAGE)] * 4),
    slower=st.fixed_dictionaries(dict.fromkeys(HOSTS, st.floats(1.0, 4.0))),
)
def test_no_played_step_is_faster_than_its_links(
    held: tuple[int, ...], slower: dict[str, float]
) -> None:
    play = beside(held, slower)
    assert played_s(play) >= busiest_s(play) * (1 - 1e-9)
