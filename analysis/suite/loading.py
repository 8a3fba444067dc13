"""How long reading a large sweep takes, and how much memory.

Decides what is read: copies of a record that was really made, many points with ten launches each.
"""

from __future__ import annotations

import json
import resource
import time
from dataclasses import replace
from pathlib import Path

from analysis.data.load import find_sweeps, load
from analysis.suite.targets import target_text, up_to
from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.record.files import RunFiles, iter_record_paths, load_record
from ps_allreduce.record.records import RunRecord
from ps_allreduce.serialization import to_json

#: Of a copy of a record, about, most of them samples: what a standard run on two hosts leaves.
RECORD_BYTES = 91_000

#: Of them: that many need 90 GB.
MOST_COPIES = 1_000_000

#: Launches of a point.
REPETITIONS = 10

#: The most that loading 10,000 records may take on two cores.
TARGET_S, TARGET_MIB = 60, 2048


def time_loading(results: Path, folder: Path, num_records: int) -> str:
    """Fill an empty folder with copies of the longest record of some results, read it, and tell.

    Raises:
        UserError: there is no record with samples to copy, or it is to be copied too often.
    """
    at_least(1, records=num_records)
    at_most(MOST_COPIES, records=num_records)
    paths = [path for sweep in find_sweeps(results) for path in iter_record_paths(sweep)]
    _write_copies(max(paths, key=lambda path: path.stat().st_size), folder, num_records)
    begin = time.monotonic()
    table = load(folder)
    seconds = time.monotonic() - begin
    kilobytes = Path(table.index[0]).stat().st_size / 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**10
    share = max(seconds / TARGET_S, peak / TARGET_MIB)
    asked = f"for 10000 on two cores at most {TARGET_S} s and {TARGET_MIB} MiB"
    return (
        f"loading {len(table)} records of {kilobytes:.0f} kB: {seconds:.1f} s, {peak} MiB "
        + target_text(asked, (share, share), up_to(1.0))
    )


def _write_copies(source: Path, folder: Path, num_records: int) -> None:
    """Copies of a record as a sweep of many points; all share its raw timings."""
    original = load_record(source)
    if not original.samples:
        raise UserError(f"{source} holds no samples: copies of it would be too short.")
    samples = _samples(original)
    for number in range(num_records):
        copy = _copy(original, number)
        files = RunFiles.of(folder, copy.experiment_id, copy.repetition, copy.attempt)
        files.record.parent.mkdir(parents=True, exist_ok=True)
        without = {name: value for name, value in to_json(copy).items() if name != "samples"}
        text = f'{json.dumps(without)[:-1]}, "samples": {samples}}}'
        files.record.write_text(text, encoding="utf-8")
        if RunFiles(source).raw.exists():
            files.raw.symlink_to(RunFiles(source).raw.resolve())


def _samples(original: RunRecord) -> str:
    """As many as make a record long enough, as JSON; the same in all copies."""
    without = len(json.dumps(to_json(replace(original, samples=()))))
    each = len(json.dumps(to_json(original.samples), indent=1)) / len(original.samples)
    count = max(1, round((RECORD_BYTES - without) / each))
    return json.dumps(to_json((original.samples * count)[:count]), indent=1)


def _copy(original: RunRecord, number: int) -> RunRecord:
    workload = replace(original.experiment.workload, seed=number // REPETITIONS)
    experiment = replace(original.experiment, workload=workload)
    return replace(
        original,
        experiment=experiment,
        experiment_id=experiment.experiment_id,
        repetition=number % REPETITIONS,
        attempt=0,
        samples=(),
    )
