"""What an experiment says, in the words of `exchange`, and its buckets in those of a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ps_allreduce.exchange.buckets import Bucket, Messages
from ps_allreduce.exchange.served import Part
from ps_allreduce.exchange.updates import AdamRule, AdamWRule, MomentumRule, SgdRule, UpdateRule
from ps_allreduce.point.optimizers import Adam, AdamW, Momentum, Optimizer, Sgd
from ps_allreduce.point.placement import Plan
from ps_allreduce.point.wire import ELEMENT_BYTES, Wire
from ps_allreduce.record.variables import MessageRecord

_RULES: Mapping[type[Optimizer], type[Any]] = {
    Sgd: SgdRule,
    Momentum: MomentumRule,
    Adam: AdamRule,
    AdamW: AdamWRule,
}


def update_rule(optimizer: Optimizer) -> UpdateRule:
    """The rule of an optimizer; its settings have the same names."""
    rule: UpdateRule = _RULES[type(optimizer)](**asdict(optimizer))
    return rule


def messages_of(wire: Wire) -> Messages:
    """How gradients are sent, in elements."""
    return Messages(
        group_size=wire.group_size,
        cut_size=wire.cut_size,
        in_flight=wire.in_flight,
        number_format=wire.gradients.value,
    )


def parts_of(plan: Plan) -> list[Part]:
    """Every shard of a plan, in the words of `exchange`."""
    return [
        Part(
            variable=shard.variable,
            server=shard.server,
            axis=shard.axis,
            start=shard.start,
            length=shard.length,
        )
        for shard in plan.shards
    ]


def recorded_buckets(buckets: Sequence[Bucket], names: Sequence[str]) -> list[MessageRecord]:
    """What every bucket carries.

    Args:
        names: of the variables that the tensors of the buckets belong to, by their positions.
    """
    return [
        MessageRecord(
            num_bytes=bucket.size * ELEMENT_BYTES,
            variables=tuple(dict.fromkeys(names[piece.tensor] for piece in bucket.pieces)),
        )
        for bucket in buckets
    ]
