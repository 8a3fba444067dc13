"""The parts of a step by what causes them: what there is to gain if a cause is taken away.

Decides how the parts of `derive.step_parts` and the bounds of `derive.network_causes` become
causes.  They add up to the mean step exactly, like those:

- a slow worker: what the slowest one computes beyond the fastest one, where workers meet in every
  step; elsewhere what all of them do in the mean.
- workers that are slow in turn: what workers wait for each other otherwise.  Waits for a worker
  that always begins late are no part of it: its values come late, so they are the exchange's.
- input: what the worker waits for whose gradients come last; others wait for it then.
- slower compute of all: what the fastest worker takes beyond the same work alone.
- hottest server, hot rows, slowest link: what the busiest link would save, as far as that is not
  hidden.  A link is never used perfectly, so the bound is stretched to the time in which gradients
  travel: from the first one that may, in the backward pass, to the end of the step.
- delays beside lost packets: the time of steps that stalled, where segments were lost.  It is
  taken out of what workers wait for each other, and out of the exchange before links have their
  share of that.
- exchange and update, dispatch: the rest.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pandas as pd

from analysis.stats.decision import MARGIN
from ps_allreduce.record.hosts import LEAST_LOST, LOST_LIMIT


class Cause(StrEnum):
    """What a part of a step is spent on."""

    COMPUTE = "compute"
    SLOWED = "slower compute of all"
    INPUT = "waiting for input"
    WORKER = "a slow worker"
    IN_TURN = "workers that are slow in turn"
    HOT_SERVER = "the hottest server"
    HOT_ROWS = "hot rows"
    EXCHANGE = "exchange and update"
    SLOW_LINK = "the slowest link"
    LOST = "delays beside lost packets"
    DISPATCH = "dispatch"
    FOREIGN = "other programs on the processors"
    FEWER_WORKERS = "fewer workers"
    UNSEEN = "steps that are not divided"


#: A bound is stretched no further: beyond it, something else than the links takes the time.
MOST_STRETCH = 2.0

#: Share of the time: what takes less makes no side the faster one.
STALLED_LIMIT = MARGIN

#: Columns of the table of runs that tell of lost segments.
COUNTED = ("segments_sent", "segments_sent_again", "loss_probes", "port_drops", "port_loss")


def explained_parts(
    launches: pd.DataFrame, alone_s: float | None, fastest_bits_per_s: float = 0.0
) -> pd.DataFrame:
    """Seconds of the mean step of each launch, by cause; those of a row add up to `mean_step_s`.

    Args:
        launches: rows of the table of runs.
        alone_s: what the compute of a step takes alone; None where that is not known.  What an
            emulated accelerator was asked for counts instead.
        fastest_bits_per_s: of links elsewhere, that these are held against if it is more.
    """
    own = launches[[*_USED]].astype(float)
    seen = own["compute_s"].notna()
    stated = own["fastest_stated_s"].fillna(np.nan if alone_s is None else alone_s)
    slowed = (own["fastest_compute_s"] - stated).clip(lower=0.0).fillna(0.0)
    imbalance = own["compute_s"] - own["fastest_compute_s"]
    waiting = own["waiting_s"] - (own["last_input_s"] - own["input_wait_s"])
    waits = imbalance + waiting - own["slow_worker_s"]
    late = own["late_start_s"].fillna(0.0).clip(upper=waits.clip(lower=0.0))
    in_turn = waits - late
    lost = _lost(own, in_turn)
    parts = {
        Cause.COMPUTE: own["fastest_compute_s"] - slowed,
        Cause.SLOWED: slowed,
        Cause.INPUT: own["last_input_s"],
        Cause.WORKER: own["slow_worker_s"],
        Cause.IN_TURN: in_turn - lost["waiting_s"],
        Cause.DISPATCH: own["dispatch_s"].where(seen),
        **_exchange(
            own.assign(exchange_s=own["exchange_s"] + late - lost["exchange_s"]),
            fastest_bits_per_s,
        ),
        Cause.LOST: lost.sum(axis="columns"),
        Cause.UNSEEN: own["mean_step_s"].where(~seen),
    }
    return pd.DataFrame(parts).fillna(0.0)


_LINK_COLUMNS = (
    *("network_s", "hot_server_s", "hot_rows_s", "slow_link_s"),
    "fastest_link_bits_per_s",
)

#: Columns of the table of runs that the parts are made of.
_USED = (
    *("mean_step_s", "compute_s", "input_wait_s", "backward_s", "dispatch_s", "waiting_s"),
    *("exchange_s", "last_input_s", "fastest_compute_s", "fastest_stated_s", "slow_worker_s"),
    "late_start_s",
    *_LINK_COLUMNS,
    *("stalled_s", "stalled_waiting_s", *COUNTED),
)


def _lost(own: pd.DataFrame, in_turn: pd.Series) -> pd.DataFrame:
    """What lost packets make longer of the waits for others and of the exchange, at most all."""
    stalled_s = {
        "waiting_s": (own["stalled_waiting_s"], in_turn),
        "exchange_s": (own["stalled_s"] - own["stalled_waiting_s"], own["exchange_s"]),
    }
    found = {
        part: each.where(lost_shares(own) > 0.0, 0.0).clip(lower=0.0, upper=hiding.clip(lower=0.0))
        for part, (each, hiding) in stalled_s.items()
    }
    return pd.DataFrame(found).fillna(0.0)


def _exchange(own: pd.DataFrame, fastest_bits_per_s: float) -> dict[Cause, pd.Series]:
    """The exchange, of which the network's causes have at most all."""
    travel_s = own["backward_s"] + own["exchange_s"]
    stretch = (travel_s / own["network_s"]).clip(1.0, MOST_STRETCH)
    causes = link_savings(own, fastest_bits_per_s).mul(stretch, axis="index")
    together = causes.sum(axis="columns")
    share = (own["exchange_s"] / together.where(together > 0.0)).clip(0.0, 1.0).fillna(0.0)
    causes = causes.mul(share, axis="index")
    rest = own["exchange_s"] - causes.sum(axis="columns")
    return {**{Cause(str(name)): causes[name] for name in causes}, Cause.EXCHANGE: rest}


def link_savings(launches: pd.DataFrame, fastest_bits_per_s: float = 0.0) -> pd.DataFrame:
    """Seconds that the busiest link of each launch would save, by cause; 0 where unknown."""
    own = launches[[*_LINK_COLUMNS]].astype(float)
    fastest = own["fastest_link_bits_per_s"]
    # What the busiest link would take if all were as fast as the fastest one of anybody.
    alike_s = (own["network_s"] - own["slow_link_s"]) * fastest
    alike_s /= fastest.clip(lower=fastest_bits_per_s)
    causes = {
        Cause.HOT_SERVER: own["hot_server_s"],
        Cause.HOT_ROWS: own["hot_rows_s"],
        Cause.SLOW_LINK: own["network_s"] - alike_s,
    }
    return pd.DataFrame(causes).fillna(0.0)


def lost_shares(launches: pd.DataFrame) -> pd.Series:
    """Of each launch: segments lost over segments sent; 0 if unknown or not worth telling.

    What is sent again was lost, but for probes, which TCP sends of its own accord.  Where a probe
    repairs a loss, only ports know of it: of the whole run, while hosts tell of the window.  Ports
    count a train of segments as one packet, so theirs is the least that was lost.  Where they lost
    nothing at all, TCP only sent again what was late.
    """
    own = launches[[*COUNTED]].astype(float)
    again = own["segments_sent_again"] - own["loss_probes"]
    of_window = (again / own["segments_sent"]).where(
        (again >= LEAST_LOST) & (own["port_loss"] != 0.0)
    )
    of_run = own["port_loss"].where(own["port_drops"] >= LEAST_LOST)
    shares = pd.concat([of_window, of_run], axis="columns").max(axis="columns")
    return shares.where(shares > LOST_LIMIT, 0.0)


def stalled_shares(launches: pd.DataFrame) -> pd.Series:
    """Of each launch: the time of stalled steps over that of all; 0 if unknown or not worth it."""
    own = launches[["stalled_s", "mean_step_s"]].astype(float)
    shares = own["stalled_s"] / own["mean_step_s"]
    return shares.where(shares > STALLED_LIMIT, 0.0)
