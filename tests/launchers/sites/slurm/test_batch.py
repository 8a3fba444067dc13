"""The script of a job: what is asked of Slurm, and nothing that a shell could misread."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launchers.processes import Answer
from launchers.sites.slurm import batch
from launchers.sites.slurm.batch import (
    BatchJob,
    parse_node_sizes,
    render_script,
    smallest_node,
    submit,
)
from ps_allreduce.errors import UserError


def job(**changes: Any) -> BatchJob:
    settings: dict[str, Any] = {
        "name": "compare",
        "num_hosts": 4,
        "minutes": 90,
        "log": Path("/results/slurm/x.log"),
        "folder": Path("/suite"),
        "variables": {"PYTHONPATH": "/suite"},
        "command": ("python3", "-m", "experiments", "compare"),
    }
    return BatchJob(**(settings | changes))


def options(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line]


def test_a_job_asks_for_whole_nodes_and_is_never_requeued() -> None:
    assert options(render_script(job())) == [
        "--job-name=compare",
        "--nodes=4",
        "--ntasks-per-node=1",
        "--time=90",
        "--no-requeue",
        "--output=/results/slurm/x.log",
        "--open-mode=append",
        "--exclusive",
    ]


def test_what_was_asked_for_is_asked_of_slurm() -> None:
    asked = options(
        render_script(
            job(
                partition="gpu",
                account="p1",
                constraint="a100&ib",
                gpus_per_node="a100:4",
                whole_nodes=False,
                options=("--qos=normal",),
            )
        )
    )
    for option in ("--partition=gpu", "--account=p1", "--constraint=a100&ib", "--qos=normal"):
        assert option in asked
    assert "--gpus-per-node=a100:4" in asked
    assert "--exclusive" not in asked


@pytest.mark.parametrize("word", ["a b", "it's", "$(touch pwned)", "`x`", "x; y", "*", "--help"])
def test_words_of_the_command_arrive_as_they_were_typed(word: str) -> None:
    script = render_script(job(command=("python3", word), folder=Path("/my suite")))
    last = script.splitlines()[-1]
    assert shlex.split(last) == ["exec", "python3", word]
    assert "cd -- '/my suite' || exit 2" in script


def test_lines_of_the_site_come_before_the_command_as_they_are() -> None:
    lines = render_script(job(setup=("module load X",))).splitlines()
    assert lines.index("module load X") < lines.index("export PYTHONPATH=/suite")


def test_percent_signs_are_no_patterns() -> None:
    script = render_script(job(log=Path("/results/50%/x.log")))
    assert "--output=/results/50%%/x.log" in script


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_hosts": 0}, "a job needs at least 1 host, got 0."),
        ({"partition": "gpu; rm"}, "'gpu; rm' is no value for an option of sbatch."),
        ({"account": "--wrap=x"}, "is no value for an option of sbatch."),
        ({"account": ""}, "is no value for an option of sbatch."),
        ({"constraint": "a\nb"}, "a line break has no place"),
        ({"setup": ("module load X\nrm",)}, "a line break has no place"),
        ({"options": ("--qos=a\n#SBATCH --x",)}, "a line break has no place"),
        ({"options": ("qos=normal",)}, "--sbatch takes an option of sbatch with its dashes"),
        ({"options": ("--",)}, "--sbatch takes an option of sbatch with its dashes"),
        ({"options": ("--array=1-4",)}, "--sbatch --array=1-4: the suite decides this option"),
        ({"options": ("-N 2",)}, "the suite decides this option itself"),
        ({"options": ("--requeue",)}, "the suite decides this option itself"),
    ],
)
def test_what_has_no_place_in_a_script_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        job(**changes)
    assert sentence in str(caught.value)


def test_a_log_that_slurm_cannot_name_is_refused() -> None:
    with pytest.raises(UserError, match="choose another RESULTS"):
        render_script(job(log=Path("/my results/x.log")))


def test_a_job_costs_its_whole_limit() -> None:
    assert job().node_hours == 6.0


def answer(monkeypatch: pytest.MonkeyPatch, given: Answer | None) -> list[Sequence[str]]:
    asked: list[Sequence[str]] = []

    def run_quietly(words: Sequence[str], timeout_s: float) -> Answer | None:
        asked.append(words)
        return given

    monkeypatch.setattr(batch, "run_quietly", run_quietly)
    return asked


@pytest.mark.parametrize("out", ["4711\n", "4711;cluster\n"])
def test_a_submitted_job_has_a_number(monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    asked = answer(monkeypatch, Answer(status=0, out=out, err=""))
    assert submit(Path("job.sh")) == "4711"
    assert asked == [["sbatch", "--parsable", "job.sh"]]


def test_a_refusal_is_in_slurms_words(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "sbatch: error: invalid partition specified: gpu\nsbatch: error: Batch job failed\n"
    answer(monkeypatch, Answer(status=1, out="", err=said))
    with pytest.raises(UserError, match="Slurm refuses the job: sbatch: error: invalid partition"):
        submit(Path("job.sh"))


def test_without_slurm_nothing_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, None)
    with pytest.raises(UserError, match="sbatch is missing here or does not answer"):
        submit(Path("job.sh"))


SINFO = "debug* 8\ndebug* 4+\nlong 2\ngpu 64\n"


def test_the_smallest_node_of_every_partition() -> None:
    assert parse_node_sizes(SINFO) == {"debug*": 4, "long": 2, "gpu": 64}
    assert parse_node_sizes("slurm_load_partitions: Unable to contact\n") == {}


@pytest.mark.parametrize(
    ("text", "partition", "expected"),
    [(SINFO, None, 4), (SINFO, "debug", 4), ("gpu 64\ngpu 32\n", "gpu", 32)],
)
def test_a_job_is_measured_by_its_partitions_smallest_node(
    monkeypatch: pytest.MonkeyPatch, text: str, partition: str | None, expected: int
) -> None:
    answer(monkeypatch, Answer(0, text, ""))
    assert smallest_node(partition) == expected


@pytest.mark.parametrize(
    ("given", "partition", "sentence"),
    [
        (None, None, "no Slurm answers here"),
        (Answer(1, "", "unable to contact"), None, "no Slurm answers here"),
        (Answer(0, SINFO, ""), "nosuch", "no partition nosuch; .* debug, long, gpu"),
        (Answer(0, "long 2\n", ""), None, "no partition is the default; .* long"),
    ],
)
def test_a_partition_that_is_not_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, given: Answer | None, partition: str | None, sentence: str
) -> None:
    answer(monkeypatch, given)
    with pytest.raises(UserError, match=sentence):
        smallest_node(partition)


def test_a_setup_line_that_fails_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    made = job(setup=("true # fine", "module-that-is-missing"), folder=tmp_path)
    script.write_text(render_script(made))
    done = subprocess.run(["bash", script], capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "The setup line failed: module-that-is-missing" in done.stderr
