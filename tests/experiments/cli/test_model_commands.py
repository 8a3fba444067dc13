"""The doctor with a model, refused or built on all hosts; the table of placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from tests.goldens import golden
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


def way(rule: RowRule, asked: tuple[float, ...], refusal: str = "") -> PlacedRows:
    """Two tables of rows of 4 kB on two servers."""
    whole = (0, 1) if rule is RowRule.WHOLE else ()
    rows = RowsAsked(row_bytes=4000, asked=9, unique=8, longest=32, union=8, per_server=asked)
    stack = Stack(rows=(300, 100), num_servers=2, rule=rule, servers=whole)
    return PlacedRows(name=str(rule), stack=stack, asked=rows, examples=4, refusal=refusal)


STATISTICS = VariableSpec(name="mean", shape=(10**6,), dtype="float32", trainable=False)
KERNEL, BIAS = (
    VariableSpec(name=name, shape=(size,), dtype="float32", trainable=True)
    for name, size in (("kernel", 1000), ("bias", 1))
)

PLACEMENTS: Mapping[str, tuple[Sequence[VariableSpec], int, int]] = {
    "every policy": (MEGABYTES, 2, 400_000),
    "statistics, which are no load": ([*MEGABYTES, STATISTICS], 2, 400_000),
    "a third server that helps nobody": (MEGABYTES, 3, 400_000),
    "a second one that helps nobody": ([KERNEL, BIAS, KERNEL, BIAS], 2, 4_000_000),
    "more servers than variables": (TWO_LAYERS, 5, 100),
}

UNEVEN, EVEN, WHOLE, EMPTY = (
    way(RowRule.RANGE, (7, 1)),
    way(RowRule.MODULO, (4, 4)),
    way(RowRule.WHOLE, (3, 5)),
    way(RowRule.WHOLE, (8, 0), "3 parameter servers but only 2 would hold ..."),
)

ROWS: Mapping[str, tuple[Sequence[PlacedRows], bool]] = {
    "rows by every rule": ([UNEVEN, EVEN, WHOLE], False),
    "a rule that leaves a server empty": ([EMPTY, UNEVEN], True),
    "nothing but that rule": ([EMPTY], False),
}


def test_tables_of_placements() -> None:
    tables = {title: render_placements("Tiny", *asked) for title, asked in PLACEMENTS.items()}
    tables |= {title: render_rows(ways, drawn_evenly=even) for title, (ways, even) in ROWS.items()}
    texts = [f"# {title}\n{table}\n" for title, table in tables.items()]
    golden.check({"sentences/placements.txt": "\n".join(texts)})


def test_shards_are_no_fewer_than_servers() -> None:
    with pytest.raises(UserError, match="5 parameter servers but only 4 shards"):
        render_placements("Tiny", TWO_LAYERS, 5, 4_000_000)
