"""What a user may bring: two inputs, two losses, an embedding, dropout, Adam, and a second file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ps_allreduce.record.provenance import ROOT

MINE = """\
import keras
from keras import layers

from blocks import tower

UNIT = "rows"


def build(width: int = 16) -> keras.Model:
    words = keras.Input((8,), dtype="int32", name="words")
    numbers = keras.Input((4,), name="numbers")
    read = layers.GlobalAveragePooling1D()(layers.Embedding(500, width)(words))
    both = tower(layers.Concatenate()([read, numbers]), width)
    outputs = {
        "topic": layers.Dense(5, name="topic")(both),
        "score": layers.Dense(1, name="score")(both),
    }
    model = keras.Model({"words": words, "numbers": numbers}, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss={
            "topic": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "score": "mse",
        },
    )
    return model
"""

BLOCKS = """\
from keras import layers


def tower(values, width):
    values = layers.Dense(width, activation="relu")(values)
    return layers.Dropout(0.1)(values)
"""


def write_model(folder: Path) -> str:
    """Both files, in a folder; what `--model` takes."""
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(MINE)
    (folder / "blocks.py").write_text(BLOCKS)
    return f"{folder / 'mine.py'}:build"


def run_one(model: str, results: Path, *words: str, **variables: str) -> dict[str, Any]:
    """The line that `run-one` prints of a short run with two workers."""
    command = (sys.executable, "-m", "experiments", "run-one", "--model", model)
    short = ("--model-arg", "width=32", "--num-workers", "2", "--warmup-steps", "5")
    done = subprocess.run(
        [*command, *short, "--results", str(results), *words],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "trainable parameters in 7 variables" in done.stderr
    line: dict[str, Any] = json.loads(done.stdout)
    return line
