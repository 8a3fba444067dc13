"""Hosts of different kinds in one run.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ps_allreduce.errors import UserError
from ps_allreduce.record.hosts import HostFacts, describe_difference, kinds


def refuse_mixture(facts: Sequence[HostFacts]) -> None:
    """See that all hosts are alike.

    Raises:
        UserError: they are not.
    """
    found = kinds(facts)
    if len(found) < 2:
        return
    (one, *_), (two, *_) = list(found.values())[:2]
    by_name = {fact.name: fact for fact in facts}
    raise UserError(
        f"the hosts are of {len(found)} kinds: {one} and {two} differ in "
        f"{describe_difference(by_name[one], by_name[two])}. Use hosts that are alike (with Slurm: "
        "--constraint, or --sbatch=--exclude=HOST), or overrule with --mixed-hosts."
    )
