"""Nothing that comes from elsewhere steers the terminal on which it is told."""

from __future__ import annotations

import pytest
from rich.table import Table
from rich.text import Text

from ps_allreduce.terminal import Terminal, echo, harmless

#: Clears the screen, turns the direction of what follows, and is no character at all.
HOSTILE = "a\x1b[2Jb\u202ec\udce9d"
SHOWN = "a\\x1b[2Jb\\u202ec\\udce9d"


def test_what_steers_a_terminal_is_written_out_and_all_else_stays() -> None:
    assert harmless(HOSTILE) == SHOWN
    assert harmless("\r\t") == "\\r\\t"
    assert harmless(SHOWN) == SHOWN
    assert harmless("Zürich ├─ 1.5 µs\n") == "Zürich ├─ 1.5 µs\n"


@pytest.mark.parametrize("err", [False, True])
def test_a_line_is_harmless(err: bool, capsys: pytest.CaptureFixture[str]) -> None:
    echo(HOSTILE, err=err)
    told = capsys.readouterr()
    assert (told.err if err else told.out) == f"{SHOWN}\n"


def test_texts_and_cells_are_harmless_and_colours_of_our_own_stay() -> None:
    console = Terminal(force_terminal=True, color_system="standard", highlight=False, width=60)
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    with console.capture() as shown:
        console.print(HOSTILE, style="red", markup=False)
        console.print(table)
        console.print(Text(HOSTILE))
    lines = shown.get().splitlines()
    assert lines[0] == f"\x1b[31m{SHOWN}\x1b[0m"
    assert shown.get().count(SHOWN) == 4
    assert "\x1b[2J" not in shown.get()
