"""What processes of others have used is told exactly, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ps_allreduce.inspection.facts import TICKS_PER_S, OtherProcesses, others_s

#: As the kernel tells of a process: its time in user and kernel mode, and that of ended children.
STAT = "{pid} ({name}) S {parent} 7 7 0 -1 4194560 90 80 70 60 {ticks} 20 0 3 0 5 6 7 8\n"


def plant(proc: Path, pid: int, parent: int, ticks: str, name: str = "python") -> None:
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    stat = STAT.format(pid=pid, name=name, parent=parent, ticks=ticks)
    (proc / str(pid) / "stat").write_text(stat, encoding="utf-8")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A machine with threads of the kernel, three processes, and two fork servers with a task."""
    threads = tmp_path / "2" / "task" / "2" / "children"
    threads.parent.mkdir(parents=True)
    threads.write_text("3 40 ")
    (tmp_path / "2" / "comm").write_text("kthreadd\n")
    for pid, parent, name in ((2, 0, "kthreadd"), (3, 2, "ksoftirqd/0"), (40, 2, "kworker/0:1")):
        plant(tmp_path, pid, parent, "0 90000 0 0", name)
    plant(tmp_path, 1, 0, "1 2 300 400", "init")
    plant(tmp_path, 41, 1, "10 20 0 0", "(sd-pam)")
    plant(tmp_path, 400, 41, "1000 0 0 0", "a name) S 9 9 (9")
    for pid, parent in ((500, 41), (501, 500), (39, 501), (600, 1)):
        plant(tmp_path, pid, parent, "50000 50000 50000 50000")
    (tmp_path / "401").mkdir()  # it has ended since the folder was read
    (tmp_path / "net").mkdir()
    return tmp_path


SERVERS = (500, 600)


def look(processes: OtherProcesses) -> float | None:
    processes.next_look = 0.0
    return processes.look()


def test_others_are_all_but_fork_servers_what_they_started_and_the_kernel(proc: Path) -> None:
    assert others_s(proc, SERVERS) == 1733 / TICKS_PER_S


def test_what_an_ended_process_used_is_neither_lost_nor_counted_twice(proc: Path) -> None:
    machine = OtherProcesses(SERVERS, proc)
    assert look(machine) == 0.0
    assert machine.look() is None  # too soon: looks cost time
    (proc / "400" / "stat").unlink()
    plant(proc, 41, 1, "10 20 1100 0")  # 1000 as at the last look, and 100 more
    assert look(machine) == pytest.approx(100 / TICKS_PER_S)
    (proc / "41" / "stat").unlink()  # nobody waited for it
    plant(proc, 500, 1, "60000 60000 60000 60000")
    assert look(machine) == pytest.approx(100 / TICKS_PER_S)
    plant(proc, 41, 1, "0 7 0 0")
    assert look(machine) == pytest.approx(107 / TICKS_PER_S)


def test_where_processes_may_be_hidden_a_look_tells_nothing(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert look(OtherProcesses((), proc)) is None  # another host of the machine looks
    machine = OtherProcesses(SERVERS, proc)
    assert look(machine) == 0.0
    with monkeypatch.context() as patched:  # a part of the machine
        patched.setattr(os, "sched_getaffinity", lambda _: {0})
        patched.setattr(os, "cpu_count", lambda: 2)
        assert look(machine) is None
    (proc / "2" / "comm").write_text("bash\n")  # a container
    assert look(machine) is None
    (proc / "2" / "comm").unlink()  # hidepid
    assert look(machine) is None


def test_a_known_load_is_seen_where_it_is_of_others_only() -> None:
    proc, begin = Path("/proc"), time.monotonic()
    before = [others_s(proc, servers) for servers in ((), (os.getpid(),))]
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)  # it has ended before the next look
    # The looks without our own are within those at all: a load that begins meanwhile is in both.
    after = [others_s(proc, servers) for servers in ((os.getpid(),), ())][::-1]
    if None in before:
        pytest.skip("processes of this machine may be hidden here")
    all_s, others = (now - then for now, then in zip(after, before, strict=True) if now and then)
    assert 0.45 <= all_s <= (time.monotonic() - begin) * (os.cpu_count() or 1) + 0.1
    assert others <= all_s - 0.45
