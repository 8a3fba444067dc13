"""The file of a run's weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ps_allreduce.record.weights_file import RunWeights, load_weights, save_weights


def test_weights_come_back_in_their_order(tmp_path: Path) -> None:
    final = [np.full((2, number % 3), number, np.float32) for number in range(12)]
    path = tmp_path / "weights.npz"
    save_weights(path, RunWeights(initial=[-each for each in final], final=final))
    loaded = load_weights(path)
    for values, wanted in ((loaded.final, final), (loaded.initial, [-each for each in final])):
        assert len(values) == 12
        assert all(np.array_equal(a, b) for a, b in zip(values, wanted, strict=True))
