"""The network that a run uses: chosen by name or by subnet, else the first that leads outside."""

from __future__ import annotations

import pytest

from launchers.site import task_address
from ps_allreduce.errors import UserError
from ps_allreduce.record.hosts import Interface

LO = Interface(name="lo", address="127.0.0.1", prefix_length=8)

ETH = Interface(name="eth0", address="192.168.7.9", prefix_length=24)

IB = Interface(name="ib0", address="10.1.2.3", prefix_length=16)

SECOND = Interface(name="ib0", address="10.1.9.9", prefix_length=24)

ALL = (LO, ETH, IB, SECOND)


def test_the_first_that_leads_outside_is_taken_if_nothing_is_asked_for() -> None:
    assert task_address("n9", ALL, None) == ETH.address
    assert task_address("n9", (IB, LO, ETH), None) == IB.address
    assert task_address("n9", (LO,), None) == LO.address


def test_what_the_site_says_counts_unless_something_is_asked_for() -> None:
    assert task_address("n9", ALL, None, "10.9.9.9") == "10.9.9.9"
    assert task_address("n9", ALL, "ib0", "10.9.9.9") == IB.address


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("ib0", IB),
        ("lo", LO),
        ("eth0", ETH),
        ("10.1.0.0/16", IB),
        ("10.1.9.0/24", SECOND),
        ("10.1.2.3", IB),
        ("10.1.9.9/16", IB),
        ("192.168.0.0/16", ETH),
        ("0.0.0.0/0", LO),
    ],
)
def test_an_interface_is_chosen_by_name_or_by_subnet(wanted: str, expected: Interface) -> None:
    assert task_address("n9", ALL, wanted) == expected.address


@pytest.mark.parametrize("wanted", ["ib", "ib00", "eth1", "10.2.0.0/16", "fe80::/10", "10.1", ""])
def test_an_interface_that_is_not_there_is_told_with_those_that_are(wanted: str) -> None:
    with pytest.raises(UserError) as caught:
        task_address("n10", (LO, IB), wanted)
    told = str(caught.value)
    assert told.startswith("host n10 has no interface ")
    assert "it has: lo (127.0.0.1/8), ib0 (10.1.2.3/16). Choose one with --interface" in told
    with pytest.raises(UserError, match="host n9 has no interface with an address; it has: none"):
        task_address("n9", (), None)
