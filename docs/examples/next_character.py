"""Which character comes next: Python's own language reference, its last tenth held out."""

import keras
import numpy as np
import tensorflow as tf

UNIT = "tokens"

#: Of a sequence; of the alphabet, beyond which all characters are one; of the text that is read.
LENGTH, ALPHABET, READ = 32, 128, 200_000

HELD_OUT = 0.1

#: When it has learned enough, and when that took too long.  A good rate takes 5,000 to 10,000
#: examples; at twice that rate, seeds differ by a third.
LEARNED = {
    "target_loss": 2.5,
    "most_examples": 25_000,
    "evaluation_steps": 10,
    "evaluation_batches": 32,
}


def build():
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            layers.Embedding(ALPHABET, 32),
            layers.Conv1D(128, 5, padding="causal", activation="relu"),
            layers.Dense(ALPHABET),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss=loss)
    return model


def _sequences(held_out):
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))[:READ]
    codes = np.asarray([min(ord(each), ALPHABET - 1) for each in text], np.uint8)
    rows = codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    first = round(len(rows) * (1 - HELD_OUT))
    rows = rows[first:] if held_out else rows[:first]
    return tf.data.Dataset.from_tensor_slices(rows)


def _cut(row):
    codes = tf.cast(row, tf.int32)
    return codes[:-1], codes[1:]


def dataset(shard, num_shards, seed=1):
    return _sequences(held_out=False).shard(num_shards, shard).shuffle(10_000, seed=seed).map(_cut)


def validation_dataset(shard, num_shards):
    return _sequences(held_out=True).shard(num_shards, shard).map(_cut)
