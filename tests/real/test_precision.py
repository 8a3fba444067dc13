"""16 bits, in the computation or on the wire: trained for real, and held against float32.

Differences of weights are relative to the way that float32 has gone from the initial weights: most
of a weight is its initial value, which says nothing about gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import Precision, Scaling, Workload
from tests.cluster import LocalLauncher
from tests.real.gate import Trained, distance, single_for, train
from tests.real.points import point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]

#: Half the distance of neighbouring numbers, relative: what rounding changes at most.
ROUNDOFF = {
    Precision.MIXED_FLOAT16: 2.0**-11,
    Precision.MIXED_BFLOAT16: 2.0**-8,
    WireType.FLOAT16: 2.0**-11,
    WireType.BFLOAT16: 2.0**-8,
}

#: All points train on the same 16 images in a step.
WHOLE = Workload(batch_per_worker=16)

COMMUNICATING = {AsynchronousServers: 1, SynchronousServers: 2, AllReduce: 2}


@pytest.mark.parametrize("precision", [Precision.MIXED_FLOAT16, Precision.MIXED_BFLOAT16])
def test_mixed_precision_trains_close_to_float32(
    precision: Precision,
    launcher: LocalLauncher,
    single_run: Callable[[Experiment], Trained],
    tmp_path: Path,
) -> None:
    experiment = point(Single, workload=replace(WHOLE, precision=precision))
    trained = train(launcher, experiment, tmp_path)
    error = distance(trained, single_run(point(Single, workload=WHOLE)))
    # Rounding takes about a share u of the activations across the kink of the ReLU.  Their part of
    # a gradient is then there or not at all: a share u of the square of its norm, so the root of u
    # of its norm.  The other elements are wrong by u only.  Measured over three seeds: at most 2.6
    # roots; and if nothing had been rounded, there would be no error at all.
    unit = ROUNDOFF[precision]
    assert unit < error < 4 * math.sqrt(unit)


@pytest.mark.parametrize("gradients", [WireType.FLOAT16, WireType.BFLOAT16])
@pytest.mark.parametrize("strategy", COMMUNICATING)
def test_gradients_of_16_bits_cost_no_more_than_their_rounding(
    strategy: type[AnyStrategy],
    gradients: WireType,
    launcher: LocalLauncher,
    single_run: Callable[[Experiment], Trained],
    tmp_path: Path,
) -> None:
    workers = COMMUNICATING[strategy]
    experiment = point(
        strategy,
        workers,
        workload=replace(WHOLE, scaling=Scaling.STRONG),
        wire=Wire(gradients=gradients),
    )
    error = distance(train(launcher, experiment, tmp_path), single_run(single_for(experiment)))
    # A gradient is rounded once, and in a ring of two a second time where it is summed: 2 u.  Steps
    # partly go back what others have gone, so the way is shorter than the sum of the steps: twice.
    unit = ROUNDOFF[gradients]
    assert unit / 10 < error < 4 * unit
