"""Two small recommender networks, of Keras' own layers: tables, perceptrons, one logit.

Decides what `SmallTwoTower` and `SmallDLRM` are.  The first has a table and a perceptron for users
and for items; the logit is the product of both (Covington et al., "Deep Neural Networks for
YouTube Recommendations", RecSys 2016, is of this kind).  The second is a small DLRM (Naumov et al.,
2019): the products of all pairs of rows, beside a perceptron of the numbers, go through another.
"""

from __future__ import annotations

import keras

from ps_allreduce.point.models.recommenders import Tables


def small_two_tower(tables: Tables) -> keras.Model:
    """Logits [batch, 1] from ids [batch, 2] of a user and an item."""
    layers = keras.layers
    ids = keras.Input((len(tables.rows),), dtype="int32", name="ids")
    towers = [_perceptron(vector, (64, tables.width)) for vector in _looked_up(ids, tables)]
    logit = layers.Dot(axes=1)(towers)
    return keras.Model(ids, logit, name="small_two_tower")


def small_dlrm(tables: Tables) -> keras.Model:
    """Logits [batch, 1] from ids [batch, tables] and numbers [batch, numbers]."""
    layers = keras.layers
    ids = keras.Input((len(tables.rows),), dtype="int32", name="ids")
    numbers = keras.Input((tables.numbers,), name="numbers")
    below = _perceptron(numbers, (64, tables.width))
    vectors = [below, *_looked_up(ids, tables)]
    stacked = layers.Reshape((len(vectors), tables.width))(layers.Concatenate()(vectors))
    products = layers.Flatten()(layers.Dot(axes=2)([stacked, stacked]))
    above = layers.Dense(128, activation="relu")(layers.Concatenate()([below, products]))
    return keras.Model([ids, numbers], layers.Dense(1)(above), name="small_dlrm")


def _looked_up(ids: keras.KerasTensor, tables: Tables) -> list[keras.KerasTensor]:
    """A row [batch, width] of each table."""
    return [
        keras.layers.Embedding(rows, tables.width, name=f"table_{number}")(ids[:, number])
        for number, rows in enumerate(tables.rows)
    ]


def _perceptron(tensor: keras.KerasTensor, widths: tuple[int, ...]) -> keras.KerasTensor:
    for width in widths:
        tensor = keras.layers.Dense(width, activation="relu")(tensor)
    return tensor
