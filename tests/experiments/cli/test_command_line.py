"""The command line: mistakes are one sentence and status 2."""

from __future__ import annotations

import pytest

from tests.experiments.conftest import run

EMULATED = ("--launcher", "emulated", "--hosts", "4")

MISTAKES = [
    (["compare", "--profile", "fast"], "unknown profile 'fast'; choose one of quick, standard."),
    (["compare", "--launcher", "slrum"], "unknown launcher 'slrum'; choose one of local"),
    (["compare", "--model", "resnet"], "unknown model 'resnet'; choose one of SmallCNN, "),
    (["compare", "--layout", "mixed"], "unknown layout 'mixed'; choose one of colocated, "),
    (["compare", "--workers", "0"], "--workers takes numbers of 1 or more, for instance 1,2,4;"),
    (["compare", "--workers", "1,x"], "--workers takes numbers of 1 or more"),
    (["compare", "--workers", ""], "--workers takes numbers of 1 or more"),
    (["compare", "--workers", "-1"], "--workers takes numbers of 1 or more"),
    (["compare", "--emulate", "x"], "--emulate takes two numbers of seconds, for instance 0.02,"),
    (["compare", "--emulate", "0.1"], "--emulate takes two numbers of seconds"),
    (["compare", "--emulate", "1,2,3"], "--emulate takes two numbers of seconds"),
    (["compare", "--emulate", "0,1"], "forward_s must be at least 0.001, got 0."),
    (["compare", "--emulate", "nan,nan"], "forward_s must be at least 0.001, got nan."),
    (["compare", "--input", "nowhere"], "input 'nowhere' is neither synthetic, digits nor a fold"),
    (["compare", "--batch-per-worker", "0"], "batch_per_worker must be at least 1, got 0."),
    (["compare", "--accumulation", "-2"], "accumulation must be at least 1, got -2."),
    (["compare", "--repetitions", "0"], "repetitions must be at least 1, got 0."),
    (["compare", "--cores-per-worker", "0"], "cores_per_worker must be at least 1, got 0."),
    (["compare", "--workers", "1", "--cores-per-worker", "0"], "cores_per_worker must be at least"),
    (["compare", "--num-ps", "0"], "num_ps must be at least 1, got 0."),
    (["compare", "--num-ps", "99"], "99 parameter servers but only 4 trainable variables"),
    (["compare", "--results", "/dev/null"], "cannot write to /dev/null/compare"),
    (["ps-sweep", "--split-bytes", "0"], "split_bytes must be at least 1, got 0."),
    (["allreduce-sweep", "--num-ps", "2"], "allreduce-sweep has no parameter servers"),
    (["placement-sweep", "--num-ps", "-1"], "num_ps must be at least 1, got -1."),
    (["run-one", "--strategy", "magic"], "unknown strategy 'magic'; choose one of single, no_com"),
    (
        ["run-one", "--strategy", "ps_sync", "--placement", "random"],
        "unknown placement 'random'; choose one of round_robin, greedy,",
    ),
    (
        ["run-one", "--strategy", "allreduce", "--collective", "mpi"],
        "unknown collective 'mpi'; choose one of ring, nccl, auto.",
    ),
    (["run-one", "--strategy", "single", "--num-workers", "2"], "strategy single runs on 1 worker"),
    (["run-one", "--strategy", "allreduce", "--num-workers", "0"], "num_workers must be at least"),
    (["run-one", "--strategy", "ps_sync", "--num-ps", "0"], "needs num_ps of 1 or more"),
    (["run-one", "--strategy", "allreduce", "--num-ps", "2"], "has no parameter servers"),
    (["run-one", "--strategy", "single", "--threads-per-worker", "0"], "threads_per_worker must"),
    (
        ["run-one", "--strategy", "allreduce", "--bytes-per-pack", "-1"],
        "bytes_per_pack must be at least 0, got -1.",
    ),
    (
        ["compare", "--hosts", "4"],
        "the launcher local has no use for --hosts and what shapes links",
    ),
    (
        ["compare", "--launcher", "emulated", "--slow-host", "0"],
        "--slow-host needs --hosts, the number of hosts.",
    ),
    (["compare", "--host-file", "hosts"], "the launcher local has no use for --host-file;"),
    (["compare", "--container", "x"], "the launcher local has no use for --container; leave it"),
    (["compare", "--shared-nodes"], "the launcher local has no use for --shared-nodes; leave it"),
    (
        ["compare", "--workers-per-host", "2"],
        "--workers-per-host: the launcher local has one host; use another LAUNCHER.",
    ),
    (["compare", "--ps-per-host", "2"], "--ps-per-host: the launcher local has one host;"),
    (["run-one", "--strategy", "single", "--coordinator", "own_host"], "--coordinator: the launch"),
    (["compare", *EMULATED[:2]], "the launcher emulated needs --hosts, and --bandwidth for shaped"),
    (["compare", *EMULATED, "--coordinator", "x"], "unknown coordinator 'x'; choose one of first_"),
    (["compare", *EMULATED, "--workers-per-host", "0"], "workers_per_host must be at least 1, got"),
    (["compare", *EMULATED, "--bandwidth", "fast"], "'fast' is not a rate; a rate is a number and"),
    (["compare", *EMULATED, "--delay", "5"], "'5' is not a delay; a delay is a number and one of"),
    (["compare", *EMULATED, "--racks", "3"], "an emulated network has 1 or 2 racks, got 3."),
    (["compare", *EMULATED, "--hosts", "0"], "an emulated network has 1 to 250 hosts, got 0."),
    (["compare", *EMULATED, "--host-file", "x"], "the launcher emulated has no use for --host-fil"),
    (["compare", "--launcher", "slurm"], "the launcher slurm needs --hosts, the number of hosts"),
    (["compare", "--launcher", "ssh"], "the launcher ssh needs --host-file, a file with a host"),
    (["compare", "--group-bytes", "3"], "group_bytes must be 0 or at least 4, got 3."),
    (["ps-sweep", "--cut-bytes", "-1"], "cut_bytes must be 0 or at least 4, got -1."),
    (["compare", "--in-flight", "-1"], "in_flight must be at least 0 (no bound), got -1."),
    (["compare", "--gradients", "int8"], "unknown format of gradients 'int8'; choose one of float"),
    (["compare", "--gradients", ""], "unknown format of gradients ''; choose one of float32, floa"),
    (["compare", "--precision", "half"], "unknown precision 'half'; choose one of float32, mixed_"),
    (
        ["compare", "--emulate", "0.1,0.1", "--precision", "mixed_float16"],
        "an emulated accelerator computes in no precision: leave mixed_float16 out.",
    ),
    (["compare", "--staleness", "0"], "staleness 0 is synchronous: use strategy ps_sync."),
    (["ps-sweep", "--steps-per-dispatch", "17"], "steps_per_dispatch must be at most 16, got 17."),
    (
        ["compare", "--staleness", "1", "--steps-per-dispatch", "2"],
        "staleness 1 leaves no room for steps_per_dispatch 2: no worker could ever begin; the "
        "bound must be as large at least, and 3 for workers to overlap.",
    ),
    (
        ["allreduce-sweep", "--staleness", "2"],
        "allreduce-sweep has no strategy that deals steps: leave --staleness and --steps-per-dispa",
    ),
    (["placement-sweep", "--steps-per-dispatch", "2"], "placement-sweep has no strategy that deal"),
    (
        ["run-one", "--strategy", "ps_sync", "--staleness", "2"],
        "strategy ps_sync waits for all workers: leave staleness and steps_per_dispatch out.",
    ),
    (
        ["run-one", "--strategy", "ps_async", "--host-aggregation"],
        "strategy ps_async has nothing to add up on a host before it sends: leave host_aggregation",
    ),
    (
        ["allreduce-sweep", "--host-aggregation"],
        "no point of allreduce-sweep adds up on a host, which takes ps_sync and several workers "
        "per host: leave --host-aggregation out, or raise --workers-per-host.",
    ),
    (
        ["run-one", "--strategy", "ps_sync", "--bytes-per-pack", "0"],
        "strategy ps_sync uses no collective: leave collective and bytes_per_pack out",
    ),
    (["compare", "--bandwidth", "1gbit"], "the launcher local has no use for --bandwidth"),
    (
        ["tuning-sweep", "--workers", "1"],
        "tuning-sweep changes how workers exchange gradients: give it 2 or more",
    ),
    (
        ["run-one", "--strategy", "single", "--in-flight", "1"],
        "strategy single sends nothing: leave the settings of the wire out.",
    ),
    (
        ["run-one", "--strategy", "allreduce", "--bytes-per-pack", "0", "--in-flight", "2"],
        "in packs (bytes_per_pack, or collective nccl or auto) TensorFlow decides what is sent",
    ),
    (
        ["run-one", "--strategy", "allreduce", "--collective", "auto", "--gradients", "float16"],
        "in packs (bytes_per_pack, or collective nccl or auto) TensorFlow decides what is sent",
    ),
    (
        ["run-one", "--strategy", "ps_sync", "--collective", "ring"],
        "strategy ps_sync uses no collective: leave collective and bytes_per_pack out",
    ),
    (
        ["run-one", "--strategy", "ps_sync", "--host-aggregation"],
        "--host-aggregation adds up the gradients of workers that share a host, and here none do",
    ),
    (
        ["run-one", "--strategy", "no_communication", "--host-aggregation"],
        "strategy no_communication sends nothing: leave the settings of the wire out.",
    ),
    (["placement", "--model", "VGG17"], "unknown model 'VGG17'"),
    (["placement", "--num-ps", "0"], "placement needs at least 1 parameter server, got 0."),
    (["placement", "--split-bytes", "0"], "split_bytes must be at least 1, got 0."),
    (
        ["placement", "--model", "InceptionV3", "--image-size", "74"],
        "image_size 74 is below the minimum of InceptionV3: use 75 or more.",
    ),
    (
        ["compare", "--model", "ResNet50", "--image-size", "16"],
        "image_size 16 is below the minimum of ResNet50: use 32 or more.",
    ),
]


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(("words", "sentence"), MISTAKES, ids=[" ".join(w) for w, _ in MISTAKES])
def test_a_mistake_is_one_sentence_and_status_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["no-such-study"], ["compare", "--no-such-option"], ["compare", "--num-ps", "two"]],
)
@pytest.mark.usefixtures("launcher")
def test_a_mistyped_command_says_how_to_get_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert "Usage: python -m experiments" in err
    assert "--help" in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize("words", [["--help"], ["compare", "--help"], ["run-one", "-h"]])
def test_help_is_no_mistake(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 0
    assert "Usage: python -m experiments" in capsys.readouterr().out
