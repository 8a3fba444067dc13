"""The columns of the table of runs: their order, types and meanings, and the file `summary.csv`.

Decides all four (the first three in `columns.txt`, which the page of the results format shows), and
which columns tell settings and cases apart; where values come from is decided in `rows`.  An
experiment states what was asked for under the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.extensions import ExtensionArray
from pandas.api.types import pandas_dtype

from ps_allreduce.declared import Declared
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import STRATEGIES
from ps_allreduce.point.strategies.stated import DECLARATIONS
from ps_allreduce.record.files import write_atomically
from ps_allreduce.record.records import Status

TEXT, WHOLE, REAL, TRUTH, MOMENT = "string", "Int64", "Float64", "boolean", "datetime64[ns, UTC]"

#: Text that is one of few: sorted in this order.
_ORDERED: Mapping[str, Iterable[str]] = {
    "status": Status,
    "strategy": STRATEGIES,
    "placement": Policy,
    "layout": LayoutKind,
}

#: A line for the columns that share a meaning: names, types after colons, meaning in Markdown.
#: What the first results had comes first and keeps its order; what was added since follows.
_FILE = Path(__file__).resolve().parent / "columns.txt"

#: A command line may hold bytes that are no text; they are written by their numbers.
NO_TEXT = "backslashreplace"

#: Moments in UTC, as ISO 8601 writes them.
_WRITTEN_MOMENT = "%Y-%m-%dT%H:%M:%S.%f+00:00"

_TYPES = {"": TEXT, "i": WHOLE, "f": REAL, "b": TRUTH, "t": MOMENT}

_LINES = [
    ([entry.partition(":") for entry in names.split()], meaning)
    for names, mark, meaning in (
        line.partition(" = ") for line in _FILE.read_text(encoding="utf-8").splitlines()
    )
    if mark
]

#: The type of every column, in order.
COLUMNS: Mapping[str, str] = {
    name: _TYPES[kind] for entries, _ in _LINES for name, _, kind in entries
}

#: What columns mean; those of one line mean the same of different things.
MEANINGS: Mapping[tuple[str, ...], str] = {
    tuple(name for name, _, _ in entries): meaning for entries, meaning in _LINES
}


def column_of(setting: str) -> str:
    """The column of a setting of a strategy."""
    return "gradients_on_wire" if setting == "gradients" else setting


#: How values of settings are called, by column.
SAID: Mapping[str, Declared] = {
    **{column_of(name): own for name, own in DECLARATIONS.items()},
    "ps_per_host": Declared(said="{} ps per host", named={None: "default ps per host"}),
    "coordinator": Declared(),
    "threads_per_worker": Declared(said="{} threads", named={1: "1 thread"}),
    "evaluation": Declared(said="{} evaluation"),
    "evaluation_batches": Declared(),
}

#: What was asked for about the strategy, and what a side may have more of: it makes settings of one
#: case differ.
SETTINGS = ("strategy", *SAID)

#: Conditions that users ask for under a shorter name.
ASKED = "asked_"

#: What was asked for otherwise: it must agree between runs that are compared.  Those before others
#: are the first to tell in a file's name what sets a case apart.
_CONDITIONS = """
model model_digest model_arguments image_size num_classes vocabulary id_exponent channels target
ordered_input parallel_reads parallel_maps prefetch cache shuffle flips unit tokens_per_example
input input_checksum input_place optimizer learning_rate momentum nesterov beta_1 beta_2 epsilon
weight_decay initial_accumulator_value linear_scaling rate_warmup_steps batch_per_worker scaling
accumulation seed precision compute emulated_forward_s emulated_backward_s emulated_groups
emulated_factors emulated_jitter launcher network network_hosts port_buffer_bytes asked_interface
asked_workers_per_host device devices_per_worker cores_per_worker warmup least_warmup_steps
least_warmup_s most_warmup_steps most_warmup_s least_measured_steps least_measured_s event_steps
evaluation_steps target_loss target_accuracy most_examples most_s
"""

CONDITIONS = tuple(_CONDITIONS.split())

#: Conditions that say how long is measured.  More steps tell the same rate more surely: they set
#: cases apart only where one point was measured with several.
LENGTHS = ("least_measured_steps", "least_measured_s")


def make_table(rows: Iterable[Mapping[str, object]], index: Iterable[str]) -> pd.DataFrame:
    """A table of runs by experiment, repetition and attempt, with all columns.

    Args:
        rows: values by column; a column that a row lacks is unknown there.
        index: the path of each row's record.

    Raises:
        ValueError: a row has a column that is not one of `COLUMNS`, or a value of another type.
    """
    known = list(rows)
    if unknown := {name for row in known for name in row} - set(COLUMNS):
        raise ValueError(f"the table of runs has no column {', '.join(sorted(unknown))}")
    table = pd.DataFrame(
        {name: _typed(name, [row.get(name) for row in known]) for name in COLUMNS},
        index=pd.Index(list(index), name="record", dtype="object"),
    )
    return table.sort_values(["experiment_id", "repetition", "attempt"])


def _typed(name: str, values: Sequence[Any]) -> ExtensionArray:
    dtype: Any = pandas_dtype(COLUMNS[name])
    typed: ExtensionArray
    if name in _ORDERED:
        typed = pd.Categorical(values, [str(each) for each in _ORDERED[name]], ordered=True)
    elif dtype == MOMENT:
        typed = pd.DatetimeIndex(pd.to_datetime(values, utc=True)).astype(dtype).array
    else:
        typed = pd.array([None if pd.isna(each) else each for each in values], dtype=dtype)
    return typed


def write_summary(path: Path, table: pd.DataFrame) -> None:
    """Write the rows of all runs as `summary.csv`, all of them or nothing.

    Raises:
        UserError: no permission, or no space left.
    """
    write_atomically(path, render_summary(table).encode(errors=NO_TEXT))


def render_summary(table: pd.DataFrame) -> str:
    """The file's text: a header, then one line per attempt; an empty cell is unknown."""
    truths = [name for name, kind in COLUMNS.items() if kind == TRUTH]
    shown = table.assign(**{name: table[name].astype("string").str.lower() for name in truths})
    return shown.to_csv(index=False, date_format=_WRITTEN_MOMENT, lineterminator="\n")
