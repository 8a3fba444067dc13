"""What is to be trained, as it was asked for on the command line.

Decides how a stated setting becomes part of a workload, and refuses what makes no sense for a
model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from experiments.models.model_text import EXAMPLES, is_own
from experiments.studies.defaults import OwnTraining, default_workload
from launchers.settings import option_of
from ps_allreduce.declared import setting
from ps_allreduce.errors import UserError
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import UNSTATED, Data, Digits, InputFiles, Synthetic
from ps_allreduce.point.inputs.data_set import Pipeline, Target
from ps_allreduce.point.models import Model
from ps_allreduce.point.models.trained import ImageModel, OwnModel
from ps_allreduce.point.models.weights import Weights
from ps_allreduce.point.optimizers import RateSchedule
from ps_allreduce.point.resources import Device
from ps_allreduce.point.workload import EmulatedCompute, Precision, Scaling, Workload
from ps_allreduce.serialization import LATER

#: What can be asked for by --input.
StatedInput = Synthetic | Digits | InputFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRequest:
    """What is to be trained; None leaves a setting at the model's default.

    Attributes:
        model: None for those that a study trains by default; the user's own has been tried, or
            is text still (`settle_model`).
        model_args: of the function that makes it, `name=value` each.
        inputs: what is trained with; every one makes points of its own in a sweep.
    """

    model: str | OwnTraining | None = setting(
        "SmallCNN, SmallViT, SmallGPT, any name in keras.applications such as ResNet50; your own, "
        f"as {EXAMPLES}; with --emulate also BERT-base or Tensors-N-xMB.  `python -m experiments "
        "models` lists all names.",
        unit="text",
        usual=True,
    )
    model_args: tuple[str, ...] = setting(
        "An argument for the function of your own model; as often as needed.",
        (),
        unit="name=value",
        option="--model-arg",
        metadata=LATER,
    )
    image_size: int | None = setting("Pixels of the square images.")
    num_classes: int | None = setting("Classes of the images.", instead=10)
    batch_per_worker: int | None = setting("Examples of one forward and backward pass.", usual=True)
    accumulation: int | None = setting("Batches per exchange of gradients.", instead=1)
    inputs: tuple[StatedInput, ...] = setting(
        "Examples for training: a folder of TFRecord files, or of folders of images; a sweep "
        "compares several.",
        (),
        unit="input",
        option="--input",
        instead="digits for shipped image models",
        usual=True,
    )
    emulate: EmulatedCompute | None = setting(
        "Emulate an accelerator that takes these times per batch.", unit="passes", usual=True
    )
    precision: Precision | None = setting("Format of forward and backward pass.", instead="float32")
    device: Device = setting("Where workers compute; a worker has one GPU.", Device.CPU, usual=True)
    worker_factors: tuple[float, ...] | None = setting(
        "With --emulate: factors on the time of these workers, counted from 0.",
        unit="factors",
        metadata=LATER,
    )
    jitter: Jitter | None = setting(
        "With --emulate: a random factor, with mean 1, on every step of every worker; "
        f"distributions {', '.join(Distribution)}.",
        unit="jitter",
        metadata=LATER,
    )
    scaling: Scaling = setting(
        "With more workers each keeps the batch (weak), or all share it (strong).",
        Scaling.WEAK,
        metadata=LATER,
    )
    linear_scaling: bool = setting(
        "Multiply the learning rate by the number of workers in the mean gradient.",
        False,
        metadata=LATER,
    )
    rate_warmup_steps: int = setting(
        "Steps of every worker in which the learning rate grows from zero.", 0, metadata=LATER
    )
    pipeline: Pipeline = field(default=Pipeline(), metadata=LATER)

    def __post_init__(self) -> None:
        self._check_own_model()
        if self.device is Device.GPU and self.emulate is not None:
            raise UserError("--emulate stands in for an accelerator: leave --device gpu out.")
        if self.emulate is None:
            for name in ("worker_factors", "jitter"):
                if getattr(self, name) is not None:
                    option = option_of(name)
                    raise UserError(f"{option} is about an emulated accelerator: state --emulate.")

    def _check_own_model(self) -> None:
        own = is_own(self.model) if isinstance(self.model, str) else self.model is not None
        if self.model_args and not own:
            raise UserError("--model-arg is for your own model (mine.py:build): leave it out.")
        for name in ("image_size", "num_classes") if own else ():
            if getattr(self, name) is not None:
                raise UserError(
                    f"{option_of(name)}: your own model says itself what it takes; leave it out."
                )

    @property
    def input(self) -> StatedInput | None:
        """The only input that was stated; None where none was.

        Raises:
            UserError: there are several.
        """
        if len(self.inputs) > 1:
            raise UserError("--input: only a sweep takes several; state one.")
        return next(iter(self.inputs), None)

    @property
    def emulated(self) -> EmulatedCompute | None:
        """The emulated accelerators of all workers; None for real compute.

        Raises:
            UserError: a factor makes no sense.
        """
        if self.emulate is None:
            return None
        return replace(self.emulate, factors=self.worker_factors or (), jitter=self.jitter)

    def workload(self, model: str | OwnTraining, data: StatedInput | None = None) -> Workload:
        """A model's default workload, with what was stated instead.

        Args:
            data: one of several inputs.

        Raises:
            UserError: there is no such model, or it cannot be trained like this.
        """
        return self.over(default_workload(model, self.emulate), data)

    def over(self, default: Workload, stated: StatedInput | None = None) -> Workload:
        """A workload, with what was stated instead.

        Args:
            stated: one of several inputs.

        Raises:
            UserError: it cannot be trained like this.
        """
        data = stated or self.input or default.data
        return replace(
            default,
            model=self.sized(default.model, data),
            data=data,
            batch_per_worker=_stated(self.batch_per_worker, default.batch_per_worker),
            accumulation=_stated(self.accumulation, default.accumulation),
            emulated=self.emulated or default.emulated,
            precision=self._precision(default),
            scaling=self.scaling,
            pipeline=self._pipeline(default.model, data),
            schedule=RateSchedule(
                linear_scaling=self.linear_scaling, rate_warmup_steps=self.rate_warmup_steps
            ),
        )

    def _pipeline(self, model: Model, data: Data) -> Pipeline:
        """For weights alone it is the pipeline that is told the size of images."""
        if isinstance(model, Weights) and isinstance(data, InputFiles):
            return replace(self.pipeline, read_size=self.image_size)
        return self.pipeline

    def _precision(self, default: Workload) -> Precision:
        stated = self.precision or default.precision
        is_own_choice = isinstance(default.model, OwnModel) and self.emulate is None
        if is_own_choice and stated is not default.precision:
            raise UserError(
                f"model {default.model.name} computes in {default.precision}, as its own code "
                "says: leave --precision out, or change the model."
            )
        return stated

    def sized(self, default: Model, data: Data | None = None) -> Model:
        """A model in the stated sizes, or those of the data.

        Raises:
            UserError: it has no such sizes, or they are too small.
        """
        if isinstance(default, ImageModel):
            fitted = default if data is None else _fitted(default, data)
            return replace(
                fitted,
                image_size=_stated(self.image_size, fitted.image_size),
                num_classes=_stated(self.num_classes, fitted.num_classes),
            )
        # A size is of no use beside synthetic examples, but it may be for another input.
        reads = isinstance(default, Weights) and any(
            isinstance(each, InputFiles) for each in self.inputs
        )
        if self.num_classes is not None or (self.image_size is not None and not reads):
            raise UserError(
                f"model {default.name} takes no images: leave --image-size and --num-classes out."
            )
        return default


def _fitted(model: ImageModel, data: Data) -> ImageModel:
    """A model that learns what the examples of input files tell, in their size if it can."""
    if not isinstance(data, InputFiles) or data.form == UNSTATED:
        return model
    form = data.form
    least = 2 if form.target is Target.CLASS else 1
    size = form.image_size or 0
    return replace(
        model,
        image_size=size if size >= model.sizes.minimum_image_size else model.image_size,
        num_classes=max(least, form.num_outputs),
        channels=form.channels,
        target=form.target,
    )


def _stated(value: int | None, default: int) -> int:
    return default if value is None else value


def refuse_absent_workers(points: Iterable[Experiment]) -> None:
    """See that every worker with a factor is one of some point.

    Raises:
        UserError: one is not.
    """
    most: dict[int, int] = {}
    for point in points:
        if point.workload.emulated is not None:
            last = len(point.workload.emulated.factors) - 1
            most[last] = max(point.num_workers, most.get(last, 0))
    for last, num_workers in most.items():
        if last >= num_workers:
            raise UserError(
                f"--worker-factors names worker {last}, and there are at most {num_workers}, "
                "counted from 0: leave it out, or ask for more workers."
            )
