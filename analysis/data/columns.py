"""The columns of the table of runs: their order, their types, and the file `summary.csv`.

Decides all three, and which columns tell settings and cases apart; what a column means is written
down in `docs/results_format.md`, and where its values come from is decided in `rows`.  An
experiment states what was asked for under the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.extensions import ExtensionArray
from pandas.api.types import pandas_dtype

from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import STRATEGIES
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

#: The contract (design, section 4) comes first and keeps its order; what was added since follows.
_NAMES = """
sweep experiment_id run_id repetition:i attempt:i status reason strategy num_workers:i num_ps:i
placement placement_max_over_mean:f layout model image_size:i batch_per_worker:i accumulation:i
global_batch:i input precision optimizer compute launcher num_hosts:i workers_per_host:i
devices_per_worker:i device cores_per_worker:i oversubscribed:b interface link_bits_per_s:f
collective bytes_per_pack:i split_bytes:i staleness:i images_per_sec:f images_per_sec_per_host:f
step_time_p50_s:f step_time_p95_s:f compute_s:f communication_s:f input_wait_s:f bring_up_s:f
build_s:f first_step_s:f warmup_steps:i measured_steps:i hosts job_id fingerprint record_path

started_at:t finished_at:t profile num_classes:i seed:i threads_per_worker:i total_cores:i
images_per_sec_per_worker_core:f images_per_sec_per_total_core:f window_s:f total_s:f
gradient_bytes:i num_messages:i placement_deviations:i peak_memory_bytes:i cpu_s:f load_average:f
commit warnings transport network ps_per_host:i coordinator link_round_trip_s:f machine_busy:f
host_kinds:i import_s:f bound_s:f fraction_of_bound:f group_bytes:i cut_bytes:i in_flight:i
gradients_on_wire host_aggregation:b steps_per_dispatch:i join_rounds:b altered

unit examples_per_sec:f examples_per_sec_per_host:f examples_per_sec_per_worker_core:f
examples_per_sec_per_total_core:f step_s:f forward_s:f backward_s:f warmup_s:f measured_s:f
network_s:f
cpu_s_per_gigabyte:f core_bits_per_s:f cpu_over learning_rate:f momentum:f input_checksum
emulated_forward_s:f emulated_backward_s:f emulated_groups:i least_warmup_steps:i least_warmup_s:f
least_measured_steps:i least_measured_s:f event_steps:i asked_workers_per_host:i asked_interface
network_hosts:i recording_ratio:f raw_timings:b emulated_factors
emulated_jitter traffic_bits_per_s:f warmup most_warmup_steps:i most_warmup_s:f warmup_end
foreign_load:f stolen_load:f steadiness busy:f

nesterov:b beta_1:f beta_2:f epsilon:f weight_decay:f model_digest tokens_per_example:i
tokens_per_sec:f vocabulary:i model_arguments clock_ratio:f traced_step_s:f

mean_step_s:f dispatch_s:f waiting_s:f exchange_s:f stated_compute_s:f last_input_s:f
fastest_compute_s:f fastest_stated_s:f slow_worker_s:f slowest_worker:i load_balance:f
serialisation:f transfer:f hot_server_s:f slow_link_s:f fastest_link_bits_per_s:f worker_cpu_s:f
server_cpu_s:f hump_s:f second_hump_s:f stalled_s:f stalled_waiting_s:f

fusion_bytes:i cycle_ms:f scaling

input_place channels:i target ordered_input:b parallel_reads:i parallel_maps:i prefetch:i cache
shuffle:i flips:b

evaluation evaluation_batches:i evaluation_s:f evaluation_examples_per_sec:f
evaluation_input_wait_s:f

port_buffer_bytes:i port_drops:i
segments_sent:i segments_sent_again:i loss_probes:i tcp_timeouts:i congestion

steps_per_worker largest_share:f equal_shares_per_sec:f

id_exponent:f initial_accumulator_value:f
"""

#: A command line may hold bytes that are no text; they are written by their numbers.
NO_TEXT = "backslashreplace"

#: Moments in UTC, as ISO 8601 writes them.
_WRITTEN_MOMENT = "%Y-%m-%dT%H:%M:%S.%f+00:00"

_TYPES = {"": TEXT, "i": WHOLE, "f": REAL, "b": TRUTH, "t": MOMENT}

#: The type of every column, in order.
COLUMNS: Mapping[str, str] = {
    name: _TYPES[kind] for name, _, kind in (entry.partition(":") for entry in _NAMES.split())
}

#: What was asked for about the strategy, and what a side may have more of: it makes settings of one
#: case differ.
_SETTINGS = """
strategy num_ps layout placement split_bytes ps_per_host coordinator collective bytes_per_pack
group_bytes cut_bytes in_flight gradients_on_wire host_aggregation staleness steps_per_dispatch
join_rounds altered fusion_bytes cycle_ms threads_per_worker evaluation evaluation_batches
"""

#: Conditions that users ask for under a shorter name.
ASKED = "asked_"

#: What was asked for otherwise: it must agree between runs that are compared.  Those before others
#: are the first to tell in a file's name what sets a case apart.
_CONDITIONS = """
model model_digest model_arguments image_size num_classes vocabulary id_exponent channels target
ordered_input parallel_reads parallel_maps prefetch cache shuffle flips unit tokens_per_example
input input_checksum input_place optimizer learning_rate momentum nesterov beta_1 beta_2 epsilon
weight_decay initial_accumulator_value batch_per_worker scaling accumulation seed precision compute
emulated_forward_s emulated_backward_s emulated_groups emulated_factors emulated_jitter launcher
network network_hosts port_buffer_bytes asked_interface asked_workers_per_host device
devices_per_worker cores_per_worker warmup least_warmup_steps least_warmup_s most_warmup_steps
most_warmup_s least_measured_steps least_measured_s event_steps
"""


SETTINGS, CONDITIONS = tuple(_SETTINGS.split()), tuple(_CONDITIONS.split())


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
