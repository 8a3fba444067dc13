"""The state of the source that records are filed under, and what others use of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments import surroundings
from experiments.surroundings import source_state
from launchers.processes import CommandAnswer
from ps_allreduce.record.provenance import source_digest


def answers(
    monkeypatch: pytest.MonkeyPatch, head: tuple[int, str] | None, changes: tuple[int, str] | None
) -> None:
    """Let git say which commit is checked out and what has changed."""

    def run_quietly(words: Sequence[str], timeout_s: float) -> CommandAnswer | None:
        answer = head if "rev-parse" in words else changes
        return answer and CommandAnswer(status=answer[0], out=answer[1], err="")

    monkeypatch.setattr(surroundings, "run_quietly", run_quietly)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in surroundings.PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(name)
    return tmp_path


def test_a_clean_checkout_is_its_commit(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    answers(monkeypatch, (0, "0123456789ab\n"), (0, ""))
    assert source_state(source) == "0123456789ab"


@pytest.mark.parametrize("changes", [(0, " M launchers/module.py\n"), (128, ""), None])
def test_changes_are_told_with_a_digest(
    monkeypatch: pytest.MonkeyPatch, source: Path, changes: tuple[int, str] | None
) -> None:
    answers(monkeypatch, (0, "0123456789ab\n"), changes)
    before = source_state(source)
    assert before.startswith("0123456789ab with changes, source ")
    (source / "launchers" / "module.py").write_text("changed")
    assert source_state(source) != before


@pytest.mark.parametrize("head", [None, (128, "")])
def test_without_git_the_digest_is_all(
    monkeypatch: pytest.MonkeyPatch, source: Path, head: tuple[int, str] | None
) -> None:
    answers(monkeypatch, head, None)
    assert source_state(source).startswith("unknown, source ")


def test_a_digest_depends_on_places_in_the_checkout_and_content(tmp_path: Path) -> None:
    def digest(root: str, *names: str) -> str:
        for name in names:
            (tmp_path / root / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / root / name).write_text(name[-1:])
        return source_digest((tmp_path / root).rglob("*.py"), tmp_path / root)

    assert digest("one", "a/x.py", "b/y.py") == digest("two", "a/x.py", "b/y.py")
    # Folders count: a module that moved is another program.
    assert digest("three", "a/y.py", "b/x.py") != digest("four", "a/x.py", "b/y.py")
    assert digest("five", "b/x.py", "a/y.py") != digest("one")


@pytest.mark.parametrize(
    ("cores", "share"), [({0}, 0.1), ({1}, 0.3), ({0, 1}, 0.2), ({7}, 0.2)], ids=str
)
def test_what_others_use_is_of_the_usable_cores_however_these_are_numbered(
    cores: set[int], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda *, interval, percpu: [10.0, 30.0])
    monkeypatch.setattr("os.sched_getaffinity", lambda _: cores)
    assert surroundings.used_by_others() == pytest.approx(share)
