"""An exported training needs no suite, trains the same weights, and goes on where it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pytest

from analysis.planning.choice import MeasuredSetting
from analysis.stats.statistics import Estimate
from experiments.export.exported import Start, Training, task_lines
from experiments.export.training_folder import write_training
from launchers.run.launcher import HostsLauncher
from launchers.sites.emulated.emulated_site import EmulatedSite
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.models.trained import TextModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    StockAllReduce,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.variables import RunWeights
from tests.fakes import make_record
from tests.real.gate import train
from tests.real.points import OWN, launch, point

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.usefixtures("two_cores"),
    pytest.mark.timeout(600),
]

#: Steps of a brief run, and of one that is ended before.
STEPS, EARLIER = 11, 5

#: Of the distance trained.
TOLERANCE = 1e-4

TEXT = Workload(
    model=TextModel(vocabulary=100, sequence_length=16), batch_per_worker=2, accumulation=2
)

NETWORK = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)

Weights = Sequence[npt.NDArray[np.float32]]


def _point(strategy: type[AnyStrategy], workers: int = 2, **changes: Any) -> Experiment:
    settings = {"workload": OWN} | changes
    if strategy.uses_servers:
        small = settings["workload"] is OWN
        settings |= {"placement": Policy.PARTITIONED, "split_bytes": 500 if small else None}
    return point(strategy, workers, **settings)


def _export(experiment: Experiment, place: Place, data_dir: Path, target: Path) -> Path:
    """Write the training of an experiment that is said to be measured."""
    servers = experiment.strategy.servers
    plan = stack = None
    if servers is not None:
        variables = place.launcher.describe(experiment.workload)
        plan, stack = servers.plan(variables), servers.stack(variables)
    measured = MeasuredSetting(
        sweep=target,
        unit="rows",
        rate=Estimate(mean=1.0, low=None, high=None),
        launches=1,
        record=make_record(experiment=experiment),
    )
    tasks = task_lines(experiment, one_machine=place.start is Start.LOCAL)
    training = Training(
        measured=measured,
        start=place.start,
        plan=plan,
        stack=stack,
        tasks=tasks,
        data_dir=data_dir,
    )
    write_training(training, target)
    return target


def _environment() -> dict[str, str]:
    """Without the suite on Python's path."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"PYTHON": sys.executable}


def _started(*words: str) -> subprocess.Popen[str]:
    """A process that ends with this one, even if this one is killed."""
    return subprocess.Popen(
        ["setpriv", "--pdeathsig=KILL", "--", *words],
        cwd="/",
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _weights(folder: Path) -> Weights:
    with np.load(folder / f"step-{STEPS:09d}.npz", allow_pickle=False) as archive:
        return [archive[name] for name in sorted(archive.files) if name.startswith("value/")]


def _distance(one: Weights, other: Weights) -> float:
    squares = (float(np.square(a - b).sum()) for a, b in zip(one, other, strict=True))
    return float(np.sqrt(sum(squares)))


def _deviation(weights: Weights, measured: RunWeights) -> float:
    """Their distance from those of a measurement, over the way that it trained."""
    return _distance(weights, measured.final) / _distance(measured.final, measured.initial)


@pytest.fixture(scope="module")
def site() -> EmulatedSite:
    """Two emulated hosts."""
    return EmulatedSite(NETWORK)


@pytest.fixture(scope="module")
def hosts(site: EmulatedSite, own_data: Path, namespaces: None) -> Iterator[HostsLauncher]:
    with HostsLauncher(site, own_data) as launcher:
        yield launcher


@dataclass(frozen=True)
class Place:
    """Where experiments are measured and exported trainings are started."""

    launcher: HostsLauncher
    start: Start
    commands: Callable[[Path], list[tuple[str, ...]]]
    settings: Mapping[str, Any]

    def run(self, folder: Path, *words: str) -> str:
        """Train until the end; return what was printed."""
        running = [_started(*command, *words) for command in self.commands(folder)]
        output = "".join(process.communicate(timeout=300)[0] for process in running)
        assert {process.returncode for process in running} == {0}, output
        return output


PlaceOf = Callable[[str], Place]


@pytest.fixture
def place_of(request: pytest.FixtureRequest) -> PlaceOf:
    """This machine, or two emulated hosts that are there only for who asks for them."""

    def place(name: str) -> Place:
        if name == "local":
            return Place(request.getfixturevalue("launcher"), Start.LOCAL, _on_this_machine, {})
        site = request.getfixturevalue("site")
        settings = {"launcher": "emulated", "network": NETWORK, "spread": Spread()}
        hosts = request.getfixturevalue("hosts")
        return Place(hosts, Start.SSH, lambda folder: _on_hosts(folder, site), settings)

    return place


def _on_this_machine(folder: Path) -> list[tuple[str, ...]]:
    return [(str(folder / "launch.sh"),)]


def _on_hosts(folder: Path, site: EmulatedSite) -> list[tuple[str, ...]]:
    """The launch program on every host, with a core each."""
    there = site.holder.hosts
    addresses = ",".join(host.address for host in there)
    return [
        (
            *(*host.enter, "taskset", "--cpu-list", str(number)),
            *(sys.executable, str(folder / "launch.py"), "--hosts", addresses),
            *("--here", host.address, "--"),
        )
        for number, host in enumerate(there)
    ]


#: Named after what is special: where it is, the strategy, workers and settings.
POINTS: dict[str, tuple[str, type[AnyStrategy], int, Mapping[str, Any]]] = {
    "rows in a ring": ("local", AllReduce, 2, {"embeddings": Embeddings.SPARSE}),
    "servers on hosts": ("emulated", SynchronousServers, 2, {}),
    "plain TensorFlow": ("local", StockAllReduce, 2, {}),
    "alone": ("local", Single, 1, {}),
    "text in packs on hosts": (
        "emulated",
        AllReduce,
        2,
        {"workload": TEXT, "bytes_per_pack": 1_000_000},
    ),
    "rows, asynchronous": (
        "local",
        AsynchronousServers,
        1,
        {"embeddings": Embeddings.SPARSE, "table_rows": RowRule.HASH},
    ),
    "files": ("local", AllReduce, 2, {"workload": Workload(data=Digits(), batch_per_worker=4)}),
}


#: Of these, trainings that are ended and go on: each keeps other values of optimizers.
IN_PARTS = ("rows in a ring", "servers on hosts", "plain TensorFlow", "rows, asynchronous")


@pytest.mark.parametrize("name", POINTS)
def test_a_training_also_in_two_parts_makes_the_weights_of_the_measurement(
    name: str, place_of: PlaceOf, own_data: Path, tmp_path: Path
) -> None:
    where, strategy, workers, settings = POINTS[name]
    place = place_of(where)
    experiment = _point(strategy, workers, **settings, **place.settings)
    trained = train(place.launcher, experiment, tmp_path)
    folder = _export(experiment, place, own_data, tmp_path / "mine")
    words = ["--checkpoint-every", str(EARLIER), "--folder", str(tmp_path / "kept")]
    if name in IN_PARTS:
        first = place.run(folder, *words, "--steps-per-epoch", str(EARLIER))
        assert "Going on from" not in first
    last = place.run(folder, *words, "--steps-per-epoch", str(STEPS))
    assert ("Going on from" in last) is (name in IN_PARTS)
    assert _deviation(_weights(tmp_path / "kept"), trained.weights) < TOLERANCE
    if experiment.workload is OWN:
        assert "validation  " in last
        assert "kind_accuracy" in last
    assert (folder / "final.keras").exists()
    if experiment.workload is TEXT:
        _load(folder)


def _load(folder: Path) -> None:
    """Load the trained model, which has a layer of the training's own."""
    code = "import gradient_exchange.transformers, keras; keras.saving.load_model('final.keras')"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr


def _until_step(running: subprocess.Popen[str], least: int) -> None:
    assert running.stdout is not None
    lines = []
    for line in running.stdout:
        lines.append(line)
        found = re.match(r"step +(\d+)", line)
        if found and int(found[1]) >= least:
            return
    raise AssertionError("".join(lines))


ENDLESS = ("--steps-per-epoch", "1000000")


def test_a_training_that_is_asked_to_end_saves_first_and_a_lost_task_ends_all(
    place_of: PlaceOf, own_data: Path, tmp_path: Path
) -> None:
    folder = _export(_point(AllReduce), place_of("local"), own_data, tmp_path / "mine")
    running = _started(str(folder / "launch.sh"), *ENDLESS)
    _until_step(running, 2)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=120)
    assert running.returncode == 143
    (saved,) = (folder / "checkpoints").glob("step-*.npz")
    running = _started(str(folder / "launch.sh"), *ENDLESS)
    _until_step(running, int(saved.stem.partition("-")[2]) + 1)
    children = psutil.Process(running.pid).children()
    (victim,) = filter(_is_worker_1, children)
    victim.kill()
    output, _ = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "ended with status" in output
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def _is_worker_1(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        task = process.environ().get("TF_CONFIG", "")
        return '"task": {"type": "worker", "index": 1}' in task
    return False


#: On two noisy cores launches differ by a fifth: this finds gross losses only.
NEAR = 0.35

WINDOW = Measurement(warmup=FixedWarmup(least_steps=20, least_s=2.0), measured_s=4.0)


def _rate(output: str) -> float:
    """Of the longest stretches between two lines: in a short one, filling the pipeline counts."""
    lines = re.findall(r"^step +(\d+) .* ([\d.]+) images/s$", output, re.MULTILINE)
    ends, rates = np.asarray(lines, np.float64).T
    steps = np.diff(ends, prepend=0.0)
    seconds = steps / rates
    long = seconds > 0.8 * seconds.max()
    return float(steps[long].sum() / seconds[long].sum())


@pytest.mark.timed
def test_a_training_is_as_fast_as_the_measurement(
    place_of: PlaceOf,
    own_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = place_of("local")
    workload = Workload(batch_per_worker=32)
    experiment = _point(AllReduce, workload=workload, measurement=WINDOW)
    folder = _export(experiment, place, own_data, tmp_path / "mine")
    run = launch(place.launcher, experiment)
    assert run.metrics is not None, run.reason
    steps = round(12 * run.metrics.examples_per_sec / experiment.global_batch)
    ratio = _rate(place.run(folder, "--steps-per-epoch", str(steps))) / run.metrics.examples_per_sec
    with capsys.disabled():
        print(f"\nrate of training over measurement: {ratio:.3f}")
    assert abs(ratio - 1) < NEAR
