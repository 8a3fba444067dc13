"""The parts of a step by what causes them: what there is to gain if a cause is taken away.

Decides how the parts of `step_parts` and the bounds of `network_causes` become causes.  They add up
to the mean step exactly, like those:

- slower workers: what workers compute beyond the fastest one, and the waiting of the others, as far
  as the slowest one did not wait for input itself.
- input: what the worker waits for whose gradients come last; others wait for it then.
- compute slowed by shared cores: what the fastest worker takes beyond the same work alone.
- hottest server, slowest link: what the busiest link would save, as far as that is not hidden.  A
  link is never used perfectly, so the bound is stretched to the time in which gradients travel:
  from the first one that may, in the backward pass, to the end of the step.
- exchange and update, dispatch: the rest.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pandas as pd


class Cause(StrEnum):
    """What a part of a step is spent on."""

    COMPUTE = "compute"
    SLOWED = "compute slowed by shared cores"
    INPUT = "waiting for input"
    WORKERS = "slower workers"
    HOT_SERVER = "hottest server"
    EXCHANGE = "exposed communication and update"
    SLOW_LINK = "slowest link"
    DISPATCH = "dispatch"
    FOREIGN = "other programs on the processors"
    WORKERS_LESS = "workers that hosts of servers are not"
    UNSEEN = "steps that nobody sees into"


#: A bound is stretched no further: beyond it, something else than the links takes the time.
MOST_STRETCH = 2.0


def explained_parts(launches: pd.DataFrame, alone_s: float | None) -> pd.DataFrame:
    """Seconds of the mean step of each launch, by cause; those of a row add up to `mean_step_s`.

    Args:
        launches: rows of the table of runs.
        alone_s: what the compute of a step takes alone; None where that is not known.  What an
            emulated accelerator was asked for counts instead.
    """
    own = launches.astype(dict.fromkeys(_USED, float))
    seen = own["compute_s"].notna()
    stated = own["fastest_stated_s"].fillna(np.nan if alone_s is None else alone_s)
    slowed = (own["fastest_compute_s"] - stated).clip(lower=0.0).fillna(0.0)
    parts = {
        Cause.COMPUTE: own["fastest_compute_s"] - slowed,
        Cause.SLOWED: slowed,
        Cause.INPUT: own["last_input_s"],
        Cause.WORKERS: own["compute_s"]
        - own["fastest_compute_s"]
        + own["waiting_s"]
        - (own["last_input_s"] - own["input_wait_s"]),
        Cause.DISPATCH: own["dispatch_s"].where(seen),
        **_exchange(own),
        Cause.UNSEEN: own["mean_step_s"].where(~seen),
    }
    return pd.DataFrame(parts).fillna(0.0)


#: Columns of the table of runs that the parts are made of.
_USED = (
    *("mean_step_s", "compute_s", "input_wait_s", "backward_s", "dispatch_s", "waiting_s"),
    *("exchange_s", "last_input_s", "fastest_compute_s", "fastest_stated_s"),
    *("network_s", "hot_server_s", "slow_link_s"),
)


def _exchange(own: pd.DataFrame) -> dict[Cause, pd.Series]:
    """The exchange, of which the network's causes have at most all."""
    travel_s = own["backward_s"] + own["exchange_s"]
    stretch = (travel_s / own["network_s"]).clip(1.0, MOST_STRETCH)
    causes = own[["hot_server_s", "slow_link_s"]].mul(stretch, axis="index").fillna(0.0)
    together = causes.sum(axis="columns")
    share = (own["exchange_s"] / together.where(together > 0.0)).clip(0.0, 1.0).fillna(0.0)
    causes = causes.mul(share, axis="index")
    return {
        Cause.HOT_SERVER: causes["hot_server_s"],
        Cause.SLOW_LINK: causes["slow_link_s"],
        Cause.EXCHANGE: own["exchange_s"] - causes.sum(axis="columns"),
    }
