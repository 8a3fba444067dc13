"""A module such as users write: a function for every kind of model that the suite trains."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers

UNIT = "tokens"


def _compiled(model: keras.Model, loss: Any = "mse", **settings: Any) -> keras.Model:
    model.compile(optimizer="sgd", loss=loss, **settings)
    return model


def clear_session_first() -> keras.Model:
    keras.utils.clear_session()
    return sequential()


def sequential() -> keras.Model:
    return _compiled(keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.Dense(3)]))


class _WithoutTraining(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([layers.Dense(5, activation="tanh"), layers.Dense(2)])

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs["a"]) + self.inner(inputs["b"])


def unbuilt_subclass_without_training() -> keras.Model:
    return _compiled(_WithoutTraining())


def dictionaries() -> keras.Model:
    """Of inputs (whose keys are not their names), outputs, losses and loss weights."""
    inputs = {"z": keras.Input((4,), name="first"), "a": keras.Input((2,), name="second")}
    both = layers.Concatenate()([inputs["z"], inputs["a"]])
    outputs = {
        "number": layers.Dense(1, name="number")(both),
        "class": layers.Dense(3, activation="softmax", name="class")(both),
    }
    losses = {"number": "mse", "class": "sparse_categorical_crossentropy"}
    return _compiled(
        keras.Model(inputs, outputs),
        losses,
        loss_weights={"number": 0.3, "class": 2.0},
        metrics={"class": ["accuracy"]},
    )


def two_outputs_with_names() -> keras.Model:
    given = keras.Input((4,))
    hot = layers.Dense(3, activation="softmax", name="hot")(given)
    yes = layers.Dense(1, activation="sigmoid", name="yes")(given)
    losses = {"yes": "binary_crossentropy", "hot": keras.losses.CategoricalCrossentropy()}
    return _compiled(keras.Model(given, [hot, yes]), losses)


class _OwnLoss(keras.Model):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.tracker = keras.metrics.Mean(name="own")

    @property
    def metrics(self) -> list[keras.Metric]:
        return [self.tracker]

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> Any:
        loss = keras.ops.mean((y - y_pred) ** 4) + keras.ops.sum(self.losses)
        self.tracker.update_state(loss)
        return loss


def own_compute_loss() -> keras.Model:
    given = keras.Input((4,))
    return _compiled(_OwnLoss(given, layers.Dense(2, kernel_regularizer="l2")(given)), None)


class _AddsLoss(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(1e-2 * keras.ops.sum(inputs**2))
        return inputs


def regularisation_losses() -> keras.Model:
    given = keras.Input((4,))
    hidden = layers.Dense(4, kernel_regularizer="l2", activity_regularizer="l1")(given)
    return _compiled(keras.Model(given, layers.Dense(1)(_AddsLoss()(hidden))))


def dropout_and_batch_norm() -> keras.Model:
    stack = [layers.Dense(16), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(1)]
    return _compiled(keras.Sequential([keras.Input((4,)), *stack]))


def mixed_float16() -> keras.Model:
    keras.config.set_dtype_policy("mixed_float16")
    return sequential()


def one_inner_layer_in_float16() -> keras.Model:
    given = keras.Input((5, 3))
    inner = layers.Bidirectional(layers.GRU(4, dtype="mixed_float16"))(given)
    return _compiled(keras.Model(given, layers.Dense(1)(inner)))


def _tokens(length: int = 7) -> Any:
    return keras.Input((length,), dtype="int32", name="tokens")


def two_embeddings() -> keras.Model:
    """Of which one takes tokens as they come, and one other numbers, as floats."""
    words, kinds = _tokens(), keras.Input((7,), name="kinds")
    both = layers.Embedding(50, 4)(words) + layers.Embedding(3, 4)(kinds)
    return _compiled(keras.Model([words, kinds], layers.Dense(2)(both)))


def tied_embedding() -> keras.Model:
    table = layers.ReversibleEmbedding(20, 4)
    given = _tokens()
    scores = table(layers.LayerNormalization()(table(given)), reverse=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _compiled(keras.Model(given, scores), loss)


def attention() -> keras.Model:
    given = _tokens()
    inner = layers.Embedding(30, 8)(given)
    seen = layers.MultiHeadAttention(2, 4, dropout=0.1)(inner, inner, use_causal_mask=True)
    return _compiled(
        keras.Model(given, layers.Dense(30)(layers.LayerNormalization()(inner + seen))),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )


def frozen_layer_and_unused_one() -> keras.Model:
    given = keras.Input((4,))
    model = _Unused(given, layers.Dense(1)(layers.Dense(4, trainable=False)(given)))
    return _compiled(model)


class _Unused(keras.Model):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.spare = layers.Dense(2, name="spare")
        self.spare.build((None, 3))


def augmentation() -> keras.Model:
    stack = [layers.RandomFlip(), layers.RandomRotation(0.1), layers.Conv2D(4, 3)]
    ends = [layers.GlobalAveragePooling2D(), layers.Dense(2, activation="softmax")]
    model = keras.Sequential([keras.Input((8, 8, 3)), *stack, *ends])
    return _compiled(model, "crossentropy")


class _Scale(layers.Layer):
    def build(self, shape: Any) -> None:
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")

    def call(self, inputs: Any) -> Any:
        return inputs * self.gamma


def block_of_convnext() -> keras.Model:
    """Stochastic depth, layer scale, a nested model; all of ConvNeXtTiny takes long to trace."""
    given = keras.Input((8, 8, 4))
    inner = layers.LayerNormalization()(layers.DepthwiseConv2D(3, padding="same")(given))
    inner = _Scale()(layers.Dense(4)(layers.Dense(8, activation="gelu")(inner)))
    inner = layers.Dropout(0.3, noise_shape=(None, 1, 1, 1))(inner)
    nested = keras.Model(given, given + inner)
    stem = layers.Conv2D(4, 2, strides=2)
    ends = [layers.GlobalAveragePooling2D(), layers.Dense(5, activation="softmax")]
    model = keras.Sequential([keras.Input((16, 16, 3)), stem, nested, *ends])
    return _compiled(model, "sparse_categorical_crossentropy")


def recurrent() -> keras.Model:
    return _compiled(keras.Sequential([keras.Input((5, 3)), layers.GRU(4), layers.Dense(1)]))


def constant_of_its_own() -> keras.Model:
    """A tensor that was made with the model, too large to become part of a graph by itself."""
    given = keras.Input((300,))
    ramp = tf.linspace(0.0, 1.0, 300)
    return _compiled(keras.Model(given, layers.Dense(1)(layers.Lambda(lambda x: x * ramp)(given))))


def asks_for_much() -> keras.Model:
    """An unused branch, a constraint, XLA, and settings of an optimizer, none of them followed."""
    given = _tokens()
    inner = layers.Embedding(9, 4, name="words")(given)
    last = layers.Dense(2, kernel_constraint=keras.constraints.NonNeg(), name="last")
    model = _Unused(given, last(inner))
    adam = keras.optimizers.Adam(0.002, clipnorm=1.0)
    model.compile(optimizer=adam, loss="mse", jit_compile=True)
    return model


def trained_by_adam() -> keras.Model:
    """Two inputs and a dictionary of losses, where every sum is as good as exact."""
    words, numbers = _tokens(), keras.Input((6,), name="numbers")
    inner = layers.GlobalAveragePooling1D()(layers.Embedding(40, 8)(words))
    both = layers.Concatenate()([inner, layers.Dense(8, activation="tanh")(numbers)])
    outputs = {
        "class": layers.Dense(3, activation="softmax", name="class")(both),
        "number": layers.Dense(1, name="number")(both),
    }
    model = keras.Model({"words": words, "numbers": numbers}, outputs)
    losses = {"class": "sparse_categorical_crossentropy", "number": "mse"}
    model.compile(optimizer=keras.optimizers.Adam(epsilon=0.01), loss=losses)
    return model


def dataset(shard: int, num_shards: int) -> tf.data.Dataset:
    """Examples with weights, for the subclass that does not say what it takes."""

    def example(index: tf.Tensor) -> Any:
        number = tf.cast(index, tf.float32)
        inputs = {"a": tf.fill([3], number), "b": tf.fill([3], -number)}
        return inputs, tf.fill([2], number / 7), number / 9

    return tf.data.Dataset.range(100).shard(num_shards, shard).map(example)
