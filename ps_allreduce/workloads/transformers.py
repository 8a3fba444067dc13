"""Two small transformers, of Keras' own layers: they need Keras and nothing of this suite.

Decides what `SmallViT` and `SmallGPT` are.  Norms stand before attention and feed-forward layers
(Xiong et al., "On Layer Normalization in the Transformer Architecture", ICML 2020), positions are
learned, and nothing is dropped.
"""

from __future__ import annotations

import keras

#: The same in both: blocks and heads of each.
BLOCKS, HEADS = 4, 4

VIT_WIDTH, PATCH = 128, 4

GPT_WIDTH = 256

#: Of the tables of tokens and positions, as in GPT-2.
SPREAD = 0.02


@keras.saving.register_keras_serializable("small_transformers")
class Positions(keras.layers.Layer):
    """Adds a vector to each place of a sequence.

    A saved model that has this layer loads wherever this module is imported, also from a copy.
    """

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Create a vector for each place."""
        normal = keras.initializers.RandomNormal(stddev=SPREAD)
        self.table = self.add_weight(shape=input_shape[1:], initializer=normal, name="positions")

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Sequences [batch, length, width] with their places."""
        return inputs + self.table


def small_vit(shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """A vision transformer for square images: logits [batch, num_classes] of the mean place.

    Pixels that fill no patch of 4 x 4 are left out.
    """
    layers = keras.layers
    image = keras.Input(shape)
    patches = layers.Conv2D(VIT_WIDTH, PATCH, strides=PATCH)(image)
    tensor = Positions()(layers.Reshape((-1, VIT_WIDTH))(patches))
    for _ in range(BLOCKS):
        tensor = _block(tensor, VIT_WIDTH, causal=False)
    tensor = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(tensor))
    return keras.Model(image, layers.Dense(num_classes)(tensor), name="small_vit")


def small_gpt(vocabulary: int, sequence_length: int, *, tied: bool) -> keras.Model:
    """A language model: logits [batch, length, vocabulary] of the next token at every place.

    Args:
        tied: the output multiplies by the table of the embedding; else by a kernel of its own.
    """
    layers = keras.layers
    tokens = keras.Input((sequence_length,), dtype="int32")
    normal = keras.initializers.RandomNormal(stddev=SPREAD)
    table = layers.ReversibleEmbedding(vocabulary, GPT_WIDTH, embeddings_initializer=normal)
    tensor = Positions()(table(tokens))
    for _ in range(BLOCKS):
        tensor = _block(tensor, GPT_WIDTH, causal=True)
    tensor = layers.LayerNormalization()(tensor)
    if tied:
        return keras.Model(tokens, table(tensor, reverse=True), name="small_gpt")
    logits = layers.Dense(vocabulary, use_bias=False)(tensor)
    return keras.Model(tokens, logits, name="small_gpt_untied")


def _block(tensor: keras.KerasTensor, width: int, *, causal: bool) -> keras.KerasTensor:
    """Attention and two dense layers, each added to what comes in."""
    layers = keras.layers
    normed = layers.LayerNormalization()(tensor)
    attention = layers.MultiHeadAttention(HEADS, width // HEADS)
    tensor = layers.Add()([tensor, attention(normed, normed, use_causal_mask=causal)])
    inner = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(tensor))
    return layers.Add()([tensor, layers.Dense(width)(inner)])
