"""How close every strategy comes to the bound that its links set: the rows of the sweep `wire`.

Decides the targets, and what counts as missed: steps that take too long, or a launch that came to
nothing.  Emulated links are all alike, so the fastest measurement counts for all of them: other
work on the machine makes plain TCP look slower, never faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

import pandas as pd

from analysis.derive.fastest_step import bound_of, step_time_s
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.weights import TensorSet
from ps_allreduce.point.strategies.base import Altered
from ps_allreduce.point.wire import UNBUCKETED
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.serialization import to_json

#: The fastest links that targets are for; on faster ones processors are the limit.
TARGET_BITS_PER_S = 1e9

#: The share of its bound that a step reaches at least: where communication hides behind computation
#: that takes as long, and by what combines the gradients where it does not.
OVERLAP, COLLECTIVE, SYNCHRONOUS_SERVERS, ASYNCHRONOUS_SERVERS = 0.85, 0.92, 0.93, 0.95


class Sending(StrEnum):
    """How gradients are sent; all but buckets are shown for contrast and have no target.

    The last four are the rungs of the ladder below buckets, downwards
    (`ps_allreduce.point.strategies.stock`).
    """

    BUCKETS = "buckets"
    UNLIMITED = "no limit"
    UNBUCKETED = "unbucketed"
    PACKS = "one pack"
    FUSED = "fused optimizer"
    AS_SHIPPED = "as shipped"


#: The shortest step that can be emulated computes for so long; it counts as no computation.
SHORTEST_COMPUTE_S = 0.002

#: No step is faster than its bound; this much more is noise.
CREDIBLE = 1.05

#: Medians over the launches of a point that count.  Against its links: the rate of the fastest one
#: right before the run, seconds in which every worker makes a step on average, the least seconds
#: that the links leave it, and that bound over the step.  Then what processors did.
_REACHED = ("link_bits_per_s", "step_s", "bound_s", "fraction_of_bound")
_COSTS = ("machine_busy", "cpu_s_per_gigabyte", "core_bits_per_s")

_SETTINGS = (
    *("group_bytes", "cut_bytes", "in_flight", "gradients_on_wire", "host_aggregation"),
    *("bytes_per_pack", "placement", "split_bytes"),
)


def target_of(experiment: Experiment) -> float | None:
    """The share of its bound that a point has to reach; None where it is shown for contrast."""
    rate = experiment.network.bits_per_s if experiment.network else None
    if rate is None or rate > TARGET_BITS_PER_S or sending_of(experiment) is not Sending.BUCKETS:
        return None
    if computed_s(experiment):
        return OVERLAP
    if experiment.strategy.uses_collective:
        return COLLECTIVE
    return SYNCHRONOUS_SERVERS if experiment.strategy.synchronous else ASYNCHRONOUS_SERVERS


def computed_s(experiment: Experiment) -> float:
    """Seconds that an emulated accelerator computes in a step; 0 where it only communicates."""
    emulated = experiment.workload.emulated
    seconds = emulated.forward_s + emulated.backward_s if emulated else 0.0
    return seconds if seconds > SHORTEST_COMPUTE_S else 0.0


def sending_of(experiment: Experiment) -> Sending:
    """How a point of the sweep sends its gradients."""
    strategy, wire = experiment.strategy, experiment.strategy.wire
    if strategy.as_shipped:
        altered = strategy.columns()["altered"] != Altered.NOTHING
        return Sending.FUSED if altered else Sending.AS_SHIPPED
    if wire is None:
        return Sending.PACKS
    if wire == UNBUCKETED:
        return Sending.UNBUCKETED
    return Sending.BUCKETS if wire.in_flight else Sending.UNLIMITED


def wire_table(runs: pd.DataFrame, records: Mapping[str, RunRecord]) -> pd.DataFrame:
    """The points of a sweep as `bench.json` keeps them: by strategy, tensors, workers and servers.

    Args:
        runs: rows of the table of runs, the last attempt of each repetition.
        records: by the index of that table.
    """
    rows = [
        _row(launches, [records[str(path)] for path in launches.index])
        for _, launches in runs.groupby("experiment_id", sort=False)
    ]
    order = ["purpose", "gradient_bytes", "num_tensors", "num_workers", "num_ps", "ps_per_host"]
    return pd.DataFrame(rows).sort_values(
        ["sending", *order],
        key=lambda column: column.map([*Sending].index) if column.name == "sending" else column,
        ignore_index=True,
    )


def _row(launches: pd.DataFrame, records: Sequence[RunRecord]) -> dict[str, object]:
    """One point, from its launches."""
    experiment = records[0].experiment
    rows = [_held_against_links(record) for record in records]
    held = pd.DataFrame(rows, columns=[*_REACHED, "reason", "mismeasured"])
    counting = held["reason"].isna().to_numpy()
    columns = experiment.columns()
    reached = held[list(_REACHED)].astype(float)
    fractions = reached["fraction_of_bound"]
    target, fraction = target_of(experiment), fractions.median()
    reason = "; ".join(held["reason"].dropna().unique())
    costs = launches.loc[counting, list(_COSTS)].astype(float)
    strategy, overlaps = str(experiment.strategy), computed_s(experiment) > 0
    return {
        "strategy": strategy,
        "purpose": f"{strategy}, overlap" if overlaps else strategy,
        "num_workers": experiment.num_workers,
        "num_ps": experiment.num_ps,
        "ps_per_host": _ps_per_host(experiment),
        "layout": columns.get("layout"),
        **_tensors(experiment),
        "compute_s": computed_s(experiment),
        "sending": sending_of(experiment).value,
        **{str(name): value for name, value in {**reached.median(), **costs.median()}.items()},
        "cpu_over": ", ".join(launches["cpu_over"].dropna().unique()),
        "fraction_low": fractions.min(),
        "fraction_high": fractions.max(),
        "target": target,
        "met": None if target is None else not reason and bool(fraction >= target),
        "repetitions": int(counting.sum()),
        "reason": reason,
        "mismeasured": list(launches.loc[held["mismeasured"].notna().to_numpy(), "record_path"]),
        "settings": {name: columns.get(name) for name in _SETTINGS},
        "network": to_json(experiment.network),
    }


def _held_against_links(record: RunRecord) -> Mapping[str, object]:
    """What a launch reached of the bound that its fastest link sets, or why it tells nothing."""
    step_s = step_time_s(record)
    if record.status is not Status.OK or step_s is None:
        return {"reason": f"{record.status}: {record.reason}"}
    rate = max((link.bits_per_s for link in record.links), default=0.0)
    alike = tuple(replace(link, bits_per_s=rate) for link in record.links)
    bound = bound_of(replace(record, links=alike))
    if bound is None:
        return {"reason": "no link was measured"}
    bound_s = bound.step_s if computed_s(record.experiment) else bound.network_s
    fraction = bound_s / step_s
    if fraction > CREDIBLE:
        reason = (
            f"{fraction:.3f} of the bound cannot be: the rate of the links was measured too low "
            f"({rate / 1e6:.0f} Mbit/s); leave the machine to the bench"
        )
        return {"reason": reason, "mismeasured": True}
    return dict(zip(_REACHED, (rate, step_s, bound_s, fraction), strict=True))


def _ps_per_host(experiment: Experiment) -> int:
    """Servers on a host that has any; 0 where there are none."""
    if not experiment.num_ps or experiment.spread is None:
        return experiment.num_ps
    return experiment.spread.ps_per_host or 1


def _tensors(experiment: Experiment) -> dict[str, int]:
    """Number of gradients of a worker, and their bytes in float32."""
    model = experiment.workload.model
    if not isinstance(model, TensorSet):
        raise ValueError("the points of the sweep wire send sets of tensors")
    return {"gradient_bytes": 4 * model.count * model.elements, "num_tensors": model.count}
