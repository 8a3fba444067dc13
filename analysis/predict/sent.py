"""What a step of a setting sends, as a launch has shown it, and what it would with other servers.

Decides how variables are placed on other numbers of servers (by the policy that was measured), and
how large a message is there.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from analysis.derive.network_causes import placed_variables, variable_of
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.placement import Policy, default_split_bytes, make_plan
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.variables import RowsAsked


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBytes:
    """What a setting sends.

    Attributes:
        gradient_bytes: of one worker, in float32.
        message: the share of the bytes that is in one message.
        num_workers: of the launch that showed it.
        sizes: bytes of the variables in creation order, 0 of those that are not trained; empty
            without servers.
        bytes_per_server: as they were placed.
        rows: of tables, of which only these are exchanged; None where there are none.
    """

    gradient_bytes: int
    message: float
    num_workers: int
    sizes: tuple[int, ...] = ()
    bytes_per_server: tuple[int, ...] = ()
    rows: RowsAsked | None = None

    @classmethod
    def of(cls, record: RunRecord) -> SentBytes:
        """Of a launch."""
        used = record.placement
        return cls(
            gradient_bytes=record.gradient_bytes or 0,
            message=message_share(record),
            num_workers=record.experiment.num_workers,
            sizes=tuple(each.num_bytes for each in placed_variables(used)) if used else (),
            bytes_per_server=used.bytes_per_server if used else (),
            rows=record.rows_asked,
        )

    def placed(self, experiment: Experiment) -> tuple[int, ...]:
        """Bytes of each server, by the policy of the experiment; empty without servers.

        Raises:
            UserError: there are more servers than variables or parts of them.
        """
        servers = experiment.strategy.servers
        if servers is None or not self.sizes:
            return ()
        if len(self.bytes_per_server) == servers.num_ps:
            return self.bytes_per_server
        return _dealt(self.sizes, servers.placement, servers.num_ps, servers.split_bytes)

    def message_of(self, experiment: Experiment) -> tuple[float, bool]:
        """What is in one message, and whether that is a size, not a share of all bytes.

        Buckets have the same size.  In a ring so many messages as there are workers hold one, so
        there it is the share for each worker; with servers it is in bytes.
        """
        own = experiment.strategy
        if own.wire is None or not self.gradient_bytes:
            return self.message, False
        if own.uses_collective:
            return self.message / self.num_workers, True
        return self.message * max(self.bytes_per_server, default=self.gradient_bytes), True


def grown(message: float, grows: bool, workers: int, most: float) -> float:
    """The share of the bytes that is in one message, with so many workers.

    Args:
        message, grows: as `SentBytes.message_of` tells.
        most: bytes of the server that holds most; 0 without servers.
    """
    if not grows:
        return message
    return min(1.0, message / most if most else message * workers)


@cache
def _dealt(
    sizes: tuple[int, ...], policy: Policy, num_ps: int, split_bytes: int | None
) -> tuple[int, ...]:
    variables = [variable_of(number, size) for number, size in enumerate(sizes)]
    split = split_bytes or default_split_bytes(variables, num_ps)
    return make_plan(policy, variables, num_ps, split).bytes_per_server()


def message_share(record: RunRecord) -> float:
    """The share of a link's bytes that is in one message: the largest where steps were traced.

    Elsewhere messages count as alike.  TensorFlow's packs and Horovod's buffers hold what they may;
    one pack holds all.
    """
    size = record.experiment.strategy.packed_bytes
    if size is not None and record.gradient_bytes:
        return min(1.0, size / record.gradient_bytes) if size else 1.0
    if record.messages:
        return _largest_message(record)
    count = record.num_messages
    return min(1.0, max(1, record.experiment.num_ps) / count) if count else 1.0


def _largest_message(record: RunRecord) -> float:
    """Over what the same server gets, that of the server that gets most."""
    by_server: dict[int | None, list[int]] = {}
    for each in (each for each in record.messages if not each.of_rows):
        by_server.setdefault(each.server, []).append(each.num_bytes)
    hottest = max(by_server.values(), key=sum, default=[1])
    return max(hottest) / sum(hottest)
