"""What lost packets cost a launch: which share of its segments was lost, and of its time stalled.

Decides from when on either is worth telling.
"""

from __future__ import annotations

import pandas as pd

#: Share of the segments: of 16 to 91 that launches without loss sent again nearly all were probes.
LOST_LIMIT = 1e-4

#: Share of the window.
STALLED_LIMIT = 0.03

#: Columns of the table of runs that tell of lost segments.
COUNTED = ("segments_sent", "segments_sent_again", "loss_probes", "port_drops")


def lost_shares(launches: pd.DataFrame) -> pd.Series:
    """Of each launch: segments that were lost over those that were sent; unknown is not a number.

    What is sent again is lost, but for probes: TCP sends those of its own accord.  Where one
    repairs a loss, only ports know of it.
    """
    own = launches[[*COUNTED]].astype(float)
    again = (own["segments_sent_again"] - own["loss_probes"]).clip(lower=0.0)
    lost = pd.concat([again, own["port_drops"]], axis="columns").max(axis="columns")
    return lost / own["segments_sent"].where(own["segments_sent"] > 0.0)


def stalled_shares(launches: pd.DataFrame) -> pd.Series:
    """Of each launch: the time beyond the main hump of steps that stalled; unknown is NaN."""
    own = launches[["stalled_s", "mean_step_s"]].astype(float)
    return own["stalled_s"] / own["mean_step_s"]
