"""Want of memory is told apart from other failures; packages are missing for as long as asked."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from ps_allreduce.fork_server.child import KernelWatch, count_kills, left_out
from ps_allreduce.fork_server.messages import EndAll, Event, Exited
from tests.pretend import fake_server
from tests.talk import ENDLESS, Server


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_counter_of_our_control_group_is_read(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/slurm/job_7/step_0\n")
    write(tmp_path / "proc/vmstat", "nr_free_pages 9\noom_kill 40\n")
    assert count_kills(tmp_path) == 40
    events = tmp_path / "sys/fs/cgroup/slurm/job_7/step_0/memory.events"
    write(events, "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert count_kills(tmp_path) == 1


def test_the_counter_of_the_first_version_is_read(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/slurm/step_0\n0::/\n")
    control = tmp_path / "sys/fs/cgroup/memory/slurm/step_0/memory.oom_control"
    write(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert count_kills(tmp_path) == 2


def test_only_what_the_kernel_did_since_the_last_look_counts(tmp_path: Path) -> None:
    assert count_kills(tmp_path) == 0
    write(tmp_path / "proc/vmstat", "nr_free_pages 9\n")
    assert count_kills(tmp_path) == 0
    write(tmp_path / "proc/vmstat", "oom_kill 4\n")
    watch = KernelWatch(tmp_path)
    watch.begin()
    assert not watch.has_killed
    write(tmp_path / "proc/vmstat", "oom_kill 5\n")
    assert watch.has_killed
    watch.begin()
    assert not watch.has_killed


KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """The counter of a made-up kernel."""
    path = tmp_path / "root/proc/vmstat"
    write(path, "oom_kill 4\n")
    return path


def watching(folder: Path) -> Server:
    """A fork server that asks the made-up kernel."""
    return Server(folder, fake_server("--kernel", str(folder / "root")))


def test_a_task_that_the_kernel_ended_for_want_of_memory_says_so(
    tmp_path: Path, kernel: Path
) -> None:
    server = watching(tmp_path)
    try:
        count = f"open({str(kernel)!r}, 'w').write('oom_kill 5\\n'); "
        exited, (event,), _ = server.run("worker:1", count + KILL)
        assert exited.status == -9
        assert (event.name, event.event) == ("worker:1", "failed")
        assert event.text.startswith(f"out of memory on host {server.ready.facts.name}: the kernel")
        # Another one, that the kernel had nothing to do with.
        _, events, _ = server.run("worker:1", KILL)
        assert events == []
    finally:
        server.program.end()


def test_what_we_end_ourselves_is_not_out_of_memory(tmp_path: Path, kernel: Path) -> None:
    server = watching(tmp_path)
    try:
        server.start("worker:0", ENDLESS)
        server.expect(Event)
        kernel.write_text("oom_kill 5\n")
        server.seen.clear()
        server.send(EndAll())
        assert server.expect(Exited).status == -9
        assert [message for message in server.seen if isinstance(message, Event)] == []
    finally:
        server.program.end()


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported and was not yet."""
    monkeypatch.delitem(sys.modules, "this", raising=False)
    monkeypatch.setattr(sys, "stdout", None)  # it prints a poem
    return "this"


def test_a_package_is_missing_for_a_while(unused: str) -> None:
    with pytest.raises(ImportError), left_out(unused):
        importlib.import_module(unused)
    assert unused not in sys.modules
    assert importlib.import_module(unused).__name__ == unused


def test_what_is_imported_stays() -> None:
    with left_out("importlib"):
        assert importlib.import_module("importlib") is importlib
    assert sys.modules["importlib"] is importlib
