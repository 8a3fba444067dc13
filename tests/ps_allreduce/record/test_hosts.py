"""Hosts are alike if they are made alike; their names and places do not count."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ps_allreduce.record.hosts import Gpu, Interface, describe_difference, kinds
from tests.fakes import make_facts

GIB = 2**30

OWN: list[dict[str, Any]] = [
    {"name": "n10"},
    {"scheduler_name": "node-10"},
    {"switch": "root.leaf3"},
    {"interfaces": (Interface(name="ib0", address="10.1.0.7", prefix_length=16),)},
    {"cores": (8, 9, 10, 11)},
    {"gpus": (Gpu(identity="GPU-8f2c", model="A100"),)},
    {"memory_bytes": 7 * GIB + 5_000_000},
]

DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"cores": (0, 1)}, "cores [0, 1, 2, 3] and [0, 1]"),
    ({"gpus": (Gpu(identity="0", model="H100"),)}, "gpus "),
    ({"gpus": ()}, "gpus "),
    ({"cpu_model": "Another"}, "cpu_model A processor and Another"),
    ({"cpu_flags": ("avx",)}, "cpu_flags ['avx', 'avx2'] and ['avx']"),
    ({"memory_bytes": 16 * GIB}, f"memory_bytes {7 * GIB} and {16 * GIB}"),
    (
        {"cpu_model": "Another", "cores": (0, 1)},
        "cpu_model A processor and Another; cores [0, 1, 2, 3] and [0, 1]",
    ),
    ({"congestion": "bbr"}, "congestion cubic and bbr"),
    ({"versions": {"kernel": "6.2"}}, "versions {'kernel': '6.1'} and {'kernel': '6.2'}"),
]

BASE: dict[str, Any] = {
    "gpus": (Gpu(identity="0", model="A100"),),
    "memory_bytes": 7 * GIB,
    "versions": {"kernel": "6.1"},
    "congestion": "cubic",
}


@pytest.mark.parametrize("own", OWN, ids=lambda own: next(iter(own)))
def test_what_is_a_hosts_own_does_not_make_it_another_kind(own: dict[str, Any]) -> None:
    kind = make_facts(**BASE).kind
    assert re.fullmatch("[0-9a-f]{8}", kind)
    assert make_facts(**(BASE | own)).kind == kind


@pytest.mark.parametrize(("change", "told"), DIFFERENT)
def test_what_changes_results_makes_another_kind(change: dict[str, Any], told: str) -> None:
    one, other = make_facts("n9", **BASE), make_facts("n10", **(BASE | change))
    assert one.kind != other.kind
    assert describe_difference(one, other).startswith(told)


def test_hosts_are_grouped_in_their_order() -> None:
    small = {"cores": (0, 1)}
    hosts = [
        *(make_facts("n10"), make_facts("n9", **small)),
        *(make_facts("n1"), make_facts("n2", **small)),
    ]
    assert list(kinds(hosts).values()) == [["n10", "n1"], ["n9", "n2"]]
