"""What every worker trains, real or emulated: the same for all strategies of a comparison.

Decides which workloads make sense.  Building the model and reading its data is the business of
`workloads`, which needs TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.accelerators import Jitter
from ps_allreduce.point.inputs.data import Data, Digits, InputFiles, Synthetic, check_serves
from ps_allreduce.point.inputs.data_set import Pipeline
from ps_allreduce.point.models import Model
from ps_allreduce.point.models.recommenders import RECOMMENDERS, RecommenderModel
from ps_allreduce.point.models.trained import ImageModel, OwnModel, Unit
from ps_allreduce.point.models.weights import Weights
from ps_allreduce.point.optimizers import Momentum, Optimizer, RateSchedule
from ps_allreduce.serialization import LATER, changed_parts


class Precision(StrEnum):
    """Number formats of the forward and backward pass; weights are kept in float32."""

    FLOAT32 = "float32"
    MIXED_FLOAT16 = "mixed_float16"
    MIXED_BFLOAT16 = "mixed_bfloat16"


class Scaling(StrEnum):
    """What becomes of the batch with more workers: each keeps it, or all share it."""

    WEAK = "weak"
    STRONG = "strong"


#: The default; a short line of a point names others.
BATCH = 16

#: Time from one release of gradients to the next, at least: one takes about a millisecond where
#: processors are busy, and a pass that releases more often takes longer than stated.
LEAST_RELEASE_S = 0.002

#: A pass takes at least and at most so long; ticks of its timer come within fractions of the first.
LEAST_PASS_S, MOST_PASS_S = 0.001, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedCompute:
    """An accelerator that takes a stated time and no processor.

    Attributes:
        forward_s: time from the parameters' arrival to the loss, per batch.
        backward_s: time from the loss to the last gradient, per batch.
        groups: the gradients become available in at most so many groups, in backward order.  More
            than 16 cost processor time of their own.
        factors: of worker 0, 1 and so on: both passes of the worker take so many times as long; 1
            for all workers after the last.
        jitter: multiplies both passes of every step of every worker by a factor of its own.
    """

    forward_s: float
    backward_s: float
    groups: int = 16
    factors: tuple[float, ...] = field(default=(), metadata=LATER)
    jitter: Jitter | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if self.factors[-1:] == (1.0,):
            raise ValueError("the last factor is 1, which needs no words")
        self._check_passes()
        for worker, factor in enumerate(self.factors):
            self._check_passes(factor, f" times the factor of worker:{worker}")
        if not 1 <= self.groups <= 16:
            raise UserError(f"gradient groups must be 1 to 16, got {self.groups}.")

    def _check_passes(self, factor: float = 1.0, of_whom: str = "") -> None:
        for seconds in (self.forward_s * factor, self.backward_s * factor):
            if not LEAST_PASS_S <= seconds <= MOST_PASS_S:  # "not a number" is in no range
                raise UserError(
                    f"passes of an emulated accelerator take {LEAST_PASS_S:g} to {MOST_PASS_S:g} s "
                    f"each, got {seconds:g}{of_whom}."
                )

    @property
    def releases(self) -> int:
        """How many groups the backward pass of every worker has time for."""
        shortest_s = self.backward_s * min((1.0, *self.factors))
        return max(1, min(self.groups, int(shortest_s / LEAST_RELEASE_S)))

    def factors_of(self, num_workers: int) -> list[float]:
        """The factor of each of so many workers."""
        return [*self.factors, *[1.0] * num_workers][:num_workers]

    def scales(self, worker: int, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """So many times as long as stated does a worker take in each of some of its steps."""
        factor = self.factors_of(worker + 1)[worker]
        drawn = np.ones(len(steps)) if self.jitter is None else self.jitter.factors(worker, steps)
        return np.asarray(factor * drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What every worker trains: a model, data, and an optimizer.

    Attributes:
        batch_per_worker: examples of one forward and backward pass of a single worker, and under
            weak scaling of every worker.
        accumulation: batches per synchronisation.
        seed: of the initial weights, the synthetic data and the shuffling.
        emulated: replaces the real forward and backward pass.
        precision: of the forward and backward pass.
        dealt_to: a single worker takes in turn the batches that so many workers would take, a step
            of all of them in its own; None deals to the workers that there are.
        deterministic: layers that draw random numbers compute as in inference.
        scaling: under strong scaling the workers share the batch of a single one.
        pipeline: how input files are read; other data have no such settings.
        schedule: of the learning rate.
    """

    model: Model = field(default_factory=ImageModel)
    data: Data = field(default_factory=Synthetic)
    optimizer: Optimizer = field(default_factory=Momentum)
    batch_per_worker: int = BATCH
    accumulation: int = 1
    seed: int = 1
    emulated: EmulatedCompute | None = None
    precision: Precision = Precision.FLOAT32
    dealt_to: int | None = field(default=None, metadata=LATER)
    deterministic: bool = field(default=False, metadata=LATER)
    scaling: Scaling = field(default=Scaling.WEAK, metadata=LATER)
    pipeline: Pipeline = field(default=Pipeline(), metadata=LATER)
    schedule: RateSchedule = field(default=RateSchedule(), metadata=LATER)

    def __post_init__(self) -> None:
        at_least(1, batch_per_worker=self.batch_per_worker, accumulation=self.accumulation)
        if self.dealt_to is not None:
            self._check_dealing(self.dealt_to)
        at_most(1e6, batch_per_worker=self.batch_per_worker)
        at_most(1e4, accumulation=self.accumulation)
        if self.emulated is None and not self.model.computes:
            raise UserError(
                f"model {self.model.name} computes nothing: state an emulated accelerator "
                "(--emulate 0.02,0.04)."
            )
        if self.emulated is not None and self.precision is not Precision.FLOAT32:
            raise UserError(
                f"an emulated accelerator computes in no precision: leave {self.precision} out."
            )
        check_serves(self.data, self.model)
        self._check_pipeline()

    def _check_pipeline(self) -> None:
        if not isinstance(self.data, InputFiles):
            if changed := self.pipeline.title_parts():
                raise UserError(
                    f"input {self.data.name} is no input of files: leave {', '.join(changed)} out, "
                    "or use a folder of files."
                )
        elif not isinstance(self.model, Weights):
            if self.pipeline.read_size is not None:
                raise UserError(f"model {self.model.name} has an image_size itself: state that.")
        elif self.read_size is None:
            raise UserError(
                f"model {self.model.name} has no image_size, and {self.data.name} does not tell "
                "one: state --image-size, in which images are to be read."
            )

    def _check_dealing(self, dealt_to: int) -> None:
        at_least(1, dealt_to=dealt_to)
        if self.accumulation % dealt_to:
            raise UserError(
                f"a worker that takes the batches of {dealt_to} takes equally many of each: "
                f"accumulation {self.accumulation} is no multiple of it."
            )

    def sparse_refusal(self) -> str:
        """Why embeddings cannot be sparse, in a sentence; empty if they can."""
        model = self.model
        if isinstance(model, OwnModel):
            if model.only_whole:
                return f"model {model.name}: {model.only_whole}. Leave --embeddings sparse out."
        elif not isinstance(model, RecommenderModel):
            return (
                f"model {model.name} is trained with dense embeddings: of sparse ones the "
                f"suite has {', '.join(RECOMMENDERS)}. Leave --embeddings sparse out."
            )
        if self.emulated is not None:
            return "an emulated accelerator looks no rows up: leave --embeddings sparse out."
        if self.accumulation > 1 and self.dealt_to is None:
            return (
                "sparse embeddings are exchanged after every batch: leave accumulation "
                f"{self.accumulation} or --embeddings sparse out."
            )
        if self.optimizer.on_rows is None:
            return (
                f"optimizer {self.optimizer.kind} changes rows that nobody has looked up, so "
                "sparse embeddings would be another training: use sgd, adagrad or adam, or leave "
                "--embeddings sparse out."
            )
        return ""

    @property
    def read_size(self) -> int | None:
        """Pixels of the square images that are read from files; None where none are read."""
        if isinstance(self.model, ImageModel):
            return self.model.image_size
        if not isinstance(self.data, InputFiles):
            return None
        return self.pipeline.read_size or self.data.form.image_size

    @property
    def reading(self) -> Pipeline:
        """How files are read: digits, of which there are few, in order."""
        return Pipeline(ordered=True) if isinstance(self.data, Digits) else self.pipeline

    @property
    def unit(self) -> Unit:
        """What the examples are."""
        return self.model.unit

    def tokens_per_sec(self, examples_per_sec: float | None) -> float | None:
        """A rate in tokens; None where it is not known or examples have none."""
        tokens = self.model.tokens_per_example
        return None if tokens is None or examples_per_sec is None else tokens * examples_per_sec

    @property
    def examples_per_step(self) -> int:
        """Examples of `batch_per_worker` between two synchronisations."""
        return self.batch_per_worker * self.accumulation

    def of_each(self, num_workers: int) -> Workload:
        """What each of so many workers trains, as a workload of weak scaling.

        Under strong scaling that is its share of the batch, and an emulated accelerator takes such
        a share of the time.

        Raises:
            UserError: the batch has no equal shares, or the accelerator would be too fast.
        """
        if self.scaling is Scaling.WEAK:
            return self
        batch, left = divmod(self.batch_per_worker, num_workers)
        if left:
            raise UserError(
                f"under strong scaling {num_workers} workers share a batch of "
                f"{self.batch_per_worker}, which is no multiple of it: choose another "
                "--batch-per-worker."
            )
        emulated = self.emulated and replace(
            self.emulated,
            forward_s=self.emulated.forward_s / num_workers,
            backward_s=self.emulated.backward_s / num_workers,
        )
        return replace(self, batch_per_worker=batch, emulated=emulated, scaling=Scaling.WEAK)

    def columns(self) -> dict[str, object]:
        """As columns of a table."""
        emulated = self.emulated
        return {
            "model": self.model.name,
            **self.model.columns(),
            "image_size": self.read_size,
            "unit": self.unit.value,
            "tokens_per_example": self.model.tokens_per_example,
            "input": self.data.name,
            "input_checksum": self.data.checksum,
            "input_place": self.data.place if isinstance(self.data, InputFiles) else None,
            **(self.pipeline.columns() if isinstance(self.data, InputFiles) else {}),
            **self.optimizer.columns(),
            **self.schedule.columns(),
            "batch_per_worker": self.batch_per_worker,
            "scaling": self.scaling.value,
            "accumulation": self.accumulation,
            "seed": self.seed,
            "precision": self.precision.value,
            "compute": "emulated" if emulated else "real",
            "emulated_forward_s": emulated.forward_s if emulated else None,
            "emulated_backward_s": emulated.backward_s if emulated else None,
            "emulated_groups": emulated.groups if emulated else None,
            "emulated_factors": _factors_text(emulated.factors) if emulated else None,
            "emulated_jitter": str(emulated.jitter) if emulated and emulated.jitter else None,
        }

    def title_parts(self) -> list[str]:
        """What a short line says: what is not at its default."""
        parts = [] if self.batch_per_worker == BATCH else [f"batch {self.batch_per_worker}"]
        if self.accumulation > 1:
            parts.append(f"accumulation {self.accumulation}")
        if isinstance(self.data, InputFiles):
            parts.append(self.data.title)
        if self.scaling is Scaling.STRONG:
            parts.append("strong scaling")
        if self.emulated is not None:
            parts.append(f"{self.emulated.forward_s + self.emulated.backward_s:.3g} s of compute")
        if self.precision is not Precision.FLOAT32:
            parts.append(str(self.precision))
        return [*parts, *self.pipeline.title_parts(), *changed_parts(self.schedule)]


def _factors_text(factors: Sequence[float]) -> str | None:
    """As `1:1.5,3:0.8`: workers that are not as stated; None where all are."""
    named = [f"{worker}:{factor:g}" for worker, factor in enumerate(factors) if factor != 1]
    return ",".join(named) or None
