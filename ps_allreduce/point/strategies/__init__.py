"""Training strategies: a small closed family of values that check themselves.

`AnyStrategy` lists the family; to add a strategy is to add its class here and its backend in
`ps_allreduce.backends`.  Everything else asks a strategy for its traits, settings and columns;
only what one strategy alone has is asked of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from ps_allreduce.point.strategies.all_reduce import AllReduce, Horovod
from ps_allreduce.point.strategies.base import NoCommunication, Single, value_of
from ps_allreduce.point.strategies.stock import StockAllReduce, StockServers
from ps_allreduce.point.strategies.with_servers import (
    AsynchronousServers,
    Hybrid,
    SynchronousServers,
)

__all__ = [
    "STRATEGIES",
    "AllReduce",
    "AnyStrategy",
    "AsynchronousServers",
    "Horovod",
    "Hybrid",
    "NoCommunication",
    "Single",
    "StockAllReduce",
    "StockServers",
    "SynchronousServers",
    "default_of",
]

AnyStrategy = (
    Single
    | NoCommunication
    | AsynchronousServers
    | SynchronousServers
    | AllReduce
    | Horovod
    | Hybrid
    | StockServers
    | StockAllReduce
)

#: All strategies by the name that users and records give them, in the order of tables.
STRATEGIES: Mapping[str, type[AnyStrategy]] = {each.kind: each for each in get_args(AnyStrategy)}


def default_of(setting: str) -> object:
    """What a setting is where nobody states it, in the first strategy that has it."""
    owners = (each for each in STRATEGIES.values() if setting in each.understands())
    return value_of(setting, next(owners)())
