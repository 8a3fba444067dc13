"""All published studies by the names of the sweeps that repeat them."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.data.cases import Case
from analysis.published.beside import PublishedStudy, sweep_of
from analysis.published.piz_daint import PIZ_DAINT

PUBLISHED: Mapping[str, PublishedStudy] = {each.name: each for each in (PIZ_DAINT,)}


def published_of(case: Case) -> PublishedStudy | None:
    """The study that a case repeats; None if it repeats none."""
    return PUBLISHED.get(sweep_of(case))
