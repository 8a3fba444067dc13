"""Where, on what and with which software a run was made.

Decides what is recorded about machine and software, and which part of it makes runs comparable: the
fingerprint.  Collecting reads files and environment variables of this machine; it starts no process
and never imports TensorFlow, whose version is read from its package metadata.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

from ps_allreduce.environment import environment_kind, installed_version
from ps_allreduce.kernel_files import GROUPS, processor_quota, read_text, usable_cores
from ps_allreduce.record.hosts import HostFacts, kinds

PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "psutil", "grpcio", "protobuf")

#: Environment variables that change what TensorFlow computes or how it communicates.
SETTINGS = (
    "TF_ENABLE_ONEDNN_OPTS",
    "ONEDNN_MAX_CPU_ISA",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "NVIDIA_TF32_OVERRIDE",
    "TF_GRPC_WORKER_CACHE_THREADS",
    "OMP_NUM_THREADS",
    "NCCL_IB_DISABLE",
)

#: So does whatever begins so, but for TF_CONFIG, which is every task's own, for the log, and for
#: variables of Terraform, which may hold secrets.
SETTING_FAMILIES = ("NCCL_", "TF_")

OTHER_PURPOSES = ("TF_CONFIG", "TF_CPP_", "TF_CLI_", "TF_TOKEN_", "TF_VAR_")

#: The checkout, and the measured program in it.
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "ps_allreduce"

#: Modules of it that keep and read results, and change nothing that is measured.
_RECORD = ("files", "records", "variables")
KEEPING = ("bounds.py", *(f"record/{name}.py" for name in _RECORD))


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """A description of machine and software.

    Attributes:
        commit: of the suite, with a digest of uncommitted changes; `unknown` without git.  It is
            no part of the fingerprint: most commits change nothing that is measured.
        program: digest of the measured program's sources.
        versions: of Python and the packages that matter.
        environment: `venv` if it holds the suite's lock file, else `existing`.
        command: the command line that made the run.
        cpu_flags: the vector extensions, which decide what oneDNN does.
        affinity: processors this process may use, as `kernel_files` counts them.
        processor_quota: how many processors' time its control groups allow; None without a limit.
        load_average: of one minute, before the run.
        settings: environment variables that change computation or communication, and defaults.
        congestion: this machine's TCP congestion control where tasks use it; empty where hosts
            have their own, or an emulated network states it.
    """

    commit: str
    program: str = ""
    versions: Mapping[str, str]
    environment: str
    command: str
    host: str
    system: str
    cpu_model: str
    cpu_count: int
    cpu_flags: tuple[str, ...]
    memory_bytes: int
    affinity: tuple[int, ...]
    load_average: float
    settings: Mapping[str, str]
    congestion: str = ""
    processor_quota: float | None = None
    fingerprint: str


def collect(commit: str, hosts: Sequence[HostFacts] = (), congestion: str = "") -> Provenance:
    """Describe this machine and this process.

    Args:
        hosts: those of a cluster.  Their hardware counts then, not that of this machine, which may
            be a login node, nor their names, so that a sweep goes on with other hosts of the kind.
        congestion: as `Provenance` has it.
    """
    cpu_model, flags = parse_cpuinfo(read_text(Path("/proc/cpuinfo")))
    found = Provenance(
        commit=commit,
        program=measured_digest(),
        versions=package_versions(PACKAGES),
        environment=str(environment_kind()),
        command=shlex.join(sys.orig_argv),
        host=platform.node(),
        system=platform.platform(),
        cpu_model=cpu_model,
        cpu_count=os.cpu_count() or 1,
        cpu_flags=flags,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        affinity=usable_cores(),
        processor_quota=processor_quota(*GROUPS),
        load_average=os.getloadavg()[0],
        settings=tensorflow_settings(os.environ),
        congestion=congestion,
        fingerprint="",
    )
    return replace(found, fingerprint=fingerprint(_what_counts(found, hosts)))


def _what_counts(found: Provenance, hosts: Sequence[HostFacts]) -> dict[str, object]:
    """What makes runs comparable."""
    if hosts:
        names = ("program", "versions", "environment", "settings")
        return {name: getattr(found, name) for name in names} | {"hosts": sorted(kinds(hosts))}
    passing = ("commit", "command", "load_average", "fingerprint")
    return {f.name: getattr(found, f.name) for f in fields(found) if f.name not in passing}


def fingerprint(found: Mapping[str, object]) -> str:
    """Eight hexadecimal digits; equal only where runs may be pooled."""
    text = json.dumps(found, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def running_system() -> str:
    """Identifies this machine since it was started; the same in all of its namespaces."""
    return read_text(Path("/proc/sys/kernel/random/boot_id")).strip()


def default_congestion() -> str:
    """The TCP congestion control that connections begin with here; empty if it is not told."""
    return read_text(Path("/proc/sys/net/ipv4/tcp_congestion_control")).strip()


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Model name and vector extensions from the text of /proc/cpuinfo."""
    model, flags = "unknown", ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and model == "unknown":
            model = value.strip()
        if key.strip() in ("flags", "Features") and not flags:
            flags = value
    vector = ("sse4", "avx", "fma", "amx", "neon", "sve", "asimd")
    return model, tuple(sorted({flag for flag in flags.split() if flag.startswith(vector)}))


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of those packages that are installed."""
    versions = {name: version for name in names if (version := installed_version(name))}
    return {"python": platform.python_version()} | versions


def computing(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of some variables that change what is computed or how tasks communicate."""
    return {
        name: text
        for name, text in sorted(environment.items())
        if (name in SETTINGS or name.startswith(SETTING_FAMILIES))
        and not name.startswith(OTHER_PURPOSES)
    }


def tensorflow_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings that change results or speed; those not set are TensorFlow's defaults."""
    stated = dict.fromkeys(SETTINGS, "default") | computing(environment)
    return stated | {"xla_jit": "off", "batch_norm": "worker_local"}


def source_digest(paths: Iterable[Path], root: Path = ROOT) -> str:
    """Eight hexadecimal digits over the content of files below a folder, by their places in it."""
    return _digest({path.relative_to(root).as_posix(): path.read_bytes() for path in paths})


def _digest(contents: Mapping[str, bytes]) -> str:
    total = hashlib.sha256()
    for name, content in sorted(contents.items()):
        total.update(name.encode() + b"\0" + content + b"\0")
    return total.hexdigest()[:8]


@cache
def program_sources(root: Path = ROOT) -> Mapping[str, bytes]:
    """The measured program's source on this host, by place; as it was at the first call."""
    paths = (root / PROGRAM).rglob("*.py")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def program_digest(root: Path = ROOT) -> str:
    """Of that source."""
    return _digest(program_sources(root))


def measured_digest(root: Path = ROOT) -> str:
    """Of that source without what only keeps and reads results."""
    keeping = {f"{PROGRAM}/{name}" for name in KEEPING}
    sources = program_sources(root)
    return _digest({name: sources[name] for name in sources.keys() - keeping})
