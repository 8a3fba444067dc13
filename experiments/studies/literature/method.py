"""What studies from the literature share: windows of fixed length, and devices of a known speed.

Decides how a published rate becomes an emulated accelerator.  Which rates and models there are is
decided by each study.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from experiments.studies.scope import Scope
from experiments.sweep.sweep import QUICK, STANDARD, Profile
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.resources import Device
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload

#: Of the time of a step that computes; the backward pass has about twice the operations.
FORWARD_SHARE = 1 / 3

#: Digits behind the point that stated seconds have; results are named by them.
DIGITS = 4

#: Seconds of a run, in the small form and on a cluster.
QUICK_DEADLINE_S, STANDARD_DEADLINE_S = 120.0, 900.0


def fixed_profiles(warmup_steps: int, steps: int, launches: int) -> Mapping[str, Profile]:
    """The small form as stated; on a cluster 10 steps of warm-up, 100 measured ones, 5 launches."""
    return {
        QUICK: Profile(
            name=QUICK,
            measurement=_measured(warmup_steps, steps),
            repetitions=launches,
            deadline_s=QUICK_DEADLINE_S,
        ),
        STANDARD: Profile(
            name=STANDARD,
            measurement=_measured(10, 100),
            repetitions=5,
            deadline_s=STANDARD_DEADLINE_S,
        ),
    }


def _measured(warmup_steps: int, steps: int) -> Measurement:
    warmup = FixedWarmup(least_steps=warmup_steps, least_s=0.0)
    return Measurement(warmup=warmup, measured_steps=steps)


def emulated(model: str, *, divisor: int, batch: int, step_s: float) -> Workload:
    """The gradients of a model, and an accelerator that computes a step in so many seconds."""
    return Workload(
        model=ScaledModel(base=model, divisor=divisor),
        batch_per_worker=batch,
        emulated=_device(step_s),
    )


def in_precisions(scope: Scope, workload: Workload) -> Iterator[Workload]:
    """GPUs compute in mixed precision as well."""
    yield workload
    if scope.device is Device.GPU and workload.precision is Precision.FLOAT32:
        yield replace(workload, precision=Precision.MIXED_FLOAT16)


def _device(step_s: float) -> EmulatedCompute:
    """An emulated accelerator that computes a step in so many seconds."""
    forward_s = round(step_s * FORWARD_SHARE, DIGITS)
    return EmulatedCompute(forward_s=forward_s, backward_s=round(step_s - forward_s, DIGITS))
