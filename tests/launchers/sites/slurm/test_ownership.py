"""Whether a job has its nodes for itself, as versions of Slurm tell it."""

from __future__ import annotations

import pytest

from launchers.sites.slurm.allocation import owns_nodes

HALF, ALL = {"n9": 4}, {"n9": 8}


@pytest.mark.parametrize(
    ("job", "granted", "owns"),
    [
        ({}, HALF, True),
        ({"OverSubscribe": "NO"}, HALF, True),
        ({"OverSubscribe": "TOPO"}, HALF, True),
        ({"OverSubscribe": "OK"}, HALF, False),
        ({"OverSubscribe": "OK"}, ALL, True),
        ({"OverSubscribe": "OK"}, {"n9": 8, "n10": 8}, False),  # of n10 nothing is known
        ({"OverSubscribe": "YES"}, ALL, False),
        ({"OverSubscribe": "USER"}, ALL, False),
        ({"OverSubscribe": "NO", "Exclusive": "NODE"}, HALF, True),
        ({"OverSubscribe": "NO", "Exclusive": "TOPO"}, HALF, True),
        ({"OverSubscribe": "NO", "Exclusive": "NO"}, HALF, False),
        ({"OverSubscribe": "NO", "Exclusive": "NO"}, ALL, True),
        ({"OverSubscribe": "OK", "Exclusive": "NO"}, ALL, False),
        ({"OverSubscribe": "NO", "Exclusive": "USER"}, HALF, False),
    ],
)
def test_nodes_are_the_jobs_alone(job: dict[str, str], granted: dict[str, int], owns: bool) -> None:
    assert owns_nodes(job, granted, ALL) is owns
