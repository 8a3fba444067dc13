"""Launchers for real runs, and what runs are compared with."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from launchers.run.launcher import HostsLauncher
from launchers.sites.emulated.held_network import hold_network
from ps_allreduce.errors import SuiteError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.workload import Workload
from tests.cluster import LocalLauncher
from tests.conftest import skip_or_fail
from tests.real.gate import Compare, Patched, Trained, difference, single_for, train

PATCHED = Path(__file__).with_name("patched_fork_server.py")


def patched_words(patch: Path) -> tuple[str, ...]:
    """A fork server whose tasks are changed by the patch that a file names.

    Its host was granted two GPUs.
    """
    return ("env", "CUDA_VISIBLE_DEVICES=0,1", sys.executable, str(PATCHED), str(patch))


@pytest.fixture(autouse=True)
def tensorflow_where_marked(request: pytest.FixtureRequest) -> None:
    """TensorFlow is installed, where a test is marked so."""
    is_needed = request.node.get_closest_marker("tensorflow") is not None
    if is_needed and importlib.util.find_spec("tensorflow") is None:
        skip_or_fail("TensorFlow is not installed")


@pytest.fixture(scope="session")
def namespaces() -> None:
    """This machine lets us make namespaces."""
    try:
        with hold_network(EmulatedNetwork(num_hosts=1, bits_per_s=1e9), ["probe"]):
            pass
    except SuiteError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="session")
def launcher(data_dir: Path) -> Iterator[LocalLauncher]:
    """The local launcher with digits at hand."""
    with LocalLauncher(data_dir) as local:
        local.prepare(Workload(data=Digits()))
        yield local


@pytest.fixture(scope="session")
def patched_launcher(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patched]:
    """A local launcher whose tasks are changed by the patch that was last asked for."""
    patch = tmp_path_factory.mktemp("patched") / "patch"
    with LocalLauncher(data_dir, fork_server=patched_words(patch)) as local:

        def make(name: str) -> LocalLauncher:
            patch.write_text(name)
            return local

        yield make


@pytest.fixture(scope="session")
def single_run(
    launcher: LocalLauncher, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Experiment], Trained]:
    """Trains a single worker, each point once."""
    return cache(lambda experiment: train(launcher, experiment, tmp_path_factory.mktemp("single")))


@pytest.fixture(scope="module")
def own_data(data_dir: Path) -> Path:
    """The input folder, with copies of the user's files."""
    folder = data_dir / "models" / "exported"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("own_training.py"), folder)
    return data_dir


@pytest.fixture
def difference_from_single(single_run: Callable[[Experiment], Trained], tmp_path: Path) -> Compare:
    """How far an experiment on a launcher is from the single worker that it must agree with."""

    def compare(launcher: HostsLauncher, experiment: Experiment) -> float:
        trained = train(launcher, experiment, tmp_path)
        return difference(trained, single_run(single_for(experiment)))

    return compare
