"""All studies by the name of their command.

To add a study is to write its module beside this one and its line here; its command and its target
of `make`, which reads these lines, come from this one list.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.studies import (
    allreduce_sweep,
    compare,
    horovod_sweep,
    incast,
    ladder,
    placement_sweep,
    ps_sweep,
    timeline,
    tuning_sweep,
)
from experiments.studies.literature import claix, network, osu, p2, pcad, piz_daint, storage
from experiments.studies.study import Study

STUDIES: Mapping[str, Study] = {
    "compare": compare.STUDY,
    "ps-sweep": ps_sweep.STUDY,
    "allreduce-sweep": allreduce_sweep.STUDY,
    "placement-sweep": placement_sweep.STUDY,
    "tuning-sweep": tuning_sweep.STUDY,
    "horovod-sweep": horovod_sweep.STUDY,
    "ladder": ladder.STUDY,
    "timeline": timeline.STUDY,
    "incast": incast.STUDY,
    "piz-daint": piz_daint.STUDY,
    "p2": p2.STUDY,
    "pcad": pcad.STUDY,
    "network": network.STUDY,
    "storage": storage.STUDY,
    "osu": osu.STUDY,
    "claix": claix.STUDY,
}
