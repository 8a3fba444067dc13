"""What a host is given, as far as no host is needed to decide it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from launchers.hosts.goal import (
    PARTS,
    WORK,
    Goal,
    WantedEnvironment,
    Wheelhouse,
    read_wheelhouse,
)
from launchers.hosts.needs import (
    EnvironmentThere,
    FilesThere,
    FoundThere,
    Step,
    copy_command,
    copy_wheels_command,
    explain_failure,
    groups_of,
    look_command,
    parse_found,
    set_up_command,
    steps_for,
)
from launchers.sites.ssh.command_line import REACHED
from launchers.sites.ssh.hostfile import SshHost
from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.record.provenance import ROOT
from tests.conftest import skip_or_fail

WHEELS = Wheelhouse(folder=Path("wheels"), sizes={"a.whl": 1})

GOAL = Goal(
    root=Path("/home/me/suite"),
    folder=ROOT,
    environment=WantedEnvironment(
        python="/venv/bin/python",
        python_path="/home/me/suite",
        folder=Path("/venv"),
        build="cpu",
        stamp="2 /venv/lock",
        base="/opt/bin/python3.11",
        command="python3.11",
    ),
    wheelhouse=WHEELS,
    call="abc",
)

# ---- what is copied


def test_a_checkout_is_what_its_folder_holds_without_results_and_leftovers(tmp_path: Path) -> None:
    names = ("Makefile", "analysis/deep/new.py", "results/x", ".venv/y", "mine.py", ".git/HEAD")
    for name in (*names, "analysis/__pycache__/new.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    goal = replace(GOAL, folder=tmp_path)
    assert goal.parts == ("Makefile", "analysis")
    packed = subprocess.run(goal.pack_words, capture_output=True, check=True).stdout
    listed = subprocess.run(["tar", "-tz"], input=packed, capture_output=True, check=True).stdout
    files = [name for name in listed.decode().splitlines() if not name.endswith("/")]
    assert files == ["Makefile", "analysis/deep/new.py"]


def test_all_that_git_keeps_in_the_checkout_is_copied() -> None:
    words = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    if not listed:
        skip_or_fail("the checkout has no git")
    tops = {name.split("/")[0] for name in listed}
    assert {top for top in tops if not top.startswith(".")} == set(PARTS)


def test_a_wheelhouse_is_known_by_its_packages(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no packages \(\*.whl\); fill it with 'make wheel"):
        read_wheelhouse(tmp_path)
    (tmp_path / "a.whl").write_text("one")
    (tmp_path / "notes").write_text("x")
    first = read_wheelhouse(tmp_path)
    assert dict(first.sizes) == {"a.whl": 3}
    (tmp_path / "horovod-0.28.1.tar.gz").write_text("source")
    assert read_wheelhouse(tmp_path).sizes == {"a.whl": 3, "horovod-0.28.1.tar.gz": 6}
    (tmp_path / "a.whl").write_text("longer")
    assert read_wheelhouse(tmp_path).name != first.name


# ---- what a host needs


def found(
    files: str,
    environment: str = "none",
    *,
    shares_environment: bool = False,
    has_wheels: bool = False,
) -> FoundThere:
    return FoundThere(
        files=FilesThere(files),
        environment=EnvironmentThere(environment),
        shares_environment=shares_environment,
        has_wheels=has_wheels,
    )


@pytest.mark.parametrize(
    ("seen", "steps"),
    [
        (found("same", "ready"), ()),
        (found("shared", "ready", shares_environment=True), ()),
        (found("none"), (Step.COPY, Step.COPY_WHEELS, Step.SET_UP)),
        (found("other"), (Step.COPY, Step.COPY_WHEELS, Step.SET_UP)),
        (found("other", has_wheels=True), (Step.COPY, Step.SET_UP)),
        (found("other", "made"), (Step.COPY, Step.SET_UP)),
        (found("same"), (Step.COPY_WHEELS, Step.SET_UP)),
        (found("same", "made"), (Step.SET_UP,)),
        (found("shared"), (Step.COPY_WHEELS, Step.SET_UP)),
        (found("none", "made", shares_environment=True), (Step.COPY, Step.CHECK)),
        (found("shared", "made", shares_environment=True), (Step.CHECK,)),
    ],
)
def test_only_what_is_missing_is_done(seen: FoundThere, steps: tuple[Step, ...]) -> None:
    assert steps_for("n9", seen, GOAL) == steps


def test_packages_are_copied_only_where_some_are_installed() -> None:
    existing = replace(GOAL.environment, folder=None, stamp="", base="", command="python3")
    seen = found("none")
    assert steps_for("n9", seen, replace(GOAL, environment=existing)) == (Step.COPY, Step.SET_UP)
    assert steps_for("n9", seen, replace(GOAL, wheelhouse=None)) == (Step.COPY, Step.SET_UP)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (found("foreign", "made"), "n9 has files at /home/me/suite that 'make hosts' did not put"),
        (found("locked"), "n9 does not let you make or write /home/me/suite: use a checkout at a"),
        (
            found("shared", shares_environment=True),
            "n9 shares the environment /venv with this machine, but cannot start its Python",
        ),
    ],
)
def test_what_is_not_ours_is_left_alone(seen: FoundThere, told: str) -> None:
    with pytest.raises(HostFault) as caught:
        steps_for("n9", seen, GOAL)
    assert told in str(caught.value)
    assert str(caught.value).endswith(".")


def test_the_answer_of_a_host_is_read_among_greetings() -> None:
    said = "Welcome\nps-allreduce: found other made shared full 0 3\nlogout\n"
    assert parse_found(said) == FoundThere(
        files=FilesThere.OTHER,
        environment=EnvironmentThere.MADE,
        shares_environment=True,
        has_wheels=True,
        sees=frozenset({0, 3}),
    )
    assert parse_found("Welcome\n") is None


@pytest.mark.parametrize(
    ("sees", "groups"),
    [
        ({0: {0}, 1: {1}}, ((0,), (1,))),
        ({0: {0}, 1: {0, 1}}, ((0, 1),)),
        ({2: {2, 0}, 1: {1}, 0: {0}}, ((0, 2), (1,))),
        ({3: {3, 1}, 0: {0}, 1: {1, 0}}, ((0, 1, 3),)),
        ({1: {1, 0}}, ((1,),)),
        ({}, ()),
    ],
)
def test_hosts_with_one_folder_find_each_other(
    sees: Mapping[int, set[int]], groups: tuple[tuple[int, ...], ...]
) -> None:
    looks = {n: replace(found("none"), sees=frozenset(seen)) for n, seen in sees.items()}
    assert sorted(groups_of(looks)) == list(groups)


# ---- what is run there


def test_scripts_are_one_line_that_any_shell_reads() -> None:
    hostile = replace(GOAL, root=Path("/it's $HOME; `date`"))
    for command in (
        look_command(hostile, 3),
        copy_command(hostile),
        copy_wheels_command(hostile, 3),
        set_up_command(hostile, only_check=False),
    ):
        words = shlex.split(command)
        assert words[:3] == ["exec", "sh", "-c"]
        assert "\n" not in command
        assert "!" not in command
        assert not any(part in words[3] for part in ("$HOME", "`"))
        assert any(word.startswith("/it's $HOME; `date`") for word in words[5:])
        subprocess.run(["sh", "-n", "-c", words[3]], check=True)


def test_a_set_up_is_told_all_and_a_check_installs_nothing() -> None:
    words = shlex.split(set_up_command(GOAL, only_check=False))
    packages = f"/home/me/suite/{WORK}/{WHEELS.name}"
    assert words[5:10] == [
        *("/home/me/suite", "/venv/bin/python", "/home/me/suite"),
        *("/opt/bin/python3.11", "python3.11"),
    ]
    told = ["VENV=/venv", "TF=cpu", "HOROVOD=0", f"WHEELHOUSE={packages}", "PIP_VERBOSE=1"]
    assert words[10:] == told
    assert len(shlex.split(set_up_command(GOAL, only_check=True))) == 10


def test_hosts_get_horovod_if_it_is_here() -> None:
    model = replace(GOAL.environment, with_horovod=True)
    told = shlex.split(set_up_command(replace(GOAL, environment=model), only_check=False))
    assert "HOROVOD=1" in told


HOST = SshHost(name="n9")


@pytest.mark.parametrize(
    ("status", "said", "told"),
    [
        (255, "me@n9: Permission denied (publickey).", "n9 refuses the log-in: see that"),
        (2, f"{REACHED}\ntar: No space left on device", "copying the checkout failed on n9 with"),
        (255, f"{REACHED}\nConnection reset", "ssh to n9 ended with status 255 (last heard: Conn"),
    ],
)
def test_a_failure_is_one_sentence(status: int, said: str, told: str) -> None:
    message = explain_failure(HOST, Step.COPY, status, f"{said}\n")
    assert message.startswith(told)
    assert said.splitlines()[-1].rstrip(".") in message
    assert message.endswith(".")
