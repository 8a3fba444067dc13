"""Decide whether a Python environment can run the suite, and say which one it is.

`python -m ps_allreduce.environment` prints one line per problem, with what to do about it, and
ends with 2; without a problem it prints what was found and ends with 0.  It runs before anything is
known to be installed: standard library only, and it imports none of the packages that it judges,
TensorFlow least of all.  So it knows that a package is there and which version it is, not that it
works.

The versions it asks for are those of pyproject.toml and are stated nowhere else.  It installs
nothing (requirements/set_up.sh does) and records nothing (`ps_allreduce.record.provenance` does).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

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
}

#: Distributions without a module to import.
STUBS = ("pandas-stubs", "scipy-stubs", "types-psutil")


class EnvironmentKind(StrEnum):
    """Where an environment comes from."""

    VENV = "venv"
    EXISTING = "existing"


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """The part of a version that ranges compare: 2.21.0rc1+site counts as 2.21.0, not final."""

    release: tuple[int, ...]
    is_final: bool = True

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read a version as Python packages state it; no leading number is a ValueError."""
        match = re.match(r"v?(\d+(?:\.\d+)*)([._-]?(?:a|b|c|rc|alpha|beta|pre|preview|dev))?", text)
        if match is None:
            raise ValueError(f"not a version: {text!r}")
        numbers = [int(number) for number in match[1].split(".")]
        while numbers and numbers[-1] == 0:
            numbers.pop()  # 2.21 and 2.21.0 are the same version
        return cls(tuple(numbers), is_final=match[2] is None)


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions from `lower` up to, and without, `upper`; None is no bound."""

    text: str
    lower: Version | None = None
    upper: Version | None = None

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read '>=1.2,<3'; any other operator is a ValueError."""
        bounds: dict[str, Version] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            match = re.fullmatch(r"(>=|<)\s*([\w.]+)", part)
            if match is None or match[1] in bounds:
                raise ValueError(f"a range is written '>=1.2,<3', got {text!r}")
            bounds[match[1]] = Version.parse(match[2])
        return cls(text.strip(), bounds.get(">="), bounds.get("<"))

    def __contains__(self, version: Version) -> bool:
        # A release candidate of the upper bound is already outside: its release is compared alone.
        above = self.lower is None or version >= self.lower
        return above and (self.upper is None or version.release < self.upper.release)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A distribution and the versions of it that will do."""

    distribution: str
    versions: VersionRange

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read 'name[extra]>=1.2,<3'."""
        match = re.fullmatch(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*([<>=].*)?", text)
        if match is None:
            raise ValueError(f"a requirement is written 'name>=1.2,<3', got {text!r}")
        return cls(match[1].lower(), VersionRange.parse(match[2] or ""))

    @property
    def module(self) -> str | None:
        """The module that the distribution provides, None if it has none."""
        if self.distribution in STUBS:
            return None
        return MODULE_OF.get(self.distribution, self.distribution)


@dataclass(frozen=True, slots=True)
class Requirements:
    """What pyproject.toml asks of an environment."""

    python: VersionRange
    tensorflow: VersionRange
    packages: tuple[Requirement, ...]

    @classmethod
    def parse(cls, pyproject: str, extras: Sequence[str] = ()) -> Requirements:
        """Read the text of pyproject.toml: its dependencies, TensorFlow, and `extras`."""
        project = tomllib.loads(pyproject)["project"]
        optional = project["optional-dependencies"]
        texts = [*project["dependencies"], *optional["cpu"]]
        texts += [text for extra in extras for text in optional[extra]]
        stated = [Requirement.parse(text) for text in texts]
        return cls(
            python=VersionRange.parse(project["requires-python"]),
            tensorflow=next(r.versions for r in stated if r.distribution in TENSORFLOW_BUILDS),
            packages=tuple(r for r in stated if r.distribution not in TENSORFLOW_BUILDS),
        )


@dataclass(frozen=True, slots=True)
class Installed:
    """What an environment holds: Python, versions by distribution, modules not found."""

    python: str
    versions: Mapping[str, str]
    missing_modules: frozenset[str] = frozenset()


def tensorflow_problems(required: VersionRange, installed: Installed) -> list[str]:
    """Say what is wrong with TensorFlow: none, two builds in one place, or another version."""
    versions = installed.versions
    builds = {name: versions[name] for name in TENSORFLOW_BUILDS if name in versions}
    if not builds or "tensorflow" in installed.missing_modules:
        return [
            f"TensorFlow is not installed and must be {required.text}: load its module, or install"
            f' "tensorflow-cpu{required.text}" (GPUs: "tensorflow[and-cuda]{required.text}").'
        ]
    if len(builds) > 1:
        return [
            f"{' and '.join(builds)} are both installed and overwrite each other's files:"
            " uninstall them all, then install one."
        ]
    return [
        f"{name} is {found} and must be {required.text}: load another module, or install"
        f' "{name}{required.text}".'
        for name, found in builds.items()
        if not _is_within(found, required)
    ]


def package_problems(required: Iterable[Requirement], installed: Installed) -> list[str]:
    """Say which packages are missing or have another version."""
    problems = []
    for requirement in required:
        name, wanted = requirement.distribution, requirement.versions
        found = installed.versions.get(name)
        remedy = f'install "{name}{wanted.text}".'
        if found is None or requirement.module in installed.missing_modules:
            problems.append(f"{name} is not installed and must be {wanted.text}: {remedy}")
        elif not _is_within(found, wanted):
            problems.append(f"{name} is {found} and must be {wanted.text}: {remedy}")
    return problems


def find_problems(required: Requirements, installed: Installed) -> list[str]:
    """Say everything that keeps an environment from running the suite, one line each."""
    wanted, found = required.python, installed.python
    python = f"Python is {found} and must be {wanted.text}: name another with PYTHON=."
    return [
        *([] if Version.parse(found) in wanted else [python]),
        *tensorflow_problems(required.tensorflow, installed),
        *package_problems(required.packages, installed),
    ]


def _is_within(found: str, versions: VersionRange) -> bool:
    try:
        return Version.parse(found) in versions
    except ValueError:
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
    names = [*TENSORFLOW_BUILDS, HOROVOD, *(package.distribution for package in required.packages)]
    versions = {name: version for name in names if (version := version_of(name)) is not None}
    modules = ["tensorflow", *filter(None, (package.module for package in required.packages))]
    missing = frozenset(module for module in modules if not has_module(module))
    return Installed(sys.version.split()[0], versions, missing)


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
    required = Requirements.parse(PYPROJECT.read_text(encoding="utf-8"), arguments.extra)
    installed = look_up(required)
    problems = find_problems(required, installed)
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        return 2
    print(_summary(installed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
