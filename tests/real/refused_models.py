"""A module such as users write: a function for every kind of model that the suite refuses."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def _compiled(model: keras.Model, loss: Any = "mse") -> keras.Model:
    model.compile(optimizer="sgd", loss=loss)
    return model


class _OwnStep(keras.Model):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def own_train_step() -> Any:
    given = keras.Input((2,))
    return _compiled(_OwnStep(given, layers.Dense(1)(given)))


def stateful() -> Any:
    given = keras.Input(batch_shape=(4, 3, 2))
    return _compiled(keras.Model(given, layers.GRU(2, stateful=True, name="memory")(given)))


def look_up() -> Any:
    given = keras.Input((1,), dtype="int64")
    found = layers.IntegerLookup(vocabulary=[7, 8], name="words")(given)
    return _compiled(keras.Model(given, layers.Dense(1)(layers.Embedding(4, 2)(found))))


class _Terms(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = layers.StringLookup(vocabulary=["7", "8"], name="terms")

    def call(self, inputs: Any) -> Any:
        return self.table(tf.strings.as_string(inputs))


def look_up_text() -> Any:
    given = keras.Input((1,), dtype="int64")
    return _compiled(keras.Model(given, layers.Dense(1)(layers.Embedding(4, 2)(_Terms()(given)))))


class _Raw(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(2.0, name="scale")

    def call(self, inputs: Any) -> Any:
        return inputs * self.scale


def raw_variable() -> Any:
    given = keras.Input((2,))
    return _compiled(keras.Model(given, layers.Dense(1)(_Raw()(given))))


class _Noise(layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs))


def unseeded_noise() -> Any:
    given = keras.Input((2,))
    return _compiled(keras.Model(given, layers.Dense(1)(_Noise()(given))))


def assigned() -> Any:
    given = keras.Input((2,))
    return _compiled(keras.Model(given, layers.SpectralNormalization(layers.Dense(1))(given)))


def float64() -> Any:
    given = keras.Input((2,))
    return _compiled(keras.Model(given, layers.Dense(1, dtype="float64", name="wide")(given)))


def nothing() -> Any:
    return None


def another_thing() -> Any:
    return tf.Module()


def keras_2() -> Any:
    """The package may not be installed: of its model, only the name matters."""
    tf_keras = ModuleType("tf_keras")
    exec("class Model: pass", vars(tf_keras))
    return tf_keras.Model()


def not_compiled() -> Any:
    return keras.Sequential([keras.Input((2,)), layers.Dense(1)])


def raises() -> Any:
    raise RuntimeError("no such\nhead")


def leaves() -> Any:
    raise SystemExit(3)


class _Silent(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.last = layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.last(inputs)


def no_inputs() -> Any:
    return _compiled(_Silent())


def open_shape() -> Any:
    given = keras.Input((None, 3), name="series")
    return _compiled(keras.Model(given, layers.Dense(1)(given)))


def without_loss() -> Any:
    return _compiled(not_compiled(), None)


def several_numbers() -> Any:
    given = keras.Input((2,))
    model = _Several(given, layers.Dense(1)(given))
    return _compiled(model, None)


class _Several(keras.Model):
    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        return y_pred


def sized(width: int, *, depth: int = 1) -> Any:
    stack = [layers.Dense(width) for _ in range(depth)]
    return _compiled(keras.Sequential([keras.Input((2,)), *stack]))


#: What `dataset` does, by name; the test says which.
KIND = ""

LARGE = np.zeros((26_000, 1000), np.float32)

TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), default_value=0)


def _generate() -> Any:
    yield np.zeros(2, np.float32), np.zeros(1, np.float32)


def _of(inputs: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((inputs, np.zeros((len(inputs), 1), np.float32)))


def dataset(shard: int, num_shards: int) -> Any:
    signature = (tf.TensorSpec([2], tf.float32), tf.TensorSpec([1], tf.float32))
    small = np.zeros((8, 2), np.float32)
    kinds = {
        "generator": lambda: tf.data.Dataset.from_generator(_generate, output_signature=signature),
        "function": lambda: _of(small).map(
            lambda x, y: (tf.numpy_function(np.square, [x], tf.float32), y)
        ),
        "large": lambda: _of(LARGE),
        "table": lambda: _of(np.array(["a"] * 8)).map(lambda x, y: (TABLE.lookup(x), y)),
        "batches": lambda: _of(small).batch(2),
        "shape": lambda: _of(np.zeros((8, 3), np.float32)),
        "inputs only": lambda: tf.data.Dataset.from_tensor_slices(small),
        "ragged": lambda: tf.data.Dataset.from_tensor_slices(
            (tf.ragged.constant([[1.0], [1.0, 2.0]]), [1.0, 2.0])
        ),
        "list": lambda: [1, 2],
        "raises": lambda: 1 // (shard - shard),
    }
    return kinds[KIND]()  # type: ignore[no-untyped-call]
