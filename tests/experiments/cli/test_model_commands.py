"""The doctor with a model, refused or built on all hosts; the table of placements."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cli import model_commands as command_module
from experiments.cli.model_commands import PlacedRows, render_placements, render_rows
from launchers.doctor import command, trials
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import RowRule, Stack
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.variables import RowsAsked
from tests.cluster import Cluster
from tests.experiments.conftest import run
from tests.fakes import TWO_LAYERS, FakeLauncher
from tests.pretend import FAKE_SERVER, fake_server

OWN_MODEL = ("--model", "mine.py:build", "--model-arg", "width=64")


def test_a_model_is_tried_here_and_built_on_every_host(
    own: FakeLauncher,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    monkeypatch.setattr(trials, "SECONDS", 0.05)
    ill = fake_server("--job", "DescribeModel", "complain")
    monkeypatch.setattr(command, "make_site", lambda _: Cluster({"n10": FAKE_SERVER, "n1": ill}))
    assert run("doctor", *OWN_MODEL) == 1
    out, err = capsys.readouterr()
    assert err.startswith("Trying mine.py:build on this machine, with one worker.\nmine.py:build: ")
    assert own.asked[0] == (tmp_path, "mine", "build", ("width=64",))
    lines = out.splitlines()
    built = "ok       n10: mine.py:build built in 1.5 s, 1 trainable parameters"
    first = lines.index(f"model         {built}")
    assert lines[first + 1].strip() == "FAILURE  n1: out of luck."


def test_a_mistake_is_told_before_any_host_is_touched(
    own: FakeLauncher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own.found = UserError("mine.py:build returns a str.")
    monkeypatch.delattr(command, "make_site")
    assert run("doctor", *OWN_MODEL) == 2
    assert "mine.py:build returns a str." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["SmallCNN", "SmallGPT", "BERT-base"])
@pytest.mark.usefixtures("launcher")
def test_every_model_can_be_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Workload] = []
    monkeypatch.setattr(command_module, "look_at_hosts", lambda _, each: asked.append(each))
    assert run("doctor", "--model", name) == 0
    assert [workload.model.name for workload in asked] == [name]


MEGABYTES = tuple(
    VariableSpec(name=spec.name, shape=(*spec.shape, 100), dtype="float32", trainable=True)
    for spec in TWO_LAYERS
)

GOLDEN = """\
Tiny: 4 trainable variables, 2.2 MB; largest dense/kernel with 1.3 MB; 2 servers

policy         max/mean  MB (variables or shards) per server
round_robin        1.96  2.14 (2)  0.05 (2)
greedy             1.20  0.88 (2)  1.31 (2)
largest_first      1.17  1.28 (1)  0.91 (3)
partitioned        1.11  1.22 (4)  0.98 (5)

Suggested: partitioned (max/mean 1.11, 9 variables or shards).
"""


def test_every_policy_is_shown_and_one_suggested() -> None:
    assert render_placements("Tiny", MEGABYTES, 2, 400_000) == GOLDEN.rstrip("\n")


def test_statistics_are_no_load() -> None:
    statistics = VariableSpec(name="mean", shape=(10**6,), dtype="float32", trainable=False)
    assert "4 trainable variables, 2.2 MB; largest dense/kernel" in render_placements(
        "Tiny", [*MEGABYTES, statistics], 2, 400_000
    )


def test_useless_servers_are_told() -> None:
    text = render_placements("Tiny", MEGABYTES, 3, 400_000)
    assert "no more than 2 servers can share the load of this model" in text
    assert (
        "largest_first: the hottest of 3 servers holds 1.28 MB, with num_ps 2 it holds 1.28 MB"
        in text
    )


def test_a_useless_second_server_is_told() -> None:
    one = VariableSpec(name="kernel", shape=(1000,), dtype="float32", trainable=True)
    tiny = VariableSpec(name="bias", shape=(1,), dtype="float32", trainable=True)
    text = render_placements("Tiny", [one, tiny, one, tiny], 2, 4_000_000)
    assert "with num_ps 1 it holds 8.01 kB; use 1 or another policy" in text


def test_more_servers_than_variables_leave_partitioned_ones_possible() -> None:
    with pytest.raises(UserError, match="5 parameter servers but only 4 shards"):
        render_placements("Tiny", TWO_LAYERS, 5, 4_000_000)
    text = render_placements("Tiny", TWO_LAYERS, 5, 100)
    assert text.count("impossible: more servers than variables") == 3
    assert "Suggested: partitioned" in text
    assert "partitioned: the hottest" not in text


def way(rule: RowRule, asked: tuple[float, ...], refusal: str = "") -> PlacedRows:
    """Two tables of rows of 4 kB on two servers."""
    whole = (0, 1) if rule is RowRule.WHOLE else ()
    rows = RowsAsked(row_bytes=4000, asked=9, unique=8, longest=32, union=8, per_server=asked)
    stack = Stack(rows=(300, 100), num_servers=2, rule=rule, servers=whole)
    return PlacedRows(name=str(rule), stack=stack, asked=rows, examples=4, refusal=refusal)


TABLE_OF_ROWS = """\
With --embeddings sparse, a step of 4 examples looks up 8 different rows (0.032 MB) of the 400 in 2 tables:

--table-rows           max/mean  rows asked of each server (MB held)
range                      1.75  7 (0.80)  1 (0.80)
modulo                     1.00  4 (0.80)  4 (0.80)
whole                      1.25  3 (1.20)  5 (0.40)

Suggested: modulo (max/mean 1.00 in rows asked)."""  # noqa: E501


def test_balance_is_that_of_rows_asked() -> None:
    ways = [way(RowRule.RANGE, (7, 1)), way(RowRule.MODULO, (4, 4)), way(RowRule.WHOLE, (3, 5))]
    assert render_rows(ways, drawn_evenly=False) == TABLE_OF_ROWS


def test_what_leaves_a_server_empty_is_no_suggestion() -> None:
    refused = [way(RowRule.WHOLE, (8, 0), "3 parameter servers but only 2 would hold ...")]
    assert "whole                         -  impossible: some server would hold" in render_rows(
        [*refused, way(RowRule.RANGE, (7, 1))], drawn_evenly=True
    )
    assert render_rows(refused, drawn_evenly=False).endswith(
        "\n3 parameter servers but only 2 would hold ..."
    )
