"""Which item a visitor looks at next, and whether they buy it."""

import keras
import tensorflow as tf

UNIT = "rows"
ITEMS, SEEN, TRAITS = 1000, 20, 8


def build(width=64):
    layers = keras.layers
    items = keras.Input((SEEN,), dtype="int32", name="items")
    traits = keras.Input((TRAITS,), name="traits")
    seen = layers.GlobalAveragePooling1D()(layers.Embedding(ITEMS, width)(items))
    both = layers.Concatenate()([seen, layers.Dense(width, activation="relu")(traits)])
    hidden = layers.Dropout(0.2)(layers.Dense(width, activation="relu")(both))
    following = layers.Dense(ITEMS, name="following")(hidden)
    buys = layers.Dense(1, activation="sigmoid", name="buys")(hidden)
    model = keras.Model([items, traits], {"following": following, "buys": buys})
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = {"following": sparse, "buys": "binary_crossentropy"}
    model.compile(optimizer=keras.optimizers.Adam(0.001), loss=losses)
    return model


def dataset(shard, num_shards):
    def example(index):
        seed = tf.stack([tf.constant(1, tf.int64), index])
        items = tf.random.stateless_uniform([SEEN], seed, 0, ITEMS, tf.int32)
        traits = tf.random.stateless_normal([TRAITS], seed)
        targets = {"following": items[:1], "buys": tf.cast(traits[:1] > 0, tf.float32)}
        return (items, traits), targets

    return tf.data.Dataset.range(1_000_000).shard(num_shards, shard).map(example)
