"""Studies from the literature beside the sweeps that repeat them, by the names of these."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.published.beside import P2, PIZ_DAINT
from analysis.published.claix_shown import CLAIX
from analysis.published.embeddings_shown import EMBEDDINGS
from analysis.published.incast_shown import INCAST
from analysis.published.learning_shown import LEARNING
from analysis.published.network_shown import NETWORK
from analysis.published.osu_shown import OSU
from analysis.published.pcad_shown import PCAD
from analysis.published.shown import PublishedStudy
from analysis.published.storage_shown import STORAGE

PUBLISHED: Mapping[str, PublishedStudy] = {
    each.name: each
    for each in (PIZ_DAINT, P2, PCAD, NETWORK, STORAGE, OSU, CLAIX, INCAST, EMBEDDINGS, LEARNING)
}
