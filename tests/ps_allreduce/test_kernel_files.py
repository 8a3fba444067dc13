"""How many cores the control groups of a process leave it, from texts as the kernel writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from ps_allreduce import kernel_files
from ps_allreduce.kernel_files import processor_quota, quota_text, usable_cores

UNIFIED, OLDER = "0::/pod/task\n", "5:cpuset:/a\n4:cpu,cpuacct:/pod/task\n0::/b\n"
IN_POD, IN_TASK = "cpu/pod/cpu.cfs_", "cpu/pod/task/cpu.cfs_"


@pytest.mark.parametrize(
    ("groups", "files", "quota", "num_cores"),
    [
        pytest.param("", {}, None, 4, id="no control groups"),
        pytest.param("0::/\n", {}, None, 4, id="the root, which has no such file"),
        pytest.param(UNIFIED, {"pod/task/cpu.max": "max 100000\n"}, None, 4, id="no quota"),
        pytest.param(UNIFIED, {"pod/task/cpu.max": "200000 100000\n"}, 2.0, 2, id="two processors"),
        pytest.param(UNIFIED, {"pod/task/cpu.max": "250000 100000\n"}, 2.5, 2, id="whole ones"),
        pytest.param(UNIFIED, {"pod/task/cpu.max": "50000 100000\n"}, 0.5, 1, id="one at least"),
        pytest.param(UNIFIED, {"pod/task/cpu.max": "900000 100000\n"}, 9.0, 4, id="more than all"),
        pytest.param(
            UNIFIED,
            {"pod/cpu.max": "150000 50000\n", "pod/task/cpu.max": "max 100000\n"},
            *(3.0, 3),
            id="of a group above",
        ),
        pytest.param(
            "0::/\n",
            {"cpu.max": "100000 100000\n"},
            1.0,
            1,
            id="a container with groups of its own",
        ),
        pytest.param(
            OLDER,
            {f"{IN_TASK}quota_us": "-1\n", f"{IN_TASK}period_us": "100000\n"},
            *(None, 4),
            id="version 1 without a quota",
        ),
        pytest.param(
            OLDER,
            {
                f"{IN_POD}quota_us": "200000\n",
                f"{IN_POD}period_us": "100000\n",
                f"{IN_TASK}quota_us": "350000\n",
                f"{IN_TASK}period_us": "100000\n",
            },
            *(2.0, 2),
            id="version 1, the tightest",
        ),
    ],
)
def test_cores_beyond_a_quota_of_processor_time_are_not_counted(
    groups: str,
    files: Mapping[str, str],
    quota: float | None,
    num_cores: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in {
        "groups": groups,
        **{f"fs/{name}": text for name, text in files.items()},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processor_quota(tmp_path / "groups", tmp_path / "fs") == quota
    monkeypatch.setattr(kernel_files, "GROUPS", (tmp_path / "groups", tmp_path / "fs"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {8, 2, 5, 3})
    assert usable_cores() == (2, 3, 5, 8)[:num_cores]
    assert quota_text(quota) == (
        "" if quota is None else f" (control groups allow the time of {quota:g})"
    )
