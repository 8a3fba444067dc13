"""The user's code cannot take away what the suite and TensorFlow need afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from ps_allreduce.errors import UserError
from ps_allreduce.workloads.user_code import blaming, call_with_words


@pytest.mark.parametrize("fails", [False, True])
def test_variables_that_were_removed_are_put_back_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setenv("NEEDED", "1")
    monkeypatch.setenv("CHANGED", "1")
    before = dict(os.environ)

    def build() -> None:
        os.environ.clear()
        os.environ.update(CHANGED="2", NEW="3")
        if fails:
            raise ValueError("no luck")

    told = pytest.raises(UserError, match="no luck") if fails else nullcontext()
    with told:
        call_with_words(build, [], tmp_path)
    assert dict(os.environ) == before | {"CHANGED": "2", "NEW": "3"}
    del os.environ["NEW"]


def test_no_file_takes_the_number_of_a_stream_that_was_closed() -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        f"from {blaming.__module__} import blaming\n"
        "with blaming('building', Path('/')):\n    os.closerange(0, 3)\n"
        "os._exit(os.open('/', os.O_RDONLY) > 2)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1
