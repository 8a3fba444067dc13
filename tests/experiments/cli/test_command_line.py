"""The command line: mistakes are one sentence and status 2."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from experiments import surroundings
from experiments.__main__ import cli
from launchers.cli.options import RareOption
from tests.experiments.conftest import run

#: What an option cannot mean: click says which option it is, and how to get help.
MISTYPED = {
    "no-such-study": "No such command 'no-such-study'.",
    "compare --no-such-option": "No such option",
    "compare --num-ps two": "'--num-ps': 'two' is no whole number of up to 18 digits; write",
    "compare --repetitions \u0663": "is no whole number",
    "compare --repetitions 1_000": "is no whole number",
    "compare --repetitions ' 1'": "is no whole number",
    "compare --seed 9999999999999999999": "is no whole number of up to 18 digits",
    "placement --num-ps \uff14": "is no whole number",
    "emulation-check --hosts \uff12": "is no whole number",
    "compare --emulate \u0663,\u0663": "is not two numbers of seconds",
    "compare --emulate 1_0,1": "is not two numbers of seconds",
    "compare --emulate -1,0.1": "'--emulate': passes of an emulated accelerator take 0.001 to",
    "compare --interface ''": "'' is neither the name of an interface nor a subnet; write",
    "compare --interface 10.0.0.0/99": "is neither the name of an interface nor a subnet",
    "compare --device tpu": "'tpu' is not one of cpu, gpu.",
    "compare --profile fast": "'fast' is not one of quick, standard.",
    "compare --layout mixed": "'mixed' is not one of colocated, dedicated, ps_hosts.",
    "compare --workers 0": "'0' is no list of whole numbers from 1 on; write for instance 1,2,4.",
    "compare --workers 1,x": "'1,x' is no list of whole numbers from 1 on",
    "compare --workers ''": "'' is no list of whole numbers from 1 on",
    "compare --workers \u0661": "is no list of whole numbers from 1 on",
    "compare --workers -1": "'-1' is no list of whole numbers from 1 on",
    "compare --emulate x": "'x' is not two numbers of seconds; write for instance 0.02,0.04.",
    "compare --emulate 0.1": "'0.1' is not two numbers of seconds",
    "compare --emulate 1,2,3": "'1,2,3' is not two numbers of seconds",
    "compare --emulate 0,1": "passes of an emulated accelerator take 0.001 to 3600 s each, got 0.",
    "compare --worker-factors 1.5": "'1.5' is no list of workers with a factor each;",
    "compare --worker-factors 0:2,1:2,1:3": "'0:2,1:2,1:3' names worker 1 twice.",
    "compare --jitter 0.1": "'0.1' is no jitter; write one of lognormal, gamma and its coefficient",
    "compare --jitter normal:0.1": "'normal:0.1' is no jitter; write one of lognormal, gamma and",
    "compare --jitter gamma:0.7:2": "is above 0 and at most 0.5, got 0.7.",
    "compare --input nowhere": (
        "'nowhere' is neither synthetic, digits nor a folder of TFRecord files"
    ),
    "compare --input images:nowhere": "'images:nowhere': 'nowhere' is no folder; write images:",
    "compare --input ''": "'' is neither synthetic, digits nor a folder of TFRecord files",
    "compare --results --dry-run": "'--dry-run' looks like an option; write ./--dry-run if it is",
    "compare --results ''": "an empty text names no file or folder.",
    "run-one --strategy single --weights ''": "an empty text names no file or folder.",
    "compare --launcher emulated --hosts 4 --delay ''": "'' is not a delay;",
    "run-one --strategy magic": (
        "'magic' is not one of single, no_communication, ps_async, ps_sync, "
    ),
    "run-one --strategy ps_sync --placement random": "'random' is not one of round_robin, greedy,",
    "run-one --strategy allreduce --collective mpi": "'mpi' is not one of ring, nccl, auto.",
    "compare --launcher emulated --hosts 4 --coordinator x": (
        "'x' is not one of first_worker, first_server, own_host."
    ),
    "compare --launcher emulated --hosts 4 --bandwidth fast": (
        "'fast' is not a rate; a rate is a number and"
    ),
    "compare --launcher emulated --hosts 4 --delay 5": (
        "'5' is not a delay; a delay is a number and one of"
    ),
    "ps-sweep --cut-bytes -1": "'-1' is no size; write bytes,",
    "compare --gradients int8": "'int8' is not one of float32, float16, bfloat16.",
    "compare --precision half": "'half' is not one of float32, mixed_float16, mixed_bfloat16.",
}

#: What makes no sense together, or here.
MISTAKES = {
    "compare --worker-factors 1:1.5": (
        "--worker-factors is about an emulated accelerator: state --emulate."
    ),
    "compare --jitter gamma:0.1": "--jitter is about an emulated accelerator: state --emulate.",
    "compare --emulate 0.02,0.04 --worker-factors 0:0.01": (
        "passes of an emulated accelerator take 0.001 to 3600 s each, got 0.0002 times the factor "
        "of worker:0."
    ),
    "compare --workers 2 --emulate 0.02,0.04 --worker-factors 2:1.5": (
        "--worker-factors names worker 2, and there are at most 2, counted from 0: leave it out"
    ),
    "run-one --strategy single --emulate 0.02,0.04 --worker-factors 1:2": (
        "--worker-factors names worker 1, and there are at most 1, counted from 0: leave it out"
    ),
    "compare --device gpu --emulate 0.02,0.04": (
        "--emulate stands in for an accelerator: leave --device gpu out."
    ),
    "compare --model resnet": "unknown model 'resnet': choose for instance SmallCNN, ",
    "compare --batch-per-worker 0": "batch_per_worker must be at least 1, got 0.",
    "compare --workers 3 --scaling strong": "3 workers share a batch of 32, which is no multiple",
    "gate --scaling strong": "every worker of the gate has a batch of its own: leave --scaling",
    "compare --warmup-steps 0": "warmup_steps must be at least 1, got 0.",
    "compare --warmup-s -1": "warmup_s must be at least 0, got -1.",
    "compare --workers 1,65536": "Error: workers must be at most 65535, got 65536.",
    "compare --repetitions 0": "repetitions must be at least 1, got 0.",
    "compare --repetitions 100000": "repetitions must be at most 1000, got 100000.",
    "compare --num-ps 65536": "num_ps must be 1 to 65535, got 65536.",
    "run-one --strategy single --threads-per-worker 99999": "threads_per_worker must be at most",
    f"run-one --strategy single --results {'x' * 300}": "File name too long.",
    "bench --results /dev/null": "cannot write to /dev/null/bench/recording: /dev/null is no",
    "accept-gpu --results /dev/null": "cannot write to /dev/null/accept-gpu: /dev/null is no",
    "compare --cores-per-worker 0": "cores_per_worker must be at least 1, got 0.",
    "compare --num-ps 0": "num_ps must be 1 to 65535, got 0.",
    "compare --num-ps 99": "99 parameter servers but only 4 trainable variables",
    "compare --results /dev/null": "cannot write to /dev/null/compare",
    "ps-sweep --split-bytes 0": "split_bytes must be at least 1, got 0.",
    "run-one --strategy ps_sync --num-ps 99": "99 parameter servers but only 4 trainable variables",
    "ps-sweep --num-ps 59999": "59999 parameter servers but only",
    "compare --launcher emulated --hosts 2 --device gpu": "emulated hosts have no GPUs; use the",
    "convert class-folders nowhere out": "nowhere is no folder: give the one that the data set was",
    "convert class-folders . out": "which is read: choose a folder elsewhere.",
    "convert class-folders . /dev/null": "cannot write to /dev/null: /dev/null is no folder.",
    "allreduce-sweep --num-ps 2": "no point of allreduce-sweep uses --num-ps: leave it out.",
    "run-one --strategy single --num-workers 2": "strategy single runs on 1 worker",
    "run-one --strategy allreduce --num-workers 0": "num_workers must be at least",
    "run-one --strategy allreduce --num-ps 2": (
        "strategy allreduce has no setting num_ps: leave it out (--num-ps). Its settings: bytes_"
    ),
    "run-one --strategy single --threads-per-worker 0": "threads_per_worker must",
    "compare --hosts 4": "the launcher local has no use for --hosts; leave it out.",
    "compare --workers-per-host 2": (
        "--workers-per-host: the launcher local has one host; use another LAUNCHER."
    ),
    "compare --launcher emulated": (
        "the launcher emulated needs --hosts, and --bandwidth for links"
    ),
    "compare --launcher slurm": "the launcher slurm needs --hosts, the number of hosts",
    "compare --launcher ssh": "the launcher ssh needs --host-file, a file with a host",
    "compare --in-flight -1": "in_flight must be at least 0 (no bound), got -1.",
    "compare --staleness 1 --steps-per-dispatch 2": (
        "staleness 1 leaves no room for steps_per_dispatch 2: no worker could ever begin. Use a "
        "staleness of 2 or more, and of 3 for workers to overlap."
    ),
    "allreduce-sweep --staleness 2": "no point of allreduce-sweep uses --staleness: leave it out.",
    "allreduce-sweep --host-aggregation": (
        "no point of allreduce-sweep uses --host-aggregation; it adds up the gradients of workers"
        " that share a host: raise --workers-per-host, or leave it out."
    ),
    "tuning-sweep --workers 1": (
        "tuning-sweep changes how workers exchange gradients: give it 2 or more"
    ),
    "run-one --strategy single --in-flight 1": (
        "strategy single has no setting in_flight: leave it out (--in-flight). Its settings: "
        "embeddings."
    ),
    "run-one --strategy allreduce --bytes-per-pack 0 --in-flight 2": (
        "in packs (bytes_per_pack, or collective nccl or auto) TensorFlow decides what is sent"
    ),
    "run-one --strategy ps_sync --split-bytes 4MB": (
        "only the placement partitioned uses --split-bytes: leave it out, or state --placement"
    ),
    "run-one --strategy ps_sync --host-aggregation": (
        "--host-aggregation adds up the gradients of workers that share a host, and here none do"
    ),
    "placement --model VGG17": "unknown model 'VGG17'",
    "placement --model BERT-base --image-size 64": "model BERT-base takes no images: leave",
    "compare --model GPT-2-small": "model GPT-2-small computes nothing: state an emulated",
    "compare --model SmallGPT --num-classes 9": "model SmallGPT takes no images: leave",
    "compare --model SmallGPT --input digits": "model SmallGPT takes no images: use input",
    "placement --num-ps 0": "num_ps must be 1 to 65535, got 0.",
    "compare --model ''": "unknown model '': choose for instance SmallCNN, ",
    "run-one --strategy single --model ''": "unknown model '': choose for instance SmallCNN, ",
    "emulation-check --launcher ssh --host-file x": (
        "emulation-check is for the launcher emulated, and this is ssh."
    ),
    "emulation-check --hosts 2 --bandwidth 1gbit --repetitions 0": "repetitions must be at least 1",
    "placement --model InceptionV3 --image-size 74": (
        "image_size 74 is below the minimum of InceptionV3: use 75 or more."
    ),
    "compare --host-aggregation --workers 1": (
        "no point of compare uses --host-aggregation; it adds up"
    ),
}


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(("words", "sentence"), MISTAKES.items())
def test_a_mistake_is_one_sentence_and_status_2(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*shlex.split(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("compare --input images", "a.tfrecord is no file but a folder, a pipe or a device."),
        ("compare --input " + "x" * 300, "is neither synthetic, digits nor a folder"),
        ("compare --launcher ssh --host-file images/a.tfrecord", "is no file but a folder, a pipe"),
        ("compare --launcher ssh --host-file /dev/zero", "zero is no file but a folder, a pipe or"),
    ],
)
def test_nobody_waits_for_a_pipe_or_a_device(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("images").mkdir()
    os.mkfifo("images/a.tfrecord")
    assert run(*words.split()) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.usefixtures("launcher")
def test_numbers_are_checked_before_a_model_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(surroundings, "this_machine")
    assert run("placement", "--num-ps", "0") == 2
    assert run("placement", "--split-bytes", "0") == 2


@pytest.mark.parametrize(("words", "sentence"), MISTYPED.items())
@pytest.mark.usefixtures("launcher")
def test_a_mistyped_command_says_how_to_get_help(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*shlex.split(words)) == 2
    usage, *_, error = capsys.readouterr().err.splitlines()
    assert usage.startswith("Usage: python -m experiments")
    assert error.startswith("Error: ")
    assert any(word in error for word in shlex.split(words))
    assert sentence in error


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize(
    "text",
    [
        "--profile [quick|standard]",
        "--precision [float32|mixed_float16|mixed_bfloat16]",
        "--layout [colocated|dedicated|ps_hosts]",
        "--launcher [auto|local|emulated|slurm|ssh]",
        "so many bytes; 0: never. [default: 500kB]",
        "larger variables. [default: 4MB, less for small models]",
    ],
)
def test_help_shows_choices_and_defaults(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", "--help-all") == 0
    assert text in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize("command", ["compare", "run-one", "gate", "bench", "tune"])
def test_help_shows_some_two_dozen_options_and_says_how_many_more_there_are(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(word: str) -> tuple[list[str], str]:
        assert run(command, word) == 0
        text = capsys.readouterr().out
        return re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE), text

    usual, brief = shown("--help")
    every, whole = shown("--help-all")
    assert len(usual) <= 32
    assert {"--launcher", "--results", "--help-all", "--help"} < set(usual) < set(every)
    assert f"{len(every) - len(usual)} further options: --help-all shows them." in brief
    assert "further options" not in whole


def test_the_help_of_compare_has_what_most_calls_state() -> None:
    rare = [each for each in cli.commands["compare"].params if isinstance(each, RareOption)]
    names = {each.name for each in cli.commands["compare"].params} - {each.name for each in rare}
    assert {"model", "num_ps", "hosts", "bandwidth", "dry_run", "emulate", "workers"} < names
    assert len(names) <= 26


@pytest.mark.usefixtures("launcher")
@pytest.mark.parametrize("words", [["--help"], ["compare", "--help"], ["run-one", "-h"]])
def test_help_is_no_mistake(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 0
    assert "Usage: python -m experiments" in capsys.readouterr().out
