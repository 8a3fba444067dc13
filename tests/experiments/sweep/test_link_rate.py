"""The rate of emulated links is chosen so that the links decide and not the processors."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from experiments.sweep.link_rate import (
    LEAST_SHARE,
    MOST_BUSY,
    MOST_LOOKS,
    Look,
    choose_rate,
    round_rate,
)


@dataclass(slots=True)
class Machine:
    """Steps that need processors for `work_s` on all cores, and links besides.

    Attributes:
        overlap: share of the shorter part that hides behind the other.
    """

    bits: float
    work_s: float
    overlap: float = 0.0
    rates: list[float] = field(default_factory=list)

    def look_at(self, rate: float) -> Look:
        self.rates.append(rate)
        network_s = self.bits / rate
        step_s = self.work_s + network_s - self.overlap * min(self.work_s, network_s)
        return Look(bits_per_s=rate, bits=self.bits, step_s=step_s, busy=self.work_s / step_s)


@example(bits=1e5, work_s=0.09375, overlap=0.75)
@given(
    bits=st.floats(1e5, 1e10),
    work_s=st.floats(0.002, 5.0),
    overlap=st.floats(0.0, 0.8),
)
def test_processors_have_time_to_spare_and_the_network_a_share(
    bits: float, work_s: float, overlap: float
) -> None:
    machine = Machine(bits, work_s, overlap)
    look = choose_rate(bits, machine.look_at)
    assert len(machine.rates) <= MOST_LOOKS
    if 1e6 < look.bits_per_s < 1e10:
        assert look.busy <= MOST_BUSY
        assert look.network_share >= LEAST_SHARE
    else:  # a faster link there is not, and a slower one nobody wants
        assert look.busy <= MOST_BUSY or machine.look_at(1e6).busy > MOST_BUSY


def test_a_first_rate_that_is_good_is_kept() -> None:
    machine = Machine(bits=7.2e6, work_s=0.06)
    assert choose_rate(7.2e6, machine.look_at).bits_per_s == 1e8
    assert machine.rates == [1e8]


@pytest.mark.parametrize(
    ("rate", "rounded"), [(1e8, 1e8), (4.9e7, 3e7), (5e7, 5e7), (1.0, 1e6), (1e12, 1e10)]
)
def test_rates_are_round(rate: float, rounded: float) -> None:
    assert round_rate(rate) == rounded
