"""Which share of their segments launches lost, and for which share of their time they stalled.

Decides from when on either is worth telling.
"""

from __future__ import annotations

import pandas as pd

from analysis.stats.decision import MARGIN
from ps_allreduce.record.hosts import LEAST_LOST, LOST_LIMIT

#: Share of the time: what takes less makes no side the faster one.
STALLED_LIMIT = MARGIN

#: Columns of the table of runs that tell of lost segments.
COUNTED = ("segments_sent", "segments_sent_again", "loss_probes", "port_drops")


def lost_shares(launches: pd.DataFrame) -> pd.Series:
    """Of each launch: segments lost over segments sent; 0 if unknown or not worth telling.

    What is sent again was lost, but for probes, which TCP sends of its own accord.  Where a probe
    repairs a loss, only ports know of it.
    """
    own = launches[[*COUNTED]].astype(float)
    again = (own["segments_sent_again"] - own["loss_probes"]).clip(lower=0.0)
    lost = pd.concat([again, own["port_drops"]], axis="columns").max(axis="columns")
    shares = lost / own["segments_sent"]
    return shares.where((lost >= LEAST_LOST) & (shares > LOST_LIMIT), 0.0)


def stalled_shares(launches: pd.DataFrame) -> pd.Series:
    """Of each launch: the time of stalled steps over that of all; 0 if unknown or not worth it."""
    own = launches[["stalled_s", "mean_step_s"]].astype(float)
    shares = own["stalled_s"] / own["mean_step_s"]
    return shares.where(shares > STALLED_LIMIT, 0.0)
