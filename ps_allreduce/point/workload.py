"""What every worker trains, real or emulated: the same for all strategies of a comparison.

Decides which workloads make sense.  Building the network and reading its input is the business of
`workloads`, which needs TensorFlow.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.architectures import SMALL_CNN, model_info, tensor_set

SYNTHETIC = "synthetic"
DIGITS = "digits"


class Precision(StrEnum):
    """Number formats of the forward and backward pass; weights are kept in float32."""

    FLOAT32 = "float32"
    MIXED_FLOAT16 = "mixed_float16"
    MIXED_BFLOAT16 = "mixed_bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedCompute:
    """An accelerator that takes a stated time and no processor.

    Attributes:
        forward_s: time from the parameters' arrival to the loss, per batch.
        backward_s: time from the loss to the last gradient, per batch.
        groups: the gradients become available in so many groups, in backward order.  More than 16
            cost processor time of their own.
    """

    forward_s: float
    backward_s: float
    groups: int = 16

    def __post_init__(self) -> None:
        at_least(0.001, forward_s=self.forward_s, backward_s=self.backward_s)
        at_most(3600, forward_s=self.forward_s, backward_s=self.backward_s)
        if not 1 <= self.groups <= 16:
            raise UserError(f"gradient groups must be 1 to 16, got {self.groups}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What every worker trains: the same for all strategies of a comparison.

    Attributes:
        image_size: pixels of a square image with three channels.
        accumulation: batches per synchronisation.
        input: `synthetic`, `digits`, or the path of a folder of TFRecord files.  That the folder
            exists is checked where it is used: records are read after it is gone.
        learning_rate, momentum: of stochastic gradient descent, constant.
        seed: of the initial weights, the synthetic images and the shuffling.
        emulated: replaces the real forward and backward pass.
        precision: of the forward and backward pass.
    """

    model: str = SMALL_CNN
    image_size: int = 32
    num_classes: int = 10
    batch_per_worker: int = 16
    accumulation: int = 1
    input: str = SYNTHETIC
    learning_rate: float = 0.01
    momentum: float = 0.9
    seed: int = 1
    emulated: EmulatedCompute | None = None
    precision: Precision = Precision.FLOAT32

    def __post_init__(self) -> None:
        minimum = model_info(self.model).minimum_image_size
        if self.image_size < minimum:
            raise UserError(
                f"image_size {self.image_size} is below the minimum of {self.model}: "
                f"use {minimum} or more."
            )
        if tensor_set(self.model) is not None and self.emulated is None:
            raise UserError(
                f"model {self.model} computes nothing: state forward_s and backward_s of an "
                "emulated accelerator (--emulate 0.02,0.04)."
            )
        at_least(1, batch_per_worker=self.batch_per_worker, accumulation=self.accumulation)
        at_least(2, num_classes=self.num_classes)
        at_most(1e6, num_classes=self.num_classes, batch_per_worker=self.batch_per_worker)
        at_most(1e4, image_size=self.image_size, accumulation=self.accumulation)
        if self.input == DIGITS and self.num_classes < 10:
            raise UserError(f"input digits has 10 classes, got num_classes {self.num_classes}.")
        if self.emulated is not None and self.precision is not Precision.FLOAT32:
            raise UserError(
                f"an emulated accelerator computes in no precision: leave {self.precision} out."
            )

    @property
    def compute(self) -> str:
        """`real` or `emulated`, as records state it."""
        return "real" if self.emulated is None else "emulated"
