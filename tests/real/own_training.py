"""A user's module: two inputs, two tables, batch norm, dropout, two losses, and data."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

WORDS = 40


def build(width: int = 16) -> keras.Model:
    text = keras.Input((6,), dtype="int32", name="text")
    numbers = keras.Input((5,), name="numbers")
    words = keras.layers.Flatten()(keras.layers.Embedding(WORDS, 8)(text))
    first = keras.layers.Embedding(WORDS, 4)(text[:, 0] - WORDS)  # Keras counts from the end
    both = keras.layers.Concatenate()([words, first, keras.layers.BatchNormalization()(numbers)])
    hidden = keras.layers.Dense(width, activation="relu")(both)
    hidden = keras.layers.Dropout(0.2)(hidden)
    price = keras.layers.Dense(1, name="price")(hidden)
    kind = keras.layers.Dense(3, activation="softmax", name="kind")(hidden)
    model = keras.Model({"text": text, "numbers": numbers}, {"price": price, "kind": kind})
    model.compile(
        optimizer=keras.optimizers.Adam(0.003, epsilon=0.01),
        loss={"price": "mse", "kind": "sparse_categorical_crossentropy"},
        metrics={"kind": ["accuracy"]},
    )
    return model


def _example(index: tf.Tensor) -> Any:
    seed = tf.stack([tf.constant(3, tf.int64), index])
    text = tf.random.stateless_uniform((6,), seed, 0, WORDS, tf.int32)
    numbers = tf.random.stateless_normal((5,), seed)
    targets = {"price": tf.reduce_sum(numbers, keepdims=True), "kind": text[0] % 3}
    return {"text": text, "numbers": numbers}, targets


def dataset(shard: int, num_shards: int, seed: int) -> tf.data.Dataset:
    indices = tf.data.Dataset.range(seed, seed + 96).shard(num_shards, shard)
    return indices.filter(lambda index: index >= 0).map(_example)  # its length is unknown now


def validation_dataset(shard: int, num_shards: int, seed: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(1000 + seed, 1032 + seed).shard(num_shards, shard).map(_example)
