"""Studies from the literature beside the sweeps that repeat them, by the names of these."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.published.beside import P2, PIZ_DAINT
from analysis.published.claix import CLAIX
from analysis.published.embeddings import EMBEDDINGS
from analysis.published.incast import INCAST
from analysis.published.learning import LEARNING
from analysis.published.network import NETWORK
from analysis.published.osu import OSU
from analysis.published.pcad import PCAD
from analysis.published.storage import STORAGE
from analysis.published.study import PublishedStudy

PUBLISHED: Mapping[str, PublishedStudy] = {
    each.name: each
    for each in (PIZ_DAINT, P2, PCAD, NETWORK, STORAGE, OSU, CLAIX, INCAST, EMBEDDINGS, LEARNING)
}
