"""A checkpoint is whole or not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.export.taken.checkpoints import Checkpoint, means, newest, save


def checkpoint(step: int, size: int = 3) -> Checkpoint:
    """Two variables, of which the first has slots, and a seed."""
    slots = [[np.full(size, 5.0, np.float32), np.asarray(step, np.float32)], []]
    values = [np.full(size, float(step), np.float32), np.ones((2, 2), np.float32)]
    return Checkpoint(step, values, slots, [np.asarray([7], np.uint32)])


def test_the_newest_comes_back_as_it_was_and_two_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        save(tmp_path / "made", checkpoint(step))
    names = sorted(path.name for path in (tmp_path / "made").iterdir())
    assert names == ["step-000000002.npz", "step-000000010.npz"]
    found = newest(tmp_path / "made")
    assert found is not None
    mine, theirs = found.arrays(), checkpoint(10).arrays()
    assert list(mine) == list(theirs)
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert all(mine[name].dtype == theirs[name].dtype for name in mine)


def test_a_damaged_one_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, checkpoint(1))
    path = save(tmp_path, checkpoint(2))
    path.write_bytes(path.read_bytes()[:-200])
    found = newest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert "damaged and passed over" in capsys.readouterr().out
    assert newest(tmp_path / "nothing") is None


def test_another_models_is_refused() -> None:
    checkpoint(1).check_is_like(checkpoint(2))
    with pytest.raises(SystemExit, match="of another model or optimizer"):
        checkpoint(1, size=4).check_is_like(checkpoint(1))


def test_statistics_are_averaged_and_seeds_are_not() -> None:
    one, two = (
        [np.asarray([mean], np.float32), np.asarray([seed], np.uint32)]
        for mean, seed in ((1.0, 5), (3.0, 9))
    )
    mean, seed = means([one, two])
    assert (mean.tolist(), seed.tolist()) == ([2.0], [5])
    assert mean.dtype == np.float32
