"""How near a run came to the bound of links that are all alike, as emulated ones are.

Decides that the fastest measurement counts for all of them: other work on the machine makes plain
TCP look slower, never faster.  Links that differ, and the bound itself, are the business of
`fastest_step`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analysis.derive.fastest_step import bound_of, is_credible, step_time_s
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.records import RunRecord, Status

#: The shortest step that can be emulated computes for so long; it counts as no computation.
SHORTEST_COMPUTE_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAgainstLinks:
    """One launch and its bound; the figures are None where the launch says nothing about its links.

    Attributes:
        link_bits_per_s: of the fastest link, right before the run.
        step_s: seconds in which every worker makes a step on average.
        bound_s: least seconds that the links leave such a step.
        fraction_of_bound: bound over step; 1 is as fast as the links allow.
        reason: why it says nothing; empty if it does.
        mismeasured: the links cannot have been as slow as they were measured.
    """

    link_bits_per_s: float | None = None
    step_s: float | None = None
    bound_s: float | None = None
    fraction_of_bound: float | None = None
    reason: str = ""
    mismeasured: bool = False


def computed_s(experiment: Experiment) -> float:
    """Seconds that an emulated accelerator computes in a step; 0 where it only communicates."""
    emulated = experiment.workload.emulated
    if emulated is None or emulated.forward_s + emulated.backward_s <= SHORTEST_COMPUTE_S:
        return 0.0
    return emulated.forward_s + emulated.backward_s


def held_against_links(record: RunRecord) -> HeldAgainstLinks:
    """A launch beside the bound that its fastest link sets."""
    step_s = step_time_s(record)
    if record.status is not Status.OK or step_s is None:
        return HeldAgainstLinks(reason=f"{record.status}: {record.reason}")
    rate = max((link.bits_per_s for link in record.links), default=0.0)
    alike = tuple(replace(link, bits_per_s=rate) for link in record.links)
    bound = bound_of(replace(record, links=alike))
    if bound is None:
        return HeldAgainstLinks(reason="no link was measured")
    bound_s = bound.step_s if computed_s(record.experiment) else bound.network_s
    fraction = bound_s / step_s
    if not is_credible(fraction):
        reason = (
            f"{fraction:.3f} of the bound cannot be: the rate of the links was measured too low "
            f"({rate / 1e6:.0f} Mbit/s); leave the machine to the bench"
        )
        return HeldAgainstLinks(reason=reason, mismeasured=True)
    return HeldAgainstLinks(
        link_bits_per_s=rate, step_s=step_s, bound_s=bound_s, fraction_of_bound=fraction
    )
