"""All kinds of models that can be trained or sent, and how users name those that the suite brings.

Building them is the business of `workloads`; nothing here needs TensorFlow.
"""

from __future__ import annotations

from ps_allreduce.point.models.recommenders import RECOMMENDERS, RecommenderModel, tables_of
from ps_allreduce.point.models.shapes import PUBLISHED
from ps_allreduce.point.models.trained import (
    ARCHITECTURES,
    TEXT_MODELS,
    ImageModel,
    OwnModel,
    TextModel,
    unknown_model,
)
from ps_allreduce.point.models.weights import (
    PublishedModel,
    Weights,
    scaled_model,
    tensor_set,
)

#: Those that the suite ships and trains.
Shipped = ImageModel | TextModel | RecommenderModel

Model = Shipped | OwnModel | Weights


def shipped_model(name: str) -> Shipped | Weights:
    """A model by its exact name; images have the size that it was designed for.

    Raises:
        UserError: there is none of that name, or these tensors make no sense.
    """
    if scaled := scaled_model(name):
        return scaled
    if name in ARCHITECTURES:
        return ImageModel(name=name, image_size=ARCHITECTURES[name].designed_image_size)
    if name in TEXT_MODELS:
        return TextModel(name=name)
    if tables_of(name):
        return RecommenderModel(name=name)
    if name in PUBLISHED:
        return PublishedModel(name=name)
    tensors = tensor_set(name)
    if tensors is None:
        raise unknown_model(name, [*ARCHITECTURES, *TEXT_MODELS, *RECOMMENDERS, *PUBLISHED])
    return tensors
