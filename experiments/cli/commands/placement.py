"""The command `placement`: from a model's name to the table of its placements.

Decides in which size a model is described.  What the table says is decided in `placement_table`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from experiments import surroundings
from experiments.cli.commands.placement_table import render_placements
from experiments.cli.options import SPLIT_BYTES
from experiments.cli.workload_options import MODEL_ARGS
from experiments.models.settle_model import settle_model
from experiments.models.workload_request import WorkloadRequest
from experiments.studies.defaults import OwnTraining
from experiments.sweep.progress import plain_console
from launchers.cli.types import WHOLE
from ps_allreduce.errors import at_least
from ps_allreduce.point.models import shipped_model
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import Weights
from ps_allreduce.point.placement import VariableSpec, default_split_bytes
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.workload import Workload
from ps_allreduce.terminal import echo

#: Of the images that the architectures of `keras.applications` were designed for.
IMAGENET_CLASSES = 1000


@click.command()
@click.option(
    "--model",
    default="ResNet50",
    show_default=True,
    help="A name (the command models lists all), or yours.",
)
@MODEL_ARGS
@click.option("--num-ps", type=WHOLE, default=2, show_default=True, help="Parameter servers.")
@click.option(
    "--image-size", type=WHOLE, help="Pixels.  [default: what the model was designed for]"
)
@click.option("--num-classes", type=WHOLE, help="Of the images.  [default: 1000]")
@SPLIT_BYTES
def placement(
    model: str,
    model_args: tuple[str, ...],
    num_ps: int,
    image_size: int | None,
    num_classes: int | None,
    split_bytes: int | None,
) -> None:
    """Show where variables would go under every placement; trains nothing."""
    Servers(num_ps=num_ps)
    if split_bytes is not None:
        at_least(1, split_bytes=split_bytes)
    asked = WorkloadRequest(
        model=model, model_args=model_args, image_size=image_size, num_classes=num_classes
    )
    variables = _variables(asked)
    if split_bytes is None:
        split_bytes = default_split_bytes(variables, num_ps)
    echo(render_placements(model, variables, num_ps, split_bytes))


def _variables(asked: WorkloadRequest) -> Sequence[VariableSpec]:
    """Those of a model, in creation order, in the size that it was designed for."""
    with tempfile.TemporaryDirectory() as folder:
        asked = settle_model(asked, Path(folder), plain_console())
        if isinstance(asked.model, OwnTraining):
            return _described(asked.workload(asked.model), Path(folder))
        shipped = shipped_model(asked.model or "")
        if isinstance(shipped, ImageModel):
            shipped = replace(shipped, num_classes=IMAGENET_CLASSES)
        sized = asked.sized(shipped)
        if isinstance(sized, Weights):
            return sized.variables
        return _described(Workload(model=sized), Path(folder))


def _described(workload: Workload, folder: Path) -> Sequence[VariableSpec]:
    with surroundings.this_machine(folder) as launcher:
        return launcher.describe(workload)
