"""pyproject.toml, the lock files and the set-up script agree with each other."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ps_allreduce.environment import PYPROJECT
from ps_allreduce.record.provenance import ROOT

BUILDS = ["cpu", "cuda"]
LOCKS = [*BUILDS, "horovod"]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(PYPROJECT.read_text())["project"]
    return table


def lock_text(build: str) -> str:
    return (ROOT / "requirements" / f"{build}.txt").read_text()


def locked(build: str) -> list[tuple[str, str]]:
    return re.findall(r"^([a-z0-9-]+)==(\S+)", lock_text(build), re.MULTILINE)


@pytest.mark.parametrize("build", BUILDS)
def test_every_dependency_is_locked_within_its_range(project: dict[str, Any], build: str) -> None:
    optional = project["optional-dependencies"]
    for text in [*project["dependencies"], *optional[build], *optional["dev"]]:
        wanted = Requirement(text)
        versions = [version for name, version in locked(build) if name == wanted.name]
        assert versions, wanted.name
        assert all(version in wanted.specifier for version in versions), text


def test_horovod_is_locked_with_the_versions_of_the_builds() -> None:
    groups = tomllib.loads(PYPROJECT.read_text())["dependency-groups"]
    added = dict(locked("horovod"))
    for wanted in map(Requirement, groups["horovod"]):
        assert added[wanted.name] in wanted.specifier
    for build in BUILDS:
        held = dict(locked(build))
        shared = added.keys() & held.keys()
        assert {"cloudpickle", "packaging", "psutil"} <= shared
        assert {name: added[name] for name in shared} == {name: held[name] for name in shared}


@pytest.mark.parametrize("build", LOCKS)
def test_every_locked_package_has_hashes(build: str) -> None:
    entries = re.split(r"^(?=[a-z0-9-]+==)", lock_text(build), flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked(build))
    assert all("--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize("build", LOCKS)
def test_lock_names_no_registry(build: str) -> None:
    assert not re.search(r"://|--index|--extra-index|--find-links", lock_text(build))


def test_lock_holds_one_build_of_tensorflow() -> None:
    builds = [{name for name, _ in locked(build) if "tensorflow" in name} for build in BUILDS]
    assert builds == [{"tensorflow-cpu"}, {"tensorflow"}]


def test_both_builds_ask_for_the_same_versions(project: dict[str, Any]) -> None:
    cpu, cuda = (
        [Requirement(text).specifier for text in project["optional-dependencies"][build]]
        for build in BUILDS
    )
    assert cpu == cuda


def test_script_and_project_support_the_same_pythons(project: dict[str, Any]) -> None:
    script = (ROOT / "requirements" / "set_up.sh").read_text()
    supported = re.findall(r'^supported="(.*)"$', script, re.MULTILINE)[0].split()
    python = SpecifierSet(project["requires-python"])
    minors = [f"3.{minor}" for minor in range(30)]
    assert supported == [minor for minor in minors if minor in python]
