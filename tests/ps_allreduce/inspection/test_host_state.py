"""What a host finds out about itself: modules, memory, file systems, load."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from ps_allreduce.inspection.host_state import (
    addresses_of,
    busy_share,
    file_system_of,
    memory_limit,
    module_files,
    names_of,
    own_places,
    strange_modules,
    temporary_folder,
)


def test_modules_have_a_place(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "lib" / "site-packages"
    cache = tmp_path / "cache" / "linked.py"
    packages.mkdir(parents=True)
    cache.parent.mkdir()
    cache.touch()
    (packages / "linked.py").symlink_to(cache)
    home = str(tmp_path / "home" / ".local" / "lib" / "site-packages")
    files = {
        "numpy": f"{packages}/numpy/__init__.py",
        "linked": f"{packages}/linked.py",
        "keras.layers": f"{home}/keras/layers/__init__.py",
        "keras": f"{home}/keras/__init__.py",
        "psutil": "/apps/psutil/__init__.py",
        "venv_too": f"{tmp_path}/venv_too/__init__.py",
    }
    strangers = strange_modules(files, [str(tmp_path / "venv")], home)
    assert strangers == (("keras",), ("psutil", "venv_too"))


def test_an_environment_is_one_wherever_it_is_and_even_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for place, file in (("link", "real"), ("real", "link")):
        files = {"numpy": f"{tmp_path}/{file}/numpy.py"}
        assert strange_modules(files, [str(tmp_path / place)], "/nowhere") == ((), ())

    # Nor is one below the user's folder the folder of the user's own packages.
    files = {"numpy": "/home/u/.local/venv/lib/site-packages/numpy.py"}
    user_site = "/home/u/.local/lib/python3.11/site-packages"
    assert strange_modules(files, ["/home/u/.local/venv"], user_site) == ((), ())


def test_this_process_uses_its_environment() -> None:
    files = module_files()
    assert Path(files["psutil"]).is_file()
    users, outside = strange_modules(files, own_places(), "/nowhere")
    assert users == ()
    assert not {"psutil", "numpy", "ps_allreduce", "os"} & set(outside)
    assert sys.prefix in own_places()


def test_the_tightest_limit_of_all_groups_counts(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text("0::/slurm/job_7/step_0\n")
    assert memory_limit(tmp_path / "missing", tmp_path) is None
    inner = tmp_path / "fs" / "slurm" / "job_7" / "step_0"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    assert memory_limit(groups, tmp_path / "fs") is None
    (inner.parent / "memory.max").write_text("1073741824\n")
    assert memory_limit(groups, tmp_path / "fs") == 1 << 30
    (inner / "memory.max").write_text("536870912\n")
    assert memory_limit(groups, tmp_path / "fs") == 1 << 29


def test_the_older_control_groups_are_read_too(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text("11:cpu,cpuacct:/a\n7:memory:/slurm\n1:name=systemd:/b\n")
    folder = tmp_path / "fs" / "memory" / "slurm"
    folder.mkdir(parents=True)
    (folder.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory_limit(groups, tmp_path / "fs") is None
    (folder / "memory.limit_in_bytes").write_text("1073741824\n")
    assert memory_limit(groups, tmp_path / "fs") == 1 << 30


MOUNTS = r"""
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
server:/b /home/with\040blank lustre rw 0 0
overlay /mnt overlay rw 0 0
/dev/sdb1 /mnt xfs rw 0 0
""".strip()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "ext4"),
        ("/var/tmp", "ext4"),
        ("/tmp", "tmpfs"),
        ("/tmp/x/y", "tmpfs"),
        ("/tmpfiles", "ext4"),
        ("/home/u", "nfs4"),
        ("/home/with blank/u", "lustre"),
        ("/mnt/x", "xfs"),
    ],
)
def test_a_path_is_on_the_innermost_file_system(path: str, expected: str) -> None:
    assert file_system_of(path, MOUNTS) == expected
    assert file_system_of(path, "") == "unknown"


def test_the_folder_for_files_is_where_python_puts_them_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = temporary_folder({"TMPDIR": "/asked"})
    assert (folder.path, folder.asked, folder.problem) == (str(tmp_path), "/asked", "")
    assert folder.free_bytes > 0
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    folder = temporary_folder({})
    assert (folder.problem, folder.free_bytes) == ("No such file or directory", 0)


def test_only_the_cores_that_may_be_used_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda **_: [100.0, 20.0, 40.0, 0.0])
    assert busy_share({1, 2}, 0.0) == pytest.approx(0.3)
    assert busy_share({9}, 0.0) == pytest.approx(0.4)  # unknown numbers: all of them


def test_names_and_addresses_are_looked_up() -> None:
    assert "127.0.0.1" in addresses_of("localhost")
    assert addresses_of("no-such-name.invalid") == ()
    assert "localhost" in names_of("127.0.0.1")
