"""requirements/set_up.sh, run for real; the Python and the pip that it calls are a stand-in."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ps_allreduce.record.provenance import ROOT

# Behaves as the few calls of the script need: its version, its modules, venv and pip.  It brings
# TensorFlow's headers and cmake along, and builds Horovod with the command that the script names.
STAND_IN = """#!/bin/sh
case "$*" in
*version_info*) echo "${FAKE_VERSION:-3.11}" ;;
*ensurepip*) exit "${FAKE_ENSUREPIP_STATUS:-0}" ;;
*_base_executable*) echo "$FAKE_BASE" ;;
"-m venv "*)
    mkdir -p "$3/bin" "$3/lib/python3.11/site-packages/tensorflow/include/external"
    cp "$0" "$3/bin/python"
    printf '#!/bin/sh\necho cmake "$@"\n' >"$3/bin/cmake"
    chmod +x "$3/bin/cmake"
    ;;
"-c import horovod") exit "${FAKE_HOROVOD_STATUS:-0}" ;;
"-m ps_allreduce.environment") ;;
"-m pip "*)
    echo "$@ with configuration ${PIP_CONFIG_FILE:-of the machine}" >>"$FAKE_PIP_CALLS"
    echo "pip says why" >&2
    if [ "${HOROVOD_CMAKE:-}" ]; then
        cat "${CPLUS_INCLUDE_PATH%%:*}/tensorflow/compiler/xla/client/xla_builder.h"
        mkdir -p source/horovod/common/gloo
        echo '  assert(global_context.IsEnabled());' >source/horovod/common/gloo/gloo_context.cc
        "$HOROVOD_CMAKE" source -DX=1
        "$HOROVOD_CMAKE" --build . --config X
        exit "${FAKE_BUILD_STATUS:-0}"
    fi
    exit "${FAKE_PIP_STATUS:-0}"
    ;;
*) exit 1 ;;
esac
"""

TOOLS = [
    *("awk", "cat", "chmod", "cmp", "cp", "cut", "find", "head", "ls", "mkdir", "mktemp", "mv"),
    *("grep", "nproc", "rm", "sed", "uname"),
]

HOROVOD_LOCK = """\
# comment
cmake==3.31 \\
    --hash=sha256:1
    # via horovod
horovod==0.28.1 \\
    --hash=sha256:2
    # via this
pyyaml==6.0 \\
    --hash=sha256:3
"""


@dataclass
class Checkout:
    """A folder with the script, two lock files, and a PATH that holds no other Python."""

    folder: Path
    venv_name: str = "an environment's folder"
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "requirements").mkdir(parents=True)
        for script in ("set_up.sh", "horovod.sh"):
            shutil.copy(ROOT / "requirements" / script, self.folder / "requirements")
        (self.folder / "requirements" / "horovod.txt").write_text(HOROVOD_LOCK)
        self.write_lock("cpu", "tensorflow-cpu==2.21.0")
        self.write_lock("cuda", "tensorflow==2.21.0")
        tools = self.folder / "tools"
        tools.mkdir()
        for tool in TOOLS:
            (tools / tool).symlink_to(str(shutil.which(tool)))
        self.variables = {
            "PATH": str(tools),
            "VENV": str(self.venv),
            "FAKE_PIP_CALLS": str(self.folder / "pip-calls"),
            "FAKE_BASE": str(tools / "python3.11"),
        }

    @property
    def venv(self) -> Path:
        return self.folder / self.venv_name

    @property
    def stamp(self) -> Path:
        return self.venv / "ps-allreduce.lock"

    @property
    def pip_calls(self) -> list[str]:
        calls = self.folder / "pip-calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def write_lock(self, build: str, text: str) -> None:
        (self.folder / "requirements" / f"{build}.txt").write_text(text + "\n")

    def add_python(self, name: str = "python3.11") -> None:
        python = self.folder / "tools" / name
        python.write_text(STAND_IN)
        python.chmod(0o755)

    def add_compiler(self) -> None:
        (self.folder / "tools" / "c++").symlink_to("/bin/true")

    def run(self, verb: str = "environment", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "requirements/set_up.sh", verb],
            cwd=self.folder,
            env=self.variables | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def refusal(self, verb: str = "environment", **variables: str) -> str:
        """Run the script, which must refuse, and return the last line that it says."""
        result = self.run(verb, **variables)
        assert result.returncode == 2, result.stderr
        return result.stderr.splitlines()[-1]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout on a machine with one Python."""
    made = Checkout(tmp_path / "check out")
    made.add_python()
    return made


def test_second_call_does_nothing(checkout: Checkout) -> None:
    assert checkout.run().returncode == 0
    assert checkout.stamp.read_text() == "# cpu build, Python 3.11\ntensorflow-cpu==2.21.0\n"
    again = checkout.run()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(checkout.pip_calls) == 1


def test_finished_environment_imports_the_checkout(checkout: Checkout) -> None:
    checkout.run()
    [link] = checkout.venv.glob("lib/python3.11/site-packages/*.pth")
    assert link.read_text() == f"{checkout.folder}\n"


def test_changed_lock_makes_the_environment_again_from_nothing(checkout: Checkout) -> None:
    checkout.run()
    left_over = checkout.venv / "left-over"
    left_over.touch()
    checkout.write_lock("cpu", "tensorflow-cpu==2.21.1")
    assert checkout.run().returncode == 0
    assert "2.21.1" in checkout.stamp.read_text()
    assert not left_over.exists()


def test_build_is_remembered_until_another_is_named(checkout: Checkout) -> None:
    checkout.run(TF="cuda")
    checkout.run()
    assert checkout.stamp.read_text().startswith("# cuda build")
    checkout.run(TF="cpu")
    assert checkout.stamp.read_text().startswith("# cpu build")
    assert len(checkout.pip_calls) == 2


def test_named_python_replaces_the_one_before(checkout: Checkout) -> None:
    checkout.run()
    checkout.add_python("other")
    checkout.run(PYTHON="other", FAKE_VERSION="3.12")
    assert checkout.stamp.read_text().startswith("# cpu build, Python 3.12")


def test_changed_lock_keeps_the_python(checkout: Checkout) -> None:
    checkout.add_python("other")
    base = str(checkout.folder / "tools" / "other")
    checkout.run(PYTHON="other", FAKE_VERSION="3.12")
    checkout.write_lock("cpu", "tensorflow-cpu==2.21.1")
    (checkout.folder / "tools" / "python3.11").unlink()
    assert checkout.run(FAKE_BASE=base, FAKE_VERSION="3.12").returncode == 0


def test_environment_whose_python_is_gone_is_made_again(checkout: Checkout) -> None:
    checkout.run()
    (checkout.venv / "bin" / "python").unlink()
    assert checkout.run().returncode == 0
    assert (checkout.venv / "bin" / "python").exists()


def test_failed_install_leaves_no_stamp_and_is_repeated(checkout: Checkout) -> None:
    result = checkout.run(FAKE_PIP_STATUS="1")
    assert result.returncode == 2
    assert "pip says why" in result.stderr
    assert "run the same command again" in result.stderr
    assert not checkout.stamp.exists()
    assert checkout.run().returncode == 0
    assert checkout.stamp.exists()


def test_install_demands_hashes_and_wheels(checkout: Checkout) -> None:
    checkout.run()
    [call] = checkout.pip_calls
    assert "--require-hashes" in call
    assert "--only-binary :all:" in call
    assert "--no-index" not in call
    assert call.endswith("with configuration of the machine")


def test_cache_stands_beside_the_environment_unless_named(checkout: Checkout) -> None:
    checkout.run(FAKE_PIP_STATUS="1")
    checkout.run(PIP_CACHE_DIR="/scratch/cache")
    [first, second] = checkout.pip_calls
    assert f"--cache-dir {checkout.venv}/.pip-cache " in first
    assert "--cache-dir /scratch/cache " in second


def test_wheelhouse_is_the_only_source(checkout: Checkout) -> None:
    (checkout.folder / "wheel house").mkdir()
    assert checkout.run(WHEELHOUSE="wheel house").returncode == 0
    [call] = checkout.pip_calls
    assert "--isolated --no-index --find-links wheel house" in call
    assert call.endswith("with configuration /dev/null")


def test_filling_a_wheelhouse_makes_no_environment(checkout: Checkout) -> None:
    result = checkout.run("wheelhouse", TF="cuda")
    assert "make setup TF=cuda PYTHON=python3.11 WHEELHOUSE=" in result.stdout
    assert (checkout.folder / "wheelhouse").is_dir()
    assert not checkout.venv.exists()
    [call] = checkout.pip_calls
    assert call.startswith("-m pip download --no-cache-dir --dest wheelhouse")
    assert "requirements/cuda.txt" in call


def test_no_python(tmp_path: Path) -> None:
    sentence = Checkout(tmp_path / "bare").refusal()
    assert sentence.startswith("No Python (3.11 3.12 3.13) was found as python3.11, python3.12,")
    assert "PYTHON=/path/to/python3.11" in sentence


def test_python_that_is_only_a_shim_is_passed_over(checkout: Checkout) -> None:
    (checkout.folder / "tools" / "python3.11").unlink()
    broken = checkout.folder / "tools" / "python3.12"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    checkout.add_python("python3")
    assert checkout.run(FAKE_VERSION="3.13").returncode == 0
    assert "Python 3.13" in checkout.stamp.read_text()


def test_python_without_venv(checkout: Checkout) -> None:
    sentence = checkout.refusal(FAKE_ENSUREPIP_STATUS="1")
    assert "apt install python3-venv" in sentence
    assert checkout.run().returncode == 0


def test_folder_that_the_script_did_not_make_is_left_alone(checkout: Checkout) -> None:
    checkout.venv.mkdir()
    treasure = checkout.venv / "treasure"
    treasure.touch()
    sentence = checkout.refusal()
    assert "they are left alone" in sentence
    assert treasure.exists()


def test_place_that_is_a_file_or_where_nobody_may_write(checkout: Checkout) -> None:
    assert "cannot be written" in checkout.refusal(VENV="/proc/venv")
    checkout.venv.touch()
    assert "cannot be written" in checkout.refusal()


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            "WHEELHOUSE=nowhere",
            "WHEELHOUSE=nowhere is not a folder; make it with 'make wheel",
        ),
        ("WHEELHOUSE=wheels FAKE_PIP_STATUS=1", "'make wheelhouse TF=cpu PYTHON=python3.11'"),
        *(
            (f"ENV={kind} {python}", sentence)
            for kind in ("venv", "existing")
            for python, sentence in (
                (
                    "PYTHON=python3.11 FAKE_VERSION=3.9",
                    "PYTHON=python3.11 is Python 3.9; the",
                ),
                ("PYTHON=/no/such/python", "PYTHON=/no/such/python cannot be started;"),
            )
        ),
        ("HOROVOD=yes", "HOROVOD=yes is not known; choose one of: 0 1."),
        ("HOROVOD=1", "no C++ compiler was found; load its module, install g++ (Debian and"),
    ],
)
def test_what_cannot_be_set_up_is_one_sentence(
    checkout: Checkout, variables: str, sentence: str
) -> None:
    (checkout.folder / "wheels").mkdir()
    asked = dict(each.split("=") for each in variables.split())
    assert sentence in checkout.refusal(**asked)
    assert checkout.venv.exists() == ("FAKE_PIP_STATUS" in asked)


# ---- with Horovod


@pytest.fixture
def builder(tmp_path: Path) -> Checkout:
    """A checkout on a machine with a compiler."""
    made = Checkout(tmp_path / "checkout", venv_name="venv")
    made.add_python()
    made.add_compiler()
    return made


def test_horovod_is_built_after_what_builds_it(builder: Checkout) -> None:
    result = builder.run(HOROVOD="1")
    assert result.returncode == 0, result.stderr
    base, tools, horovod = builder.pip_calls
    assert "--requirement requirements/cpu.txt" in base
    assert "--only-binary :all: --no-deps" in base
    assert "--requirement " + str(builder.venv / ".horovod/lock.txt") in tools
    assert "--only-binary :all: --no-deps" in tools
    assert "--requirement requirements/horovod.txt" in horovod
    assert "--only-binary :all: --no-binary horovod --no-build-isolation --no-deps" in horovod
    assert "--require-hashes" in horovod
    header, configure, build = result.stdout.splitlines()
    assert header == '#include "xla/hlo/builder/xla_builder.h"'
    assert configure.startswith("cmake source -DX=1 -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O3 -DNDEBUG ")
    assert build == "cmake --build . --target tensorflow --config X"
    assert not (builder.venv / ".horovod").exists()
    changed = builder.folder / "source/horovod/common/gloo/gloo_context.cc"
    assert changed.read_text().splitlines()[1:] == ["  gloo_iface_ = global_context.gloo_iface_;"]


def test_environment_with_horovod_keeps_it_until_it_is_left_out(builder: Checkout) -> None:
    builder.run(HOROVOD="1")
    with_horovod = builder.stamp.read_text()
    first, rest = with_horovod.split("\n", 1)
    assert first == "# cpu build, Python 3.11 with Horovod"
    assert rest == f"tensorflow-cpu==2.21.0\n{HOROVOD_LOCK}"
    again = builder.run()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert builder.stamp.read_text() == with_horovod
    assert builder.run(TF="cuda").returncode == 0
    assert builder.stamp.read_text().startswith("# cuda build, Python 3.11 with Horovod\n")
    assert builder.run(HOROVOD="0").returncode == 0
    assert builder.stamp.read_text() == "# cuda build, Python 3.11\ntensorflow==2.21.0\n"


def test_failed_build_leaves_no_stamp(builder: Checkout) -> None:
    sentence = builder.refusal(HOROVOD="1", FAKE_BUILD_STATUS="1")
    assert "run the same command again" in sentence
    assert not builder.stamp.exists()


def test_horovod_in_a_folder_whose_name_its_build_would_split(checkout: Checkout) -> None:
    checkout.add_compiler()
    assert checkout.refusal(HOROVOD="1").endswith("because its path has a space or a colon.")
    assert checkout.run().returncode == 0


def test_horovod_in_an_existing_environment_is_only_looked_for(checkout: Checkout) -> None:
    given = {"ENV": "existing", "PYTHON": "python3.11", "HOROVOD": "1"}
    assert checkout.run(**given).returncode == 0
    sentence = checkout.refusal(**given, FAKE_HOROVOD_STATUS="1")
    assert sentence.startswith("HOROVOD=1: this environment has no Horovod, and ENV=existing")
    assert checkout.pip_calls == []


def test_wheelhouse_with_horovod_holds_its_source(checkout: Checkout) -> None:
    result = checkout.run("wheelhouse", HOROVOD="1")
    assert "TF=cpu PYTHON=python3.11 HOROVOD=1 WHEELHOUSE=" in result.stdout, result.stderr
    downloads = [call for call in checkout.pip_calls if "-m pip download" in call]
    assert len(downloads) == 3
    assert "--no-binary horovod" in downloads[-1]
    assert all("--require-hashes" in call for call in downloads)
