"""An exported training needs no suite, trains the same weights, and goes on where it was."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import stdtrit

from analysis.planning.choice import MeasuredSetting
from analysis.stats.statistics import Estimate
from experiments.export.folder import write_training
from experiments.export.tasks import task_lines
from experiments.export.training import Start, Training
from launchers.run.launcher import HostsLauncher
from launchers.sites.emulated.site import EmulatedSite
from ps_allreduce.point.architectures import (
    SMALL_VIT,
    ImageModel,
    OwnModel,
    TextModel,
)
from ps_allreduce.point.data import OwnDataset
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.optimizers import Adam
from ps_allreduce.point.placement import Policy, make_plan
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Single,
    SynchronousServers,
)
from ps_allreduce.point.workload import Workload
from tests.cluster import LocalLauncher
from tests.fakes import make_record
from tests.real.gate import train
from tests.real.points import launch, point

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.usefixtures("need_tensorflow", "two_cores"),
    pytest.mark.timeout(600),
]

#: Steps of a brief run, and of one that is ended before.
STEPS, EARLIER = 11, 5

#: Of the distance trained.
TOLERANCE = 1e-4

#: The user's own model of `own_training`, as a sweep would describe it.
OWN = Workload(
    model=OwnModel(
        name="own_training.py:build",
        module="own_training",
        function="build",
        arguments=("width=12",),
        digest="exported",
        has_dataset=True,
    ),
    data=OwnDataset(),
    optimizer=Adam(learning_rate=0.003, epsilon=0.01),
    batch_per_worker=4,
)

NETWORK = EmulatedNetwork(num_hosts=2, bits_per_s=200e6)

Weights = Sequence[npt.NDArray[np.float32]]


@pytest.fixture(scope="module")
def own_data(data_dir: Path) -> Path:
    """The input folder, with copies of the user's files."""
    folder = data_dir / "models" / "exported"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("own_training.py"), folder)
    return data_dir


def _point(strategy: type[AnyStrategy], workers: int = 2, **changes: Any) -> Experiment:
    placed = {"placement": Policy.PARTITIONED, "split_bytes": 500} if strategy.uses_servers else {}
    return point(strategy, workers, **({"workload": OWN} | placed | changes))


def _export(
    experiment: Experiment, start: Start, launcher: HostsLauncher, data_dir: Path, target: Path
) -> Path:
    """Write the training of an experiment that is said to be measured."""
    servers = experiment.strategy.servers
    plan = None
    if servers is not None:
        variables = launcher.describe(experiment.workload)
        plan = make_plan(servers.placement, variables, servers.num_ps, servers.split_bytes or 1)
    measured = MeasuredSetting(
        sweep=target,
        unit="rows",
        rate=Estimate(mean=1.0, low=None, high=None),
        launches=1,
        record=make_record(experiment=experiment),
    )
    tasks = task_lines(experiment, one_machine=start is Start.LOCAL)
    training = Training(measured=measured, start=start, plan=plan, tasks=tasks, data_dir=data_dir)
    write_training(training, target)
    return target


def _environment() -> dict[str, str]:
    """Without the suite on Python's path."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"PYTHON": sys.executable}


@dataclass(frozen=True)
class Ended:
    """How a training ended."""

    status: int
    output: str


def _run(folder: Path, *words: str) -> Ended:
    done = subprocess.run(
        [str(folder / "launch.sh"), *words],
        cwd="/",
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def _weights(folder: Path, step: int = STEPS) -> Weights:
    with np.load(folder / f"step-{step:09d}.npz", allow_pickle=False) as archive:
        return [archive[name] for name in sorted(archive.files) if name.startswith("value/")]


def _distance(one: Weights, other: Weights) -> float:
    squares = (float(np.square(a - b).sum()) for a, b in zip(one, other, strict=True))
    return float(np.sqrt(sum(squares)))


def _deviation(weights: Weights, others: Weights, earlier: Weights) -> float:
    """Their distance, over what the steps after some earlier weights have changed."""
    return _distance(weights, others) / _distance(weights, earlier)


#: Named after what is special.
POINTS: dict[str, Callable[[], Experiment]] = {
    "all-reduce": lambda: _point(AllReduce),
    "servers": lambda: _point(SynchronousServers),
    "packs": lambda: _point(AllReduce, bytes_per_pack=1000),
    "asynchronous": lambda: _point(AsynchronousServers, 1),
    "aggregated": lambda: _point(SynchronousServers, host_aggregation=True),
    "alone": lambda: _point(Single, 1),
    "random text": lambda: _point(
        AllReduce,
        workload=Workload(
            model=TextModel(vocabulary=100, sequence_length=16), batch_per_worker=2, accumulation=2
        ),
    ),
    "random images": lambda: _point(
        SynchronousServers,
        workload=Workload(model=ImageModel(name=SMALL_VIT, image_size=16), batch_per_worker=2),
    ),
}


@pytest.mark.parametrize("name", POINTS)
def test_a_training_makes_the_weights_of_the_measurement_also_in_two_parts(
    name: str, launcher: LocalLauncher, own_data: Path, tmp_path: Path
) -> None:
    experiment = POINTS[name]()
    trained = train(launcher, experiment, tmp_path)
    folder = _export(experiment, Start.LOCAL, launcher, own_data, tmp_path / "mine")
    whole = _run(folder, "--steps-per-epoch", str(STEPS), "--folder", str(tmp_path / "whole"))
    assert whole.status == 0, whole.output
    words = ["--checkpoint-every", str(EARLIER), "--folder", str(tmp_path / "parts")]
    _run(folder, *words, "--steps-per-epoch", str(EARLIER))
    earlier = _weights(tmp_path / "parts", EARLIER)
    parts = _run(folder, *words, "--steps-per-epoch", str(STEPS))
    assert "Going on from" in parts.output
    assert _deviation(_weights(tmp_path / "whole"), trained.weights.final, earlier) < TOLERANCE
    in_parts = _weights(tmp_path / "parts")
    assert _deviation(in_parts, _weights(tmp_path / "whole"), earlier) < TOLERANCE
    if experiment.workload is OWN:
        assert "validation  " in whole.output
        assert "kind_accuracy" in whole.output
    assert (folder / "final.keras").exists()
    if name == "random text":
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


@pytest.fixture(scope="module")
def site() -> EmulatedSite:
    """Two emulated hosts."""
    return EmulatedSite(NETWORK)


@pytest.fixture(scope="module")
def hosts(site: EmulatedSite, own_data: Path, namespaces: None) -> Iterator[HostsLauncher]:
    """Their launcher."""
    with HostsLauncher(site, own_data) as launcher:
        yield launcher


def _run_on_hosts(folder: Path, site: EmulatedSite, *words: str) -> list[Ended]:
    """Start the launch program on every host, with a core each."""
    there = site.holder.hosts
    addresses = ",".join(host.address for host in there)
    running = [
        subprocess.Popen(
            [
                *(*host.enter, "taskset", "--cpu-list", str(number)),
                *(sys.executable, str(folder / "launch.py"), "--hosts", addresses),
                *("--here", host.address, "--", *words),
            ],
            cwd="/",
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, host in enumerate(there)
    ]
    said = [process.communicate(timeout=300)[0] for process in running]
    return [Ended(p.returncode, text) for p, text in zip(running, said, strict=True)]


def _on_hosts(strategy: type[AnyStrategy], **changes: Any) -> Experiment:
    return _point(strategy, launcher="emulated", network=NETWORK, spread=Spread(), **changes)


@pytest.mark.parametrize("strategy", [AllReduce, SynchronousServers])
def test_a_training_on_two_hosts_makes_the_weights_of_the_measurement(
    strategy: type[AnyStrategy],
    hosts: HostsLauncher,
    site: EmulatedSite,
    own_data: Path,
    tmp_path: Path,
) -> None:
    experiment = _on_hosts(strategy)
    trained = train(hosts, experiment, tmp_path)
    folder = _export(experiment, Start.SSH, hosts, own_data, tmp_path / "mine")
    words = ["--folder", str(tmp_path / "made"), "--steps-per-epoch"]
    ended = _run_on_hosts(folder, site, *words, str(EARLIER))
    assert [each.status for each in ended] == [0, 0], ended
    earlier = _weights(tmp_path / "made", EARLIER)
    _run_on_hosts(folder, site, *words, str(STEPS))
    assert _deviation(_weights(tmp_path / "made"), trained.weights.final, earlier) < TOLERANCE


def _started(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(folder / "launch.sh"), *words],
        cwd="/",
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _until_step(running: subprocess.Popen[str], least: int) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        found = re.match(r"step +(\d+)", line)
        if found and int(found[1]) >= least:
            return
    raise AssertionError("it ended before")


ENDLESS = ("--steps-per-epoch", "1000000")


@pytest.mark.parametrize("strategy", [AllReduce, SynchronousServers])
def test_a_training_that_is_asked_to_end_saves_first_and_a_lost_task_ends_all(
    strategy: type[AnyStrategy], launcher: LocalLauncher, own_data: Path, tmp_path: Path
) -> None:
    folder = _export(_point(strategy), Start.LOCAL, launcher, own_data, tmp_path / "mine")
    running = _started(folder, *ENDLESS)
    _until_step(running, 2)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=120)
    assert running.returncode == 143
    (saved,) = (folder / "checkpoints").glob("step-*.npz")
    running = _started(folder, *ENDLESS)
    _until_step(running, int(saved.stem.partition("-")[2]) + 1)
    children = subprocess.run(
        ["pgrep", "--parent", str(running.pid)], capture_output=True, text=True, check=True
    )
    victims = [pid for pid in map(int, children.stdout.split()) if _is_worker_1(pid)]
    os.kill(victims[0], signal.SIGKILL)
    output, _ = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "ended with status" in output
    assert not any(Path(f"/proc/{pid}").exists() for pid in map(int, children.stdout.split()))


def _is_worker_1(pid: int) -> bool:
    environment = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")
    return '"task": {"type": "worker", "index": 1}' in environment


#: Pairs of launches, and how near the rates have to be.
PAIRS, NEAR = 4, 0.05

WINDOW = Measurement(warmup=FixedWarmup(least_steps=20, least_s=2.0), measured_s=5.0)


def _rate(output: str) -> float:
    """Of all steps but the first, slow ones."""
    lines = re.findall(r"^step +(\d+) .* ([\d.]+) images/s$", output, re.MULTILINE)
    ends, rates = np.asarray(lines, np.float64).T
    steps = np.diff(ends, prepend=0.0)
    warm = ends > ends[-1] / 4
    return float(steps[warm].sum() / (steps[warm] / rates[warm]).sum())


@pytest.mark.timed
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("strategy", [AllReduce, SynchronousServers])
@pytest.mark.parametrize("where", ["local", "emulated"])
def test_a_training_is_as_fast_as_the_measurement(
    strategy: type[AnyStrategy],
    where: str,
    site: EmulatedSite,
    request: pytest.FixtureRequest,
    own_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    is_local = where == "local"
    launcher: HostsLauncher = request.getfixturevalue("launcher" if is_local else "hosts")
    make, start = (_point, Start.LOCAL) if is_local else (_on_hosts, Start.SSH)
    workload = Workload(batch_per_worker=32)
    experiment = make(strategy, workload=workload, measurement=WINDOW, split_bytes=None)
    folder = _export(experiment, start, launcher, own_data, tmp_path / "mine")
    ratios = []
    for _ in range(PAIRS):
        run = launch(launcher, experiment)
        assert run.metrics is not None, run.reason
        steps = round(12 * run.metrics.examples_per_sec / experiment.global_batch)
        words = ["--steps-per-epoch", str(steps), "--folder", str(tmp_path / f"{time.time()}")]
        if is_local:
            output = _run(folder, *words).output
        else:
            output = "".join(each.output for each in _run_on_hosts(folder, site, *words))
        ratios.append(np.log(_rate(output) / run.metrics.examples_per_sec))
    mean, half = np.mean(ratios), np.std(ratios, ddof=1) / PAIRS**0.5 * stdtrit(PAIRS - 1, 0.975)
    low, middle, high = np.exp([mean - half, mean, mean + half])
    with capsys.disabled():
        shown = ", ".join(f"{ratio:.3f}" for ratio in np.exp(ratios))
        print(f"\n{strategy.kind} {where}: {middle:.3f} [{low:.3f}, {high:.3f}] of {shown}")
    assert low <= 1 + NEAR
    assert high >= 1 - NEAR
    assert abs(middle - 1) < 0.2
