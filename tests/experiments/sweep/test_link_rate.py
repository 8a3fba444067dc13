"""Rate and batch are chosen so that links matter, and neither processors nor links alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from experiments.sweep.link_rate import (
    LEAST_KEPT,
    MOST_BUSY,
    MOST_LOOKS,
    Look,
    choose_batch,
    choose_rate,
    round_rate,
)


@dataclass(slots=True, kw_only=True)
class Machine:
    """Steps that compute for `free_s` on all cores, handle messages, and use links besides.

    Attributes:
        handled_s: of all cores, for messages.
        overlap: share of the shorter of both parts that hides behind the other.
        busy: share of the processor time in which a step computes; less beside accelerators.
    """

    bits: float
    free_s: float
    handled_s: float = 0.0
    overlap: float = 0.0
    busy: float = 1.0
    rates: list[float] = field(default_factory=list)

    def look_at(self, rate: float) -> Look:
        self.rates.append(rate)
        network_s, work_s = self.bits / rate, self.free_s + self.handled_s
        step_s = work_s + network_s - self.overlap * min(work_s, network_s)
        used_s = self.busy * self.free_s + self.handled_s
        return Look(
            bits_per_s=rate,
            bits=self.bits,
            step_s=step_s,
            free_s=self.free_s,
            busy=used_s / step_s,
        )

    def choose(self) -> Look:
        return choose_rate(self.bits, self.free_s, self.look_at)


@example(bits=2.2e9, free_s=1.0, handled=0.25, overlap=0.75, busy=1.0)  # no round rate is good
@example(bits=7500000001.0, free_s=4.0, handled=0.25, overlap=0.5, busy=1.0)
@example(bits=1e5, free_s=0.09375, handled=0.0, overlap=0.75, busy=1.0)
@given(
    bits=st.floats(1e5, 1e10),
    free_s=st.floats(0.002, 5.0),
    handled=st.floats(0.0, 0.25),
    overlap=st.floats(0.0, 0.8),
    busy=st.floats(0.05, 1.0),
)
def test_processors_have_time_to_spare_and_workers_keep_a_share_of_their_rate(
    bits: float, free_s: float, handled: float, overlap: float, busy: float
) -> None:
    machine = Machine(
        bits=bits, free_s=free_s, handled_s=handled * free_s, overlap=overlap, busy=busy
    )
    look = machine.choose()
    assert len(machine.rates) <= MOST_LOOKS
    if 1e6 < look.bits_per_s < 1e10:
        assert look.busy <= MOST_BUSY
        rates = (step * 10.0**power for power in range(6, 11) for step in (1, 2, 3, 5, 7))
        assert look.is_good or not any(machine.look_at(rate).is_good for rate in rates)


def test_a_first_rate_that_is_good_is_kept() -> None:
    machine = Machine(bits=7.2e6, free_s=0.1)
    assert machine.choose().kept == pytest.approx(0.1 / 0.172)
    assert machine.rates == [1e8]


def test_where_messages_keep_processors_busy_idle_ones_come_first() -> None:
    machine = Machine(bits=7.2e6, free_s=0.01, handled_s=0.03)
    look = machine.choose()
    assert look.busy <= MOST_BUSY
    assert look.kept < LEAST_KEPT


@pytest.mark.parametrize(
    ("kept", "busy", "helps"), [(0.16, 0.72, False), (0.16, 0.1, True), (0.9, 0.2, True)]
)
def test_where_workers_mostly_wait_no_slower_links_tell_more(
    kept: float, busy: float, helps: bool
) -> None:
    look = Look(bits_per_s=1e8, bits=0.9e8 * 0.006, step_s=0.006, free_s=kept * 0.006, busy=busy)
    assert look.helps_by_rate is helps


@pytest.mark.parametrize(
    ("batch", "free_s", "chosen"),
    [
        pytest.param(32, 0.012, 512, id="a small network computes for longer"),
        pytest.param(32, 0.12, 32, id="long enough"),
        pytest.param(8, 2.0, 8, id="never less than the default"),
        pytest.param(32, 1e-5, 1024, id="an end there is"),
    ],
)
def test_a_step_computes_long_enough_beside_its_messages(
    batch: int, free_s: float, chosen: int
) -> None:
    assert choose_batch(batch, free_s) == chosen


@pytest.mark.parametrize(
    ("rate", "rounded"),
    [(1e8, 1e8), (4.9e7, 3e7), (5e7, 5e7), (1.0, 1e6), (1e12, 1e10)],
)
def test_rates_are_round(rate: float, rounded: float) -> None:
    assert round_rate(rate) == rounded
