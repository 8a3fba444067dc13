"""The bench converts, decodes and copies images, and tells how fast each was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.suite.conversion import (
    CONVERSION,
    ConversionSpeed,
    ConversionSpeeds,
    render_conversion,
)
from experiments.suite import conversion
from ps_allreduce.errors import UserError
from ps_allreduce.record.files import write_json


def test_every_size_has_a_line_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "SIZES", ((64, 64, 30), (80, 60, 30)))
    conversion.time_conversion(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [CONVERSION]
    content: dict[str, Any] = {}
    _, *lines = render_conversion(tmp_path, content)
    assert [line.split(":")[0] for line in lines] == ["  64x64", "  80x60"]
    assert all(row["converting"] > 0 for row in content["conversion"])


def test_the_bound_is_the_slower_one_of_every_round(tmp_path: Path) -> None:
    speed = ConversionSpeed(
        width=64,
        height=48,
        num_images=9,
        num_threads=2,
        converting=(80.0, 40.0, 90.0),
        decoding=(100.0, 100.0, 100.0),
        copying=(1000.0, 50.0, 1000.0),
    )
    write_json(tmp_path / CONVERSION, ConversionSpeeds(sizes=(speed,)))
    assert list(render_conversion(tmp_path, {}))[1] == (
        "  64x48: 80 images/s converted, 100 decoded, 1000 copied; 0.80 of the bound, 2 threads"
    )


def test_nothing_is_told_of_what_was_not_measured(tmp_path: Path) -> None:
    assert list(render_conversion(tmp_path, {})) == []
    Path(tmp_path, CONVERSION).write_text("{}")
    with pytest.raises(UserError, match=r"conversion\.json cannot be read"):
        list(render_conversion(tmp_path, {}))
