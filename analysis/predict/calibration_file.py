"""What was learned of a cluster, as a file that answers without its launches, and those shipped.

Decides what such a file holds, and which clusters come with the suite, so that a first answer needs
none: those of which published rates tell enough, and emulated hosts.  Decides what is assumed where
nothing was published, and says so with every answer.

Published rates are those of `analysis.published`, all rows, by E. Bugliarello, Distributed
TensorFlow: a performance evaluation, CSCS 2017
(github.com/e-bug/distributed-tensorflow-benchmarks): InceptionV3, TensorFlow 1.1, batch 64, one GPU
in each worker, servers beside workers, whole variables.  The rate of links is found with the other
figures: it is the one that fits these rows best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from analysis.predict.calibration import Family
from analysis.predict.fitting import Seen, fit
from analysis.predict.literature import FOLDER
from analysis.predict.loads import Cluster
from analysis.predict.models import step_s
from analysis.predict.planned_loads import planned_load
from analysis.predict.predictions import Teller
from analysis.predict.sent import SentBytes
from ps_allreduce.errors import RecordFormatError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.shapes import known_variables
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device, Resources, Spread
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.files import read_json, write_json
from ps_allreduce.serialization import from_json

#: Of a step's computation; assumed, as in docs/studies/piz-daint.md.
_FORWARD = 0.35

#: From step to step; assumed.
_SPREAD = 0.02

_BATCH = 64

_MODEL = ImageModel(name="InceptionV3", image_size=299, num_classes=1000)

_PLACED = {"parameter_server": Policy.GREEDY, "distributed_replicated": Policy.ROUND_ROBIN}

#: Bytes per second of links that are tried.
_RATES = np.geomspace(1e8, 1e10, 40)

ASSUMED = (
    "that forward passes take 0.35 of a computation, steps vary by 2 %, and messages are small",
    "the rate of links, which is the one that fits the published rates best",
)
NOT_PUBLISHED = "all-reduce, which nobody published there: links and overlap are those of servers"


def published_tellers(name: str) -> tuple[Teller, ...]:
    """Of a cluster: synchronous servers as they were measured, and all-reduce.

    Args:
        name: of a CSV file in `analysis.published`.
    """
    rows = pd.read_csv(FOLDER / f"{name}.csv")
    found = [_family(rows, float(rate)) for rate in _RATES]
    family = min(found, key=_misfit)
    served = Teller.of(family)
    served = replace(served, unknown=(*served.unknown, *ASSUMED))
    ring = replace(
        served,
        largest=replace(served.largest, strategy=AllReduce.of(StrategySettings())),
        sent=replace(served.sent, sizes=()),
        unknown=(*served.unknown, NOT_PUBLISHED),
    )
    return served, ring


def _misfit(family: Family) -> float:
    made = fit(family.seen)
    return sum(abs(math.log(step_s(e.load, made) / median(e.steps_s))) for e in family.seen)


def _family(rows: pd.DataFrame, bytes_per_s: float) -> Family:
    """All rows, as if links had that rate."""
    alone_s = _BATCH / float(rows["images_per_sec"].iloc[0])
    cluster = Cluster(
        forward_s=_FORWARD * alone_s,
        backward_s=(1 - _FORWARD) * alone_s,
        examples=_BATCH,
        spread=_SPREAD,
        link_share=None,
        bytes_per_s=bytes_per_s,
        cores=1.0,
        shares_cores=False,
        lone_cores=0.0,
    )
    seen = tuple(_seen(row, cluster) for row in rows.to_dict("records"))
    return Family(
        seen=seen,
        largest=seen[-1].experiment,
        sent=_sent(),
        clusters=(cluster,),
        cpu_s_per_byte=0.0,
    )


def _sent() -> SentBytes:
    sizes = [each.num_bytes for each in known_variables("InceptionV3") if each.trainable]
    return SentBytes(gradient_bytes=sum(sizes), message=0.0, num_workers=1, sizes=tuple(sizes))


def _seen(row: Mapping[Any, Any], cluster: Cluster) -> Seen:
    settings = StrategySettings(num_ps=int(row["num_ps"]), placement=_PLACED[row["mode"]])
    own = Experiment(
        strategy=SynchronousServers.of(settings),
        num_workers=int(row["workers"]),
        workload=Workload(model=_MODEL, batch_per_worker=_BATCH),
        resources=Resources(device=Device.GPU),
        launcher="slurm",
        spread=Spread(),
    )
    load = planned_load(own, _sent(), cluster, 0.0)
    return Seen(
        experiment=own, load=load, steps_s=(own.global_batch / float(row["images_per_sec"]),)
    )


NAME = "calibration.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """Settings of one model on one cluster.

    Attributes:
        source: where and when it was measured, in words.
        settings: synchronous ones.
    """

    source: str
    settings: tuple[Teller, ...]


def save_calibration(path: Path, made: CalibrationFile) -> None:
    """Write it.

    Raises:
        UserError: no permission, or no space left.
    """
    write_json(path, made)


def read_calibration(path: Path) -> CalibrationFile:
    """Read what `save_calibration` wrote.

    Raises:
        RecordFormatError: it cannot be read.
    """
    try:
        return from_json(CalibrationFile, read_json(path))
    except (OSError, ValueError, RecordFormatError) as error:
        raise RecordFormatError(
            f"{path}: no readable calibration ({str(error).rstrip('.')}). Name a folder of "
            "results, or the calibration.json that make report leaves in that of make calibrate."
        ) from error


def _published(name: str, about: str) -> CalibrationFile:
    source = f"{about}, published by E. Bugliarello, CSCS 2017 (docs/studies/piz-daint.md)"
    return CalibrationFile(source=source, settings=published_tellers(name))


#: What comes with the suite, by its name.
SHIPPED: Mapping[str, Callable[[], CalibrationFile]] = {
    "emulated": partial(read_calibration, FOLDER / "emulated.json"),
    "piz-daint": partial(_published, "piz-daint", "InceptionV3 on Piz Daint, P100"),
    "p2.xlarge": partial(_published, "p2.xlarge", "InceptionV3 on Amazon's p2.xlarge, K80"),
}
