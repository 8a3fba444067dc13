"""How close every strategy comes to the bound that its links set: the rows of the sweep `wire`.

Decides the targets, and what counts as missed: steps that take too long, or a launch that came to
nothing.  Emulated links are all alike, so the fastest measurement counts for all of them: other
work on the machine makes plain TCP look slower, never faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analysis.derive.fastest_step import bound_of, step_time_s
from ps_allreduce.point.architectures import TensorSet
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.wire import UNBUCKETED
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.serialization import to_json

#: The fastest links that targets are for; on faster ones processors are the limit.
TARGET_BITS_PER_S = 1e9

#: The share of its bound that a step reaches at least: where communication hides behind computation
#: that takes as long, and by what combines the gradients where it does not.
OVERLAP, COLLECTIVE, SYNCHRONOUS_SERVERS, ASYNCHRONOUS_SERVERS = 0.85, 0.92, 0.93, 0.95

#: The shortest step that can be emulated computes for so long; it counts as no computation.
SHORTEST_COMPUTE_S = 0.002

#: No step is faster than its bound; this much more is noise.
CREDIBLE = 1.05

#: Medians over the launches of a point that count.  Against its links: the rate of the fastest one
#: right before the run, seconds in which every worker makes a step on average, the least seconds
#: that the links leave it, and that bound over the step.  Then what processors did.
_REACHED = ("link_bits_per_s", "step_s", "bound_s", "fraction_of_bound")
_COSTS = ("machine_busy", "cpu_s_per_gigabyte", "core_bits_per_s")

#: Points that agree in these differ in how they send.
_SHAPE = ["purpose", "num_workers", "num_ps", "layout", "gradient_bytes", "num_tensors"]

_SETTINGS = (
    *("group_bytes", "cut_bytes", "in_flight", "gradients_on_wire", "host_aggregation"),
    *("bytes_per_pack", "placement", "split_bytes"),
)

#: Columns of the screen: heading, column of the table, what it is divided by, digits.
_SHOWN = (
    *(("workers", "num_workers", 1, 0), ("ps", "num_ps", 1, 0), ("per host", "ps_per_host", 1, 0)),
    *(("MB", "gradient_bytes", 1e6, 0), ("tensors", "num_tensors", 1, 0)),
    *(("compute s", "compute_s", 1, 3), ("step s", "step_s", 1, 3), ("bound s", "bound_s", 1, 3)),
    *(("fraction", "fraction_of_bound", 1, 3), ("busy", "machine_busy", 1, 2)),
    *(("CPU s/GB", "cpu_s_per_gigabyte", 1, 2), ("Gbit/s per core", "core_bits_per_s", 1e9, 2)),
    ("target", "target", 1, 2),
)


def target_of(experiment: Experiment) -> float | None:
    """The share of its bound that a point has to reach; None where it is shown for contrast."""
    rate = experiment.network.bits_per_s if experiment.network else None
    if rate is None or rate > TARGET_BITS_PER_S or not sends_as_suite(experiment):
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


def sends_as_suite(experiment: Experiment) -> bool:
    """Gradients travel in buckets, and not as TensorFlow sends them on its own."""
    return experiment.strategy.wire not in (None, UNBUCKETED)


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
        ["as_suite_sends", *order], ascending=[False, *(True for _ in order)], ignore_index=True
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
        "as_suite_sends": sends_as_suite(experiment),
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


def render_wire(table: pd.DataFrame) -> list[str]:
    """All points, then a line per target, and what the processors are the limit of."""
    shown = pd.DataFrame({"strategy": table["strategy"], "layout": table["layout"].fillna("")})
    for heading, column, size, digits in _SHOWN:
        values = table[column].astype(float) / size
        shown[heading] = ["-" if pd.isna(value) else f"{value:.{digits}f}" for value in values]
    shown["verdict"] = [_verdict(*row) for row in table[["as_suite_sends", "met", "reason"]].values]
    aimed = table[table["target"].notna()]
    return [
        *shown.to_string(index=False).splitlines(),
        *(f"{_words(row)}: {row['reason']}" for _, row in table[table["reason"] != ""].iterrows()),
        *(_summary(str(purpose), rows) for purpose, rows in aimed.groupby("purpose")),
        *(line for _, rows in table.groupby("strategy") for line in _cost(rows)),
        *_to_measure_again(table),
    ]


def _verdict(as_suite_sends: bool, met: bool | None, reason: str) -> str:
    if reason:
        return "no figures"
    if not as_suite_sends:
        return "TensorFlow's own settings"
    return {None: "", True: "met", False: "missed"}[met]


def _summary(purpose: str, rows: pd.DataFrame) -> str:
    """How many points of a purpose reach their target, and the worst of them."""
    met = sum(value is True for value in rows["met"])
    text = f"{purpose}: {met} of {len(rows)} rows reach {rows['target'].iloc[0]:.2f}"
    complete = rows[rows["reason"] == ""]
    if len(complete) < len(rows):
        text += f"; {len(rows) - len(complete)} came to nothing"
    if len(complete):
        worst = complete.iloc[int(complete["fraction_of_bound"].argmin())]
        text += f"; worst {worst['fraction_of_bound']:.3f} ({_words(worst)})"
    return text


def _words(row: pd.Series) -> str:
    servers = f", {row['num_ps']} ps {row['layout']}" if row["num_ps"] else ""
    return (
        f"{row['purpose']}, {row['num_workers']} workers{servers}, "
        f"{row['gradient_bytes'] / 1e6:.0f} MB in {row['num_tensors']} tensors"
    )


def _cost(rows: pd.DataFrame) -> Iterator[str]:
    """Processor time of a strategy beside what TensorFlow needs on its own for the same points."""
    suite, plain = rows[rows["as_suite_sends"]], rows[~rows["as_suite_sends"]]
    rates = suite["core_bits_per_s"].dropna() / 1e9
    if rates.empty:
        return
    text = (
        f"{rows['strategy'].iloc[0]}: one core per host keeps up with links of "
        f"{rates.median():.2f} Gbit/s ({rates.min():.2f} to {rates.max():.2f})"
    )
    both = suite.merge(plain, on=_SHAPE, suffixes=("", "_plain"))
    shares = (both["cpu_s_per_gigabyte"] / both["cpu_s_per_gigabyte_plain"]).dropna()
    if len(shares):
        text += f"; processor time per byte {shares.mean():.2f} of TensorFlow's own"
    yield text


def _to_measure_again(table: pd.DataFrame) -> Iterator[str]:
    """Launches whose links were mismeasured stay in the way until their records are gone."""
    if paths := list(table["mismeasured"].explode().dropna()):
        yield "To measure these again, move the records away and give the same command:"
        yield from (f"  {path}" for path in paths)
