"""Who likes what: made-up people and items, in tables of embeddings.

Everybody likes some share of all items, and every item is liked by some share of all people; both
follow from numbers that are drawn once.  Who knows these numbers predicts with a loss of 0.43, on
average over those who are drawn; who knows nothing, with 0.69.
"""

import keras
import tensorflow as tf

UNIT = "rows"

PEOPLE, ITEMS, WIDTH = 1000, 500, 32

#: Examples of training; those after them are held out.
TRAINED, HELD_OUT = 100_000, 4096

#: When it has learned enough, and when that took too long.  A worker alone takes about 6,000
#: examples with a good rate, and seeds differ by 2 %.
LEARNED = {
    "target_loss": 0.64,
    "most_examples": 25_000,
    "evaluation_steps": 10,
    "evaluation_batches": 64,
}


def build():
    layers = keras.layers
    pair = keras.Input((2,), dtype="int32")
    who = layers.Embedding(PEOPLE, WIDTH)(pair[:, 0])
    what = layers.Embedding(ITEMS, WIDTH)(pair[:, 1])
    hidden = layers.Dense(32, activation="relu")(layers.Concatenate()([who, what]))
    model = keras.Model(pair, layers.Dense(2)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adagrad(0.1), loss=loss)
    return model


def _made(first, count, shard, num_shards):
    people = tf.random.stateless_normal([PEOPLE], [1, 0], stddev=1.5)
    items = tf.random.stateless_normal([ITEMS], [2, 0], stddev=1.5)

    def example(index):
        drawn = tf.random.stateless_uniform([3], tf.stack([tf.constant(3, tf.int64), index]))
        who = tf.cast(drawn[0] * PEOPLE, tf.int32)
        what = tf.cast(drawn[1] * ITEMS, tf.int32)
        likes = tf.sigmoid(people[who] + items[what]) > drawn[2]
        return tf.stack([who, what]), tf.cast(likes, tf.int32)

    return tf.data.Dataset.range(first, first + count).shard(num_shards, shard).map(example)


def dataset(shard, num_shards, seed=1):
    return _made(0, TRAINED, shard, num_shards).cache().shuffle(10_000, seed=seed)


def validation_dataset(shard, num_shards):
    return _made(TRAINED, HELD_OUT, shard, num_shards)
