"""What studies show of their sweeps, by the names of these; some stand beside published numbers."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.studies.beside import P2, PIZ_DAINT
from analysis.studies.claix_shown import CLAIX
from analysis.studies.embeddings_shown import EMBEDDINGS
from analysis.studies.incast_shown import INCAST
from analysis.studies.learning_shown import LEARNING
from analysis.studies.network_shown import NETWORK
from analysis.studies.osu_shown import OSU
from analysis.studies.pcad_shown import PCAD
from analysis.studies.shown import ShownStudy
from analysis.studies.storage_shown import STORAGE

SHOWN: Mapping[str, ShownStudy] = {
    each.name: each
    for each in (PIZ_DAINT, P2, PCAD, NETWORK, STORAGE, OSU, CLAIX, INCAST, EMBEDDINGS, LEARNING)
}
