"""What is wanted of one run, besides being on the hosts of a site."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ps_allreduce.point.experiment import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One run.

    Attributes:
        data_dir: folder of the input files.
        mixed_hosts: hosts of different kinds may take part.
        wants_weights: the final weights are fetched with the results.
        recording_rounds: not 0: instead of measuring, so many pairs of recorded and bare stretches.
    """

    experiment: Experiment
    data_dir: Path
    mixed_hosts: bool = False
    wants_weights: bool = False
    recording_rounds: int = 0
