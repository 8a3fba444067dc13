"""All studies by the name of their command, and the list of them as text.

To add a study is to write its module beside this one and its line here; its command and its target
of `make`, which reads these lines, come from this one list.  What each costs and should show is
read from its `about`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from experiments.studies import (
    calibrate,
    compare,
    embeddings,
    foresight,
    incast,
    learning,
    setting_sweeps,
    timeline,
    wire_study,
)
from experiments.studies.literature import claix, network_study, osu, p2, pcad, piz_daint, storage
from experiments.studies.study import Study

STUDIES: Mapping[str, Study] = {
    "compare": compare.STUDY,
    "ps-sweep": setting_sweeps.PS_SWEEP,
    "allreduce-sweep": setting_sweeps.ALLREDUCE_SWEEP,
    "placement-sweep": setting_sweeps.PLACEMENT_SWEEP,
    "tuning-sweep": setting_sweeps.TUNING_SWEEP,
    "horovod-sweep": setting_sweeps.HOROVOD_SWEEP,
    "ladder": setting_sweeps.LADDER,
    "timeline": timeline.STUDY,
    "embeddings": embeddings.STUDY,
    "incast": incast.STUDY,
    "calibrate": calibrate.STUDY,
    "foresight": foresight.STUDY,
    "wire": wire_study.STUDY,
    "learning": learning.STUDY,
    "piz-daint": piz_daint.STUDY,
    "p2": p2.STUDY,
    "pcad": pcad.STUDY,
    "network": network_study.STUDY,
    "storage": storage.STUDY,
    "osu": osu.STUDY,
    "claix": claix.STUDY,
}


WIDTH = 100

#: Paragraphs of `about`, by how they begin, that the list repeats.
TOLD = ("Cost:", "It should show")


def render_studies(studies: Mapping[str, Study]) -> str:
    """Every study by its name: what it compares, on which hosts, what it costs and should show."""
    return "\n\n".join(
        "\n".join([f"{name}: {_first_line(study)}", *_indented(_hosts(study)), *_told(study)])
        for name, study in studies.items()
    )


def _first_line(study: Study) -> str:
    return study.about.partition("\n")[0]


def _hosts(study: Study) -> str:
    if study.small is not None:
        return (
            f"Hosts: {study.small.hosts} emulated ones in the profile quick, else those of a "
            "cluster."
        )
    if study.hosts is not None:
        return f"Hosts: {study.hosts} emulated ones where this machine allows namespaces, or yours."
    return "Hosts: this machine, or yours."


def _told(study: Study) -> list[str]:
    paragraphs = [" ".join(each.split()) for each in study.about.split("\n\n")]
    return [line for each in paragraphs if each.startswith(TOLD) for line in _indented(each)]


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
