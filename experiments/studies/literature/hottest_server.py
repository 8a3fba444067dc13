"""How busy one server was on Piz Daint, and the links on which 8 workers keep one as busy.

The time in which the hottest server sends its values to the other hosts once, over the computation
of a step: its *share*.  Nobody published what a host of Piz Daint sends through gRPC.  It follows
from the original's row of 64 workers, whose efficiency is lower than that of 8, where no server is
hot.  The row of 128 is not used: what the share says of it is a prediction.

How the original overlapped is read from its script (tf_cnn_benchmarks of 2017 in
github.com/e-bug/distributed-tensorflow-benchmarks, variable_update=parameter_server): workers fetch
values at the start of a step, send gradients as they come, and meet at a barrier before the next
one.  So a step takes max(forward, share) + max(backward, share), in computations.
"""

from __future__ import annotations

from dataclasses import dataclass

from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.placement import Policy, make_plan

#: Of InceptionV3's computation.  Not published for the original; that of the emulated accelerator.
FORWARD, BACKWARD = 0.35, 0.65

#: Of a frame of Ethernet, as links count them, what TCP carries with an MTU of 1500 bytes.
PAYLOAD = 1448 / 1514

#: Images per second of a single worker there.
ALONE = 138.23


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """A row of the original's table that was measured with greedy placement."""

    workers: int
    num_ps: int
    images_per_sec: float

    @property
    def efficiency(self) -> float:
        """On a single worker."""
        return self.images_per_sec / (self.workers * ALONE)

    @property
    def hot_bytes(self) -> int:
        """What the hottest server sends in a step, and gets."""
        whole = ScaledModel(base="InceptionV3", divisor=1)
        return hot_bytes(whole, Policy.GREEDY, self.workers, self.num_ps)


#: No server is hot: what is lost here is lost with every number of workers.
USUAL = PublishedRow(workers=8, num_ps=2, images_per_sec=1018.18)

#: One server is, for longer than a forward pass and shorter than a backward one.
HOT = PublishedRow(workers=64, num_ps=40, images_per_sec=7118.31)

#: What 8 workers are to load alike.
KNEE = PublishedRow(workers=128, num_ps=116, images_per_sec=9219.7)


def hot_bytes(model: ScaledModel, policy: Policy, workers: int, num_ps: int) -> int:
    """Bytes that the hottest server sends to the other hosts in a step, and gets from them.

    One worker shares its host, and so does not count.
    """
    return (workers - 1) * max(make_plan(policy, model.variables, num_ps).bytes_per_server())


def share_of(row: PublishedRow) -> float:
    """The share of the hottest server of a row, by its bytes."""
    share_of_hot = USUAL.efficiency / HOT.efficiency - BACKWARD
    return share_of_hot * row.hot_bytes / HOT.hot_bytes


def links_for(num_bytes: int, seconds: float) -> float:
    """The rate of emulated links, in whole Mbit/s, on which bytes take so long; bits per second."""
    return float(round(8 * num_bytes / seconds / PAYLOAD, -6))
