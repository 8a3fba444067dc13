"""Congestion control that differs, and what is lost where many send to one, are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launchers.doctor.checks.speed import congestion, loss
from launchers.doctor.findings import Level
from ps_allreduce.record.hosts import TcpCounters
from tests.fakes import make_facts
from tests.launchers.doctor.doctor_facts import bursts, healthy, host_check, only, with_host


def test_one_congestion_control_is_named() -> None:
    assert only(congestion(healthy()), Level.OK).text == "cubic everywhere"


def test_a_mixture_is_a_finding() -> None:
    facts = with_host(healthy(bursts=None), "n9", facts=make_facts("n9", congestion="bbr"))
    finding = only(congestion(facts), Level.WARNING)
    assert finding.text == "cubic on n10, n1; bbr on n9"
    assert "tcp_congestion_control" in finding.remedy


def test_what_connections_have_comes_before_what_hosts_begin_with() -> None:
    finding = only(congestion(healthy(bursts=bursts(n9="reno"))), Level.WARNING)
    assert finding.text == "cubic on n10, n1; reno on n9"


def test_emulated_hosts_have_that_of_their_network_and_not_the_machines() -> None:
    facts = healthy(one_machine=True, bursts=bursts(n1="reno", n9="reno"))
    assert only(congestion(facts), Level.OK).text == "reno everywhere"


def test_nothing_is_said_where_no_host_tells() -> None:
    silent = replace(host_check("n1", ["n1"]), facts=make_facts("n1"))
    assert list(congestion(healthy(("n1",), checked={"n1": silent}, bursts=None))) == []


def test_next_to_no_loss_is_well_and_probes_are_none() -> None:
    finding = only(loss(healthy(bursts=bursts(lost=10))), Level.OK)
    assert finding.text == "of 100000 TCP segments 10 were lost when n1, n9 sent to n10 at once"


@pytest.mark.parametrize(
    ("one_machine", "told"), [(False, "ask the administrator"), (True, "--port-buffer")]
)
def test_loss_above_the_limit_says_what_it_costs_and_what_to_do(
    one_machine: bool, told: str
) -> None:
    finding = only(loss(healthy(bursts=bursts(lost=11), one_machine=one_machine)), Level.WARNING)
    assert finding.text == "of 100000 TCP segments 11 were lost when n1, n9 sent to n10 at once"
    assert "(above 1 in 10,000)" in finding.remedy
    assert told in finding.remedy


def test_a_loss_or_two_of_a_few_segments_are_no_finding() -> None:
    few = replace(bursts(), tcp=TcpCounters(sent=100, sent_again=9, probes=0, timeouts=0))
    assert only(loss(healthy(bursts=few)), Level.OK)


def test_what_could_not_be_tried_has_no_finding() -> None:
    assert list(loss(healthy(bursts=None))) == []
    assert list(loss(healthy(bursts=replace(bursts(), tcp=None)))) == []
    assert only(loss(healthy(("n1",), bursts=None)), Level.OK).text == "one host, no link"
