"""The check of an environment, against stated contents."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from ps_allreduce.environment import (
    LOCK_STAMP,
    EnvironmentKind,
    Installed,
    Requirements,
    environment_kind,
    find_problems,
    look_up,
    module_of,
)
from ps_allreduce.record.provenance import ROOT

PYPROJECT = """
[project]
requires-python = ">=3.11,<3.14"
dependencies = ["numpy>=1.26,<3", "scikit-learn>=1.4,<2"]
[project.optional-dependencies]
cpu = ["tensorflow-cpu>=2.21,<2.22", "keras>=3.12,<4"]
dev = ["pytest>=8,<10", "types-psutil>=5.9,<8"]
"""

GOOD = {"numpy": "2.4.6", "scikit-learn": "1.9.1", "tensorflow-cpu": "2.21.0", "keras": "3.15.1"}


def problems(
    versions: dict[str, str], python: str = "3.11.7", missing: frozenset[str] = frozenset()
) -> list[str]:
    return find_problems(Requirements.parse(PYPROJECT), Installed(python, versions, missing))


@pytest.mark.parametrize(
    ("version", "inside"),
    [
        ("2.20.9", False),
        ("2.21", True),
        ("2.21.0", True),
        ("2.21.3", True),
        ("2.21.0+nv25.11", True),
        ("2.21.0.post1", True),
        ("2.21.0rc1", False),
        ("2.21.0.dev20251101", False),
        ("2.21.1rc1", True),
        ("2.22.0rc0", False),
        ("2.22", False),
        ("2.3", False),
        ("12.21", False),
    ],
)
def test_version_in_range(version: str, inside: bool) -> None:
    found = problems(GOOD | {"tensorflow-cpu": version})
    assert (found == []) is inside, found


def test_module_is_not_always_the_distribution() -> None:
    names = ["scikit-learn", "pillow", "numpy", "types-psutil"]
    assert [module_of(name) for name in names] == ["sklearn", "PIL", "numpy", None]


def test_every_package_is_looked_for_by_a_module_of_its_own() -> None:
    required = Requirements.parse((ROOT / "pyproject.toml").read_text(), ["dev"])
    modules = {package.name: module_of(package.name) for package in required.packages}
    provided = importlib.metadata.packages_distributions()
    strange = {
        name: module
        for name, module in modules.items()
        if module and name not in [canonicalize_name(each) for each in provided.get(module, ())]
    }
    assert strange == {}


@pytest.mark.parametrize("build", ["tensorflow", "tensorflow-cpu", "tensorflow-rocm"])
def test_each_build_of_tensorflow_will_do(build: str) -> None:
    others = {name: version for name, version in GOOD.items() if name != "tensorflow-cpu"}
    assert problems({**others, build: "2.21.0"}) == []


def test_each_problem_is_one_line_with_a_remedy() -> None:
    found = problems({"numpy": "3.0.1", "tensorflow-cpu": "2.19.0", "keras": "odd"}, python="3.9.2")
    assert found == [
        "Python is 3.9.2 and must be >=3.11,<3.14: name another with PYTHON=.",
        "tensorflow-cpu is 2.19.0 and must be >=2.21,<2.22: load another module, or install"
        ' "tensorflow-cpu>=2.21,<2.22".',
        'numpy is 3.0.1 and must be >=1.26,<3: install "numpy>=1.26,<3".',
        'scikit-learn is not installed and must be >=1.4,<2: install "scikit-learn>=1.4,<2".',
        'keras is odd and must be >=3.12,<4: install "keras>=3.12,<4".',
    ]


def test_two_builds_of_tensorflow_in_one_place() -> None:
    [problem] = problems({**GOOD, "tensorflow": "2.21.0"})
    assert problem.startswith("tensorflow and tensorflow-cpu are both installed and overwrite")


@pytest.mark.parametrize("module", ["tensorflow", "sklearn"])
def test_distribution_without_its_module_counts_as_missing(module: str) -> None:
    [problem] = problems(GOOD, missing=frozenset({module}))
    assert "is not installed" in problem


def test_look_up_asks_for_what_is_required() -> None:
    required = Requirements.parse(PYPROJECT, ["dev"])
    installed = look_up(required, GOOD.get, lambda module: module != "pytest")
    assert installed.versions == GOOD
    assert installed.missing_modules == {"pytest"}


def test_environment_kind(tmp_path: Path) -> None:
    assert environment_kind(tmp_path) is EnvironmentKind.EXISTING
    (tmp_path / LOCK_STAMP).touch()
    assert environment_kind(tmp_path) is EnvironmentKind.VENV


def test_check_runs_where_nothing_is_installed() -> None:
    """-S: a Python without site-packages, as a bare machine's. No traceback, no TensorFlow."""
    bare = [sys.executable, "-S", "-E", "-m", "ps_allreduce.environment"]
    result = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("packaging must be installed")
    assert len(result.stderr.splitlines()) == 1
