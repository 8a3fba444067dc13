"""The script of a job: what is asked of Slurm, and nothing that a shell could misread."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launchers.scheduler import BatchJob
from launchers.settings import LauncherSettings
from launchers.sites.slurm.batch_script import render_script
from ps_allreduce.errors import UserError

JOB = BatchJob(
    name="compare",
    num_hosts=4,
    minutes=90,
    settings=LauncherSettings(launcher="slurm"),
    log=Path("/results/slurm/x.log"),
    folder=Path("/suite"),
    variables={"PYTHONPATH": "/suite"},
    command=("python3", "-m", "experiments", "compare"),
)


def asking(**settings: Any) -> BatchJob:
    """The same job with other settings."""
    return replace(JOB, settings=LauncherSettings(launcher="slurm", **settings))


def options(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line]


def test_a_job_asks_for_whole_nodes_and_is_never_requeued() -> None:
    assert options(render_script(JOB)) == [
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
            asking(
                partition="gpu",
                account="p1",
                constraint="a100&ib",
                gpus_per_node="a100:4",
                shared_nodes=True,
                sbatch=("--qos=normal",),
            )
        )
    )
    for option in ("--partition=gpu", "--account=p1", "--constraint=a100&ib", "--qos=normal"):
        assert option in asked
    assert "--gpus-per-node=a100:4" in asked
    assert "--exclusive" not in asked


@pytest.mark.parametrize("word", ["a b", "it's", "$(touch pwned)", "`x`", "x; y", "*", "--help"])
def test_words_of_the_command_arrive_as_they_were_typed(word: str) -> None:
    script = render_script(replace(JOB, command=("python3", word), folder=Path("/my suite")))
    last = script.splitlines()[-1]
    assert shlex.split(last) == ["exec", "python3", word]
    assert "cd -- '/my suite' || exit 2" in script


def test_lines_of_the_site_come_before_the_command_as_they_are() -> None:
    lines = render_script(asking(setup=("module load X",))).splitlines()
    assert lines.index("module load X") < lines.index("export PYTHONPATH=/suite")


def test_percent_signs_are_no_patterns() -> None:
    script = render_script(replace(JOB, log=Path("/results/50%/x.log")))
    assert "--output=/results/50%%/x.log" in script


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partition": "gpu; rm"}, "'gpu; rm' is no value for an option of sbatch."),
        ({"account": "--wrap=x"}, "is no value for an option of sbatch."),
        ({"account": ""}, "is no value for an option of sbatch."),
        ({"constraint": "a\nb"}, "a line break has no place"),
        ({"setup": ("module load X\nrm",)}, "a line break has no place"),
        ({"sbatch": ("--qos=a\n#SBATCH --x",)}, "a line break has no place"),
        ({"sbatch": ("qos=normal",)}, "--sbatch takes an option of sbatch with its dashes"),
        ({"sbatch": ("--",)}, "--sbatch takes an option of sbatch with its dashes"),
        ({"sbatch": ("--array=1-4",)}, "--sbatch --array=1-4: the suite decides this option"),
        ({"sbatch": ("-N 2",)}, "the suite decides this option itself"),
        ({"sbatch": ("--requeue",)}, "the suite decides this option itself"),
    ],
)
def test_what_has_no_place_in_a_script_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        render_script(asking(**changes))
    assert sentence in str(caught.value)


def test_a_log_that_slurm_cannot_name_is_refused() -> None:
    with pytest.raises(UserError, match="choose another RESULTS"):
        render_script(replace(JOB, log=Path("/my results/x.log")))


def test_a_job_without_hosts_is_refused() -> None:
    with pytest.raises(UserError, match="hosts must be at least 1, got 0"):
        replace(JOB, num_hosts=0)


def test_a_job_costs_its_whole_limit() -> None:
    assert JOB.node_hours == 6.0


def test_a_setup_line_that_fails_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    made = replace(asking(setup=("true # fine", "module-that-is-missing")), folder=tmp_path)
    script.write_text(render_script(made))
    done = subprocess.run(["bash", script], capture_output=True, check=False, text=True)
    assert done.returncode == 2
    assert "The setup line failed: module-that-is-missing" in done.stderr
