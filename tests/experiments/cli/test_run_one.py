"""A single run from the command line: what is run, and how it ends as a status and a line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cli.run_one import one_line
from ps_allreduce.point.inputs.data import RecordFiles
from ps_allreduce.point.models.trained import TextModel
from ps_allreduce.point.placement import Shard, VariableSpec, default_split_bytes
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers
from ps_allreduce.point.wire import Collective, Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload
from ps_allreduce.record.files import load_record
from ps_allreduce.record.records import Phases, Status
from ps_allreduce.record.variables import PlacementUsed
from tests.experiments.conftest import run
from tests.experiments.sweeps import Killed, kill
from tests.fakes import FakeLauncher, bad_run, make_experiment, make_record
from tests.goldens import golden

WIRE_WORDS = (
    *("--group-bytes", "0", "--cut-bytes", "2000", "--in-flight", "1", "--gradients", "bfloat16"),
)

WIRE = Wire(group_bytes=0, cut_bytes=2000, in_flight=1, gradients=WireType.BFLOAT16)

DEALING_WORDS = ("--staleness", "4", "--steps-per-dispatch", "2")


def test_settings_reach_a_single_run(launcher: FakeLauncher) -> None:
    words = [*WIRE_WORDS, *DEALING_WORDS, "--precision", "mixed_float16"]
    assert run("run-one", "--strategy", "ps_async", *words) == 0
    (point,) = launcher.launched
    assert point.strategy == AsynchronousServers(wire=WIRE, staleness=4, steps_per_dispatch=2)
    assert point.workload.precision is Precision.MIXED_FLOAT16
    assert point.resources.device is Device.CPU


@pytest.mark.parametrize(("size", "num_bytes"), [("4MB", 4_000_000), ("500000", 500_000)])
def test_sizes_have_units_or_none(launcher: FakeLauncher, size: str, num_bytes: int) -> None:
    words = ("--strategy", "ps_sync", "--placement", "partitioned", "--split-bytes", size)
    assert run("run-one", *words) == 0
    servers = launcher.launched[0].strategy.servers
    assert servers is not None
    assert servers.split_bytes == num_bytes


def test_tables_do_not_decide_where_other_variables_are_cut(launcher: FakeLauncher) -> None:
    table, dense = (
        VariableSpec(name=name, shape=(rows, 8), dtype="float32", trainable=True, is_table=is_table)
        for name, rows, is_table in (("table", 99_999, True), ("dense", 1000, False))
    )
    launcher.variables = (table, dense)
    words = ("--placement", "partitioned", "--num-ps", "4", "--model", "SmallTwoTower")
    assert run("run-one", "--strategy", "ps_sync", "--embeddings", "sparse", *words) == 0
    servers = launcher.launched[0].strategy.servers
    assert servers is not None
    assert servers.split_bytes is not None
    assert servers.split_bytes < dense.num_bytes / 4 < default_split_bytes([table, dense], 4)


@pytest.mark.parametrize("words", [("--bytes-per-pack", "0"), ("--collective", "auto")])
def test_packs_are_used_where_they_are_asked_for_or_needed(
    words: tuple[str, str], launcher: FakeLauncher
) -> None:
    assert run("run-one", "--strategy", "allreduce") == 0
    assert run("run-one", "--strategy", "allreduce", *words) == 0
    strategies = [point.strategy for point in launcher.launched]
    packs = [each.packed_bytes for each in strategies if isinstance(each, AllReduce)]
    assert packs == [None, 0]


def test_a_folder_of_images_is_found_from_every_working_directory(
    launcher: FakeLauncher, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.tfrecord").write_bytes(b"images")
    assert run("run-one", "--strategy", "single", "--input", "images") == 0
    data = launcher.launched[0].workload.data
    assert isinstance(data, RecordFiles)
    assert data.path == str((tmp_path / "images").resolve())


def test_replaced_images_are_another_experiment(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").mkdir()
    for content in (b"some", b"some", b"other"):
        (tmp_path / "images" / "a.tfrecord").write_bytes(content)
        assert run("run-one", "--strategy", "single", "--input", "images") == 0
    lines = capsys.readouterr().out.splitlines()
    runs = [json.loads(line)["run_id"].split("/") for line in lines]
    assert [number for _, number in runs] == ["0-0", "1-0", "0-0"]


def test_one_run_prints_one_line_and_is_made_again_every_time(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for _ in range(2):
        assert run("run-one", "--strategy", "ps_sync", "--num-ps", "2", "--num-workers", "2") == 0
        out, err = capsys.readouterr()
        assert out.count("\n") == 1
        assert "1/1 ps_sync" in err
        runs.append(json.loads(out))
    assert [content["run_id"].split("/")[1] for content in runs] == ["0-0", "1-0"]
    record = load_record(tmp_path / runs[1]["record_path"])
    assert record.run_id == runs[1]["run_id"]
    assert record.experiment.num_ps == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.FAILED, 1),
        (Status.TIMED_OUT, 1),
        (Status.INVALID, 1),
        (Status.INTERRUPTED, 130),
    ],
)
def test_one_run_that_fails_is_a_line_and_a_status(
    launcher: FakeLauncher,
    capsys: pytest.CaptureFixture[str],
    status: Status,
    expected: int,
) -> None:
    launcher.script = [bad_run(status, "too slow")]
    assert run("run-one", "--strategy", "single") == expected
    content = json.loads(capsys.readouterr().out)
    assert (content["status"], content["reason"]) == (str(status), "too slow")


def test_nccl_is_for_gpus(launcher: FakeLauncher) -> None:
    words = ("run-one", "--strategy", "allreduce", "--num-workers", "2", "--collective", "nccl")
    assert run(*words, "--device", "gpu") == 0
    (point,) = launcher.launched
    assert isinstance(point.strategy, AllReduce)
    assert point.strategy.collective is Collective.NCCL


def test_a_run_that_was_killed_is_told_of_by_the_next_command(
    launcher: FakeLauncher, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.on_launch = kill
    with pytest.raises(Killed):
        run("run-one", "--strategy", "single")
    launcher.on_launch = lambda _: None
    assert run("run-one", "--strategy", "single") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["run_id"].endswith("/1-0")
    assert err.startswith("recorded ")
    assert "/0-0: interrupted, the suite ended during this run" in err


@pytest.mark.parametrize("place", ["missing/weights.npz", "folder", "loop", "x" * 300, "dead"])
def test_weights_that_could_not_be_written_are_refused_before_the_run(
    launcher: FakeLauncher, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dead").symlink_to("missing/weights.npz")
    assert run("run-one", "--strategy", "single", "--weights", place) == 2
    assert f"--weights {place}" in capsys.readouterr().err
    assert launcher.launched == []
    assert not (tmp_path / "results").exists()


PHASES = Phases(bring_up_s=0.5, measured_s=3.0)
UNEVEN = PlacementUsed(
    shards=(Shard(variable=0, server=0, num_bytes=8),),
    variables=("v",),
    bytes_per_server=(8, 0),
    max_over_mean=2.0,
)
TEXT = Workload(model=TextModel(sequence_length=10))
COMPUTED = Workload(emulated=EmulatedCompute(forward_s=0.1, backward_s=0.1))
BUSY = replace(make_record().provenance, load_average=99.0)

RECORDS = {
    "a run that went well": make_record(phases=PHASES, placement=UNEVEN),
    "text": make_record(experiment=make_experiment(AllReduce, workload=TEXT)),
    "no servers, emulated compute": make_record(
        experiment=make_experiment(AllReduce, workload=COMPUTED)
    ),
    "a busy machine and another doubt": make_record(
        provenance=BUSY, warnings=("clocks were throttled",)
    ),
    "a failed run": make_record(
        status=Status.FAILED, reason="ps:0 was killed by SIGKILL", metrics=None
    ),
}


def test_a_run_is_one_flat_line_with_the_same_keys_however_it_ended() -> None:
    lines = {title: one_line(made, Path("results/run-one")) for title, made in RECORDS.items()}
    assert len({tuple(sorted(line)) for line in lines.values()}) == 1
    assert not any(isinstance(value, dict) for line in lines.values() for value in line.values())
    told = [f"# {title}\n{json.dumps(line, indent=1)}\n" for title, line in lines.items()]
    golden.check({"sentences/one_line.txt": "\n".join(told)})
