"""What is said about a machine, and which of it keeps runs apart; which hosts are alike."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ps_allreduce.record import provenance
from ps_allreduce.record.hosts import Gpu, HostFacts, Interface, describe_difference, kinds
from ps_allreduce.record.provenance import (
    collect,
    computing,
    fingerprint,
    package_versions,
    parse_cpuinfo,
    tensorflow_settings,
)
from tests.fakes import make_facts

COMMIT = "0123456789ab"

X86 = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480+
stepping\t: 8
cpu MHz\t\t: 2000.000
flags\t\t: fpu vme sse sse2 ssse3 fma cx16 sse4_1 sse4_2 avx f16c avx2 avx512f amx_tile hypervisor
vmx flags\t: vnmi preemption_timer
bugs\t\t: spectre_v1 spectre_v2

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480+
flags\t\t: fpu avx avx2
"""

ARM = """\
processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes crc32 atomics fphp asimdhp sve sve2 bf16
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd40

processor\t: 1
Features\t: fp asimd
"""


@pytest.mark.parametrize(
    ("text", "model", "flags"),
    [
        (
            X86,
            "Intel(R) Xeon(R) Platinum 8480+",
            ("amx_tile", "avx", "avx2", "avx512f", "fma", "sse4_1", "sse4_2"),
        ),
        (ARM, "unknown", ("asimd", "asimdhp", "sve", "sve2")),
        *((text, "unknown", ()) for text in ("", "\n\n", "no colon", ":", "flags")),
    ],
)
def test_a_processor_is_told_by_its_name_and_vector_extensions(
    text: str, model: str, flags: tuple[str, ...]
) -> None:
    assert parse_cpuinfo(text) == (model, flags)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine that does not change between two looks."""
    versions = {"python": "3.11.2", "tensorflow": "2.21.0"}
    monkeypatch.setattr(provenance, "package_versions", lambda _: dict(versions))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.5, 0.5))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return monkeypatch


def test_the_same_machine_is_the_same_block(machine: pytest.MonkeyPatch) -> None:
    before = collect(COMMIT)
    machine.setattr(os, "getloadavg", lambda: (7.5, 0.5, 0.5))
    machine.setattr(sys, "orig_argv", ["python", "-m", "experiments", "ps-sweep"])
    after = collect(COMMIT)
    assert (after.load_average, after.command) == (7.5, "python -m experiments ps-sweep")
    assert after.fingerprint == before.fingerprint


#: What of a machine is replaced by something else.
SUITE: list[tuple[object, str, object]] = [
    (provenance, "package_versions", lambda _: {"tensorflow": "2.21.1"}),
    (os, "environ", {**os.environ, "OMP_NUM_THREADS": "1"}),
    (provenance, "measured_digest", lambda: "0badcafe"),
]

MACHINE: list[tuple[object, str, object]] = [
    (os, "sched_getaffinity", lambda _: {11, 12}),
    (provenance, "read_text", lambda _: ARM),
    (platform, "node", lambda: "another-host"),
]


@pytest.mark.parametrize(
    ("owner", "name", "other", "hosts"),
    [
        *((*change, []) for change in (*SUITE, *MACHINE)),
        *((*change, [make_facts()]) for change in SUITE),  # it counts on a cluster too
    ],
)
def test_what_changes_results_opens_a_new_block(
    machine: pytest.MonkeyPatch, owner: object, name: str, other: object, hosts: list[HostFacts]
) -> None:
    before = collect(COMMIT, hosts).fingerprint
    assert collect(f"{COMMIT} with changes", hosts).fingerprint == before
    machine.setattr(owner, name, other)
    assert collect(COMMIT, hosts).fingerprint != before


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("docs/x.md", False),
        ("ps_allreduce/record/files.py", False),
        ("ps_allreduce/runner/loop.py", True),
        ("ps_allreduce/new/module.py", True),
    ],
)
def test_only_what_is_run_and_measured_counts(tmp_path: Path, name: str, counts: bool) -> None:
    shutil.copytree(provenance.ROOT / "ps_allreduce", tmp_path / "ps_allreduce")
    before = provenance.measured_digest(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("# changed\n")
    assert provenance.measured_digest(tmp_path) == before  # what runs here is what was there then
    provenance.program_sources.cache_clear()
    assert (provenance.measured_digest(tmp_path) != before) is counts


def test_hosts_of_a_kind_are_one_block_whatever_their_names(machine: pytest.MonkeyPatch) -> None:
    before = collect(COMMIT, [make_facts("n9"), make_facts("n10", cores=(4, 5, 6, 7))])
    after = collect(COMMIT, [make_facts("n2"), make_facts("n1"), make_facts("n3")])
    assert after.fingerprint == before.fingerprint


def test_of_a_cluster_its_hosts_count_and_not_the_login_node(
    machine: pytest.MonkeyPatch,
) -> None:
    before, alone = collect(COMMIT, [make_facts()]), collect(COMMIT)
    for owner, name, other in MACHINE:
        machine.setattr(owner, name, other)
    after = collect(COMMIT, [make_facts()])
    assert after.fingerprint == before.fingerprint
    assert (after.host, after.affinity) == ("another-host", (11, 12))
    assert collect(COMMIT).fingerprint != alone.fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        *({"cores": (0, 1)}, {"cpu_model": "Another"}, {"versions": {"tensorflow": "2.22"}}),
        {"congestion": "bbr"},
    ],
)
def test_another_kind_of_host_opens_a_new_block(
    machine: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    before = collect(COMMIT, [make_facts()]).fingerprint
    assert collect(COMMIT, [make_facts(**changes)]).fingerprint != before
    mixed = [make_facts(), make_facts(**changes)]
    assert collect(COMMIT, mixed).fingerprint != before
    assert collect(COMMIT, mixed).fingerprint == collect(COMMIT, mixed[::-1]).fingerprint


def test_this_machines_congestion_control_counts_only_where_tasks_use_it(
    machine: pytest.MonkeyPatch,
) -> None:
    without = collect(COMMIT).fingerprint
    machine.setattr(provenance, "default_congestion", lambda: "another")
    assert collect(COMMIT).fingerprint == without
    own = [collect(COMMIT, congestion=name).fingerprint for name in ("cubic", "bbr")]
    assert len({without, *own}) == 3


def test_a_fingerprint_is_eight_hexadecimal_digits_whatever_the_order() -> None:
    assert re.fullmatch("[0-9a-f]{8}", fingerprint({"a": 1, "b": (2,)}))
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


def test_packages_that_are_not_installed_are_left_out() -> None:
    versions = {"python": platform.python_version(), "numpy": metadata.version("numpy")}
    assert package_versions(["numpy", "no-such-package"]) == versions


def test_settings_state_what_was_not_set() -> None:
    others = {"HOME": "/", "TF_CONFIG": "{}", "TF_CPP_MIN_LOG_LEVEL": "1"}
    others |= {"TF_CLI_CONFIG_FILE": "/.terraformrc", "TF_VAR_key": "x", "TF_TOKEN_a_b": "x"}
    stated = {"TF_ENABLE_ONEDNN_OPTS": "0", "NCCL_ALGO": "Ring", "TF_GPU_ALLOCATOR": "x"}
    assert computing(stated | others) == stated
    settings = tensorflow_settings(stated | others)
    assert settings["NCCL_ALGO"] == "Ring"
    assert settings["TF_ENABLE_ONEDNN_OPTS"] == "0"
    assert settings["OMP_NUM_THREADS"] == "default"
    assert others.keys() & settings.keys() == set()


GIB = 2**30

OWN: list[dict[str, Any]] = [
    {"name": "n10"},
    {"scheduler_name": "node-10"},
    {"switch": "root.leaf3"},
    {"interfaces": (Interface(name="ib0", address="10.1.0.7", prefix_length=16),)},
    {"cores": (8, 9, 10, 11)},
    {"gpus": (Gpu(identity="GPU-8f2c", model="A100"),)},
    {"memory_bytes": 7 * GIB + 5_000_000},
]

DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"cores": (0, 1)}, "cores [0, 1, 2, 3] and [0, 1]"),
    ({"gpus": (Gpu(identity="0", model="H100"),)}, "gpus "),
    ({"gpus": ()}, "gpus "),
    ({"cpu_model": "Another"}, "cpu_model A processor and Another"),
    ({"cpu_flags": ("avx",)}, "cpu_flags ['avx', 'avx2'] and ['avx']"),
    ({"memory_bytes": 16 * GIB}, f"memory_bytes {7 * GIB} and {16 * GIB}"),
    (
        {"cpu_model": "Another", "cores": (0, 1)},
        "cpu_model A processor and Another; cores [0, 1, 2, 3] and [0, 1]",
    ),
    ({"congestion": "bbr"}, "congestion cubic and bbr"),
    ({"versions": {"kernel": "6.2"}}, "versions {'kernel': '6.1'} and {'kernel': '6.2'}"),
]

BASE: dict[str, Any] = {
    "gpus": (Gpu(identity="0", model="A100"),),
    "memory_bytes": 7 * GIB,
    "versions": {"kernel": "6.1"},
    "congestion": "cubic",
}


@pytest.mark.parametrize("own", OWN, ids=lambda own: next(iter(own)))
def test_what_is_a_hosts_own_does_not_make_it_another_kind(own: dict[str, Any]) -> None:
    kind = make_facts(**BASE).kind
    assert re.fullmatch("[0-9a-f]{8}", kind)
    assert make_facts(**(BASE | own)).kind == kind


@pytest.mark.parametrize(("change", "told"), DIFFERENT)
def test_what_changes_results_makes_another_kind(change: dict[str, Any], told: str) -> None:
    one, other = make_facts("n9", **BASE), make_facts("n10", **(BASE | change))
    assert one.kind != other.kind
    assert describe_difference(one, other).startswith(told)


def test_hosts_are_grouped_in_their_order() -> None:
    small = {"cores": (0, 1)}
    hosts = [
        *(make_facts("n10"), make_facts("n9", **small)),
        *(make_facts("n1"), make_facts("n2", **small)),
    ]
    assert list(kinds(hosts).values()) == [["n10", "n1"], ["n9", "n2"]]
