"""What TensorFlow reads of folders of TFRecord files, as JSON: labels, and a digest of images."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.VarLenFeature(tf.int64),
}


def read(folder: Path) -> Iterator[tuple[str, list[int]]]:
    form = json.loads((folder / "data_set.json").read_text())["form"]
    for path in sorted(folder.glob("*.tfrecord")):
        for record in tf.data.TFRecordDataset(str(path)):  # compares checksums
            whole = tf.train.Example.FromString(record.numpy())
            assert whole.SerializeToString(deterministic=True) == record.numpy()
            example = tf.io.parse_single_example(record, FEATURES)
            if form["encoding"] == "encoded":
                pixels = tf.io.decode_image(example["image"], 3, expand_animations=False)
                assert pixels.shape[2] == form["channels"]
            digest = hashlib.sha256(example["image"].numpy()).hexdigest()
            yield digest, tf.sparse.to_dense(example["label"]).numpy().tolist()


print(json.dumps({folder: list(read(Path(folder))) for folder in sys.argv[1:]}))
