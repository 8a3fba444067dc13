"""Convolutions that each have batch norm: for the ladder of docs/performance.md."""

import keras


def build(depth=8, filters=32, size=32, classes=10):
    layers = keras.layers
    images = keras.Input((size, size, 3))
    tensor = images
    for number in range(depth):
        tensor = layers.Conv2D(filters, 3, strides=1 + number % 2, padding="same", use_bias=False)(
            tensor
        )
        tensor = layers.ReLU()(layers.BatchNormalization()(tensor))
    tensor = layers.GlobalAveragePooling2D()(tensor)
    model = keras.Model(images, layers.Dense(classes)(tensor))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss=loss)
    return model
