"""Why runs are not pooled, in words."""

from __future__ import annotations

from typing import Any

from analysis.data.blocks import differences
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.record.hosts import HostRecord
from ps_allreduce.record.records import RunRecord
from tests.analysis.builders import provenance, run
from tests.fakes import make_experiment, make_facts, make_host

SLURM: dict[str, Any] = {"launcher": "slurm", "spread": Spread()}


def block(*hosts: HostRecord, settings: dict[str, Any] = SLURM, **changes: Any) -> list[RunRecord]:
    """One run on these hosts, begun on a machine that its provenance describes."""
    own = make_experiment(AllReduce, 2, **settings)
    return [run(own, 100.0, hosts=hosts, provenance=provenance(**changes))]


def host(name: str, **facts: Any) -> HostRecord:
    return make_host(name, facts=make_facts(name, **facts))


def test_kinds_of_hosts_that_changed_joined_or_left_are_described() -> None:
    old = block(host("n1", cpu_model="Old one"), host("n2", cpu_model="Old one"))
    assert differences(old, block(host("n3"))) == (
        "cpu_model of n1, n2: Old one (analysed: A processor of n3)",
    )
    mixed = block(host("n1"), host("n2", cpu_model="Old one"))
    alike = block(host("n3"))
    assert differences(mixed, alike) == ("cpu_model of n2: Old one (analysed: A processor of n3)",)
    assert differences(alike, mixed) == ("cpu_model of n3: A processor (analysed: Old one of n2)",)


def test_the_machine_that_a_cluster_was_used_from_explains_nothing() -> None:
    old = block(host("n1"), host="login1", system="Other", program="older")
    assert differences(old, block(host("n2"), host="login2")) == (
        "program: older (analysed: 0c0ffee0)",
    )


def test_the_machine_below_emulated_hosts_does_count() -> None:
    network = EmulatedNetwork(num_hosts=1, bits_per_s=None)
    emulated = {"launcher": "emulated", "spread": Spread(), "network": network}
    old = block(host("emulated0"), settings=emulated, cpu_model="Old one")
    assert differences(old, block(host("emulated0"), settings=emulated)) == (
        "cpu_model: Old one (analysed: A processor)",
    )


def test_what_the_records_cannot_tell_is_said() -> None:
    (line,) = differences(block(host("n1")), block(host("n2")))
    assert line.startswith("nothing that the records hold: perhaps hosts of the job")
    # Which cores a run was given depends on its point, and says nothing about the block.
    assert differences(block(host("n1", cores=(0,))), block(host("n2"))) == (line,)
    # Other launchers are named.
    assert differences(block(host("n1"), settings={}), block(host("n1"))) == (
        "launcher: local (analysed: slurm)",
    )
