"""Decide whether a Python environment can run the suite, and say which one it is.

`python -m ps_allreduce.environment` prints one line per problem, with what to do about it, and
ends with 2; without a problem it prints what was found and ends with 0.  It runs before anything is
known to be installed.  Of the packages that it judges it imports `packaging` alone, which reads
versions; where that is missing, this is the one problem that it tells.  So it knows that a package
is there and which version it is, not that it works.

The versions it asks for are those of pyproject.toml and are stated nowhere else.  It installs
nothing (requirements/set_up.sh does) and records nothing (`ps_allreduce.record.provenance` does).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"

#: requirements/set_up.sh leaves a copy of the lock file under this name in a finished environment.
LOCK_STAMP = "ps-allreduce.lock"

#: Builds of TensorFlow by the name of their distribution; all of them are the module `tensorflow`.
TENSORFLOW_BUILDS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm")

#: Not everywhere: `make setup HOROVOD=1` builds it.
HOROVOD = "horovod"

#: Distributions whose module has another name.
MODULE_OF = {
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "pytest-timeout": "pytest_timeout",
    "pytest-xdist": "xdist",
    "google-crc32c": "google_crc32c",
    "nvidia-ml-py": "pynvml",
    "myst-parser": "myst_parser",
}

#: Distributions without a module to import.
STUBS = ("pandas-stubs", "scipy-stubs", "types-psutil")


class EnvironmentKind(StrEnum):
    """Where an environment comes from."""

    VENV = "venv"
    EXISTING = "existing"


@dataclass(frozen=True, slots=True)
class Requirements:
    """What pyproject.toml asks of an environment."""

    python: SpecifierSet
    tensorflow: SpecifierSet
    packages: tuple[Requirement, ...]

    @classmethod
    def parse(cls, pyproject: str, extras: Sequence[str] = ()) -> Requirements:
        """Read the text of pyproject.toml: its dependencies, TensorFlow, and `extras`.

        Raises:
            ModuleNotFoundError: `packaging` is missing.
        """
        from packaging.requirements import Requirement
        from packaging.specifiers import SpecifierSet

        project = tomllib.loads(pyproject)["project"]
        optional = project["optional-dependencies"]
        texts = [*project["dependencies"], *optional["cpu"]]
        texts += [text for extra in extras for text in optional[extra]]
        stated = [Requirement(text) for text in texts]
        return cls(
            python=SpecifierSet(project["requires-python"]),
            tensorflow=next(each.specifier for each in stated if each.name in TENSORFLOW_BUILDS),
            packages=tuple(each for each in stated if each.name not in TENSORFLOW_BUILDS),
        )


@dataclass(frozen=True, slots=True)
class Installed:
    """What an environment holds: Python, versions by distribution, modules not found."""

    python: str
    versions: Mapping[str, str]
    missing_modules: frozenset[str] = frozenset()


def module_of(distribution: str) -> str | None:
    """The module that a distribution provides, None if it has none."""
    return None if distribution in STUBS else MODULE_OF.get(distribution, distribution)


def render_range(versions: SpecifierSet) -> str:
    """A range as it is stated: `>=1.2,<3`."""
    return ",".join(sorted(map(str, versions), reverse=True))


def tensorflow_problems(required: SpecifierSet, installed: Installed) -> list[str]:
    """Say what is wrong with TensorFlow: none, two builds in one place, or another version."""
    versions = installed.versions
    wanted = render_range(required)
    builds = {name: versions[name] for name in TENSORFLOW_BUILDS if name in versions}
    if not builds or "tensorflow" in installed.missing_modules:
        return [
            f"TensorFlow is not installed and must be {wanted}: load its module, or install"
            f' "tensorflow-cpu{wanted}" (GPUs: "tensorflow[and-cuda]{wanted}").'
        ]
    if len(builds) > 1:
        return [
            f"{' and '.join(builds)} are both installed and overwrite each other's files:"
            " uninstall them all, then install one."
        ]
    return [
        f'{name} is {found} and must be {wanted}: load another module, or install "{name}{wanted}".'
        for name, found in builds.items()
        if not _is_within(found, required)
    ]


def package_problems(required: Iterable[Requirement], installed: Installed) -> list[str]:
    """Say which packages are missing or have another version."""
    problems = []
    for requirement in required:
        name, wanted = requirement.name, render_range(requirement.specifier)
        found = installed.versions.get(name)
        remedy = f'install "{name}{wanted}".'
        if found is None or module_of(name) in installed.missing_modules:
            problems.append(f"{name} is not installed and must be {wanted}: {remedy}")
        elif not _is_within(found, requirement.specifier):
            problems.append(f"{name} is {found} and must be {wanted}: {remedy}")
    return problems


def find_problems(required: Requirements, installed: Installed) -> list[str]:
    """Say everything that keeps an environment from running the suite, one line each."""
    wanted, found = required.python, installed.python
    python = f"Python is {found} and must be {render_range(wanted)}: name another with PYTHON=."
    return [
        *([] if _is_within(found, wanted) else [python]),
        *tensorflow_problems(required.tensorflow, installed),
        *package_problems(required.packages, installed),
    ]


def _is_within(found: str, versions: SpecifierSet) -> bool:
    try:
        return versions.contains(found, prereleases=True)
    except ValueError:  # no version at all
        return False


def installed_version(distribution: str) -> str | None:
    """The installed version of a distribution; None if there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def has_module(name: str) -> bool:
    """Whether a module can be found; it is not imported."""
    return importlib.util.find_spec(name) is not None


def look_up(
    required: Requirements,
    version_of: Callable[[str], str | None] = installed_version,
    has_module: Callable[[str], bool] = has_module,
) -> Installed:
    """Find what this process's environment holds of what is required."""
    names = [*TENSORFLOW_BUILDS, HOROVOD, *(package.name for package in required.packages)]
    versions = {name: version for name in names if (version := version_of(name)) is not None}
    modules = ["tensorflow", *(module_of(package.name) for package in required.packages)]
    missing = frozenset(module for module in modules if module and not has_module(module))
    # Distributions call a build of their own 3.11.2+, which is no version.
    return Installed(sys.version.split()[0].rstrip("+"), versions, missing)


def environment_kind(prefix: Path | None = None) -> EnvironmentKind:
    """Tell an environment made from the suite's lock file from any other one."""
    stamp = (prefix or Path(sys.prefix)) / LOCK_STAMP
    return EnvironmentKind.VENV if stamp.is_file() else EnvironmentKind.EXISTING


def _summary(installed: Installed) -> str:
    build = next(name for name in TENSORFLOW_BUILDS if name in installed.versions)
    names = [name for name in (build, HOROVOD) if name in installed.versions]
    packages = ", ".join(f"{name} {installed.versions[name]}" for name in names)
    found = f"{packages}, Python {installed.python}, {sys.executable}"
    return f"Environment ready ({environment_kind()}): {found}"


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ps_allreduce.environment",
        description="Check that this Python environment can run the suite.",
    )
    parser.add_argument(
        "--extra", action="append", default=[], choices=["dev"], help="what else must be there"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Check this process's environment, say what is wrong with it, return the exit status."""
    arguments = _arguments(sys.argv[1:] if words is None else words)
    try:
        required = Requirements.parse(PYPROJECT.read_text(encoding="utf-8"), arguments.extra)
    except ModuleNotFoundError:
        print(
            'packaging must be installed before the rest can be judged: install "packaging".',
            file=sys.stderr,
        )
        return 2
    installed = look_up(required)
    problems = find_problems(required, installed)
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        return 2
    print(_summary(installed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
