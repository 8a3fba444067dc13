"""A conversion from its source to verified files.

Decides the order of what is done: look at the source, write the files that are missing, read all of
them back, and only then give the splits their names.  Every moment may be the last: what is
finished is in the journal, and the same call goes on.  What is said at the end is decided here too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from experiments.data_sets.journal import Conversion, Journal, opened
from experiments.data_sets.layouts import LAYOUTS
from experiments.data_sets.listing import Layout, Listing, PlannedShard, Report, identity, plan
from experiments.data_sets.tfrecords import encoded_example, read_shard, write_shard
from experiments.data_sets.threads import Tally, in_threads
from experiments.sweep.folder import check_folder
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import MANIFEST, Manifest
from ps_allreduce.record.files import write_json

#: Makes a bar, from what is counted.
Bars = Callable[[str], AbstractContextManager[Report]]

#: Examples whose sizes tell how much space all of them need.
_SAMPLED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A finished conversion.

    Attributes:
        manifests: of each split.
        written: how many files this call has written; 0 where all were there.
    """

    manifests: Sequence[Manifest]
    written: int


def convert(layout: Layout, source: Path, out: Path, bars: Bars) -> Converted:
    """Write a data set as TFRecord files, or go on with it, or verify what is there.

    Raises:
        UserError: the source is damaged or no such layout, `out` holds something else or cannot be
            written, or a file is not what was written.
    """
    source, out = (Path(os.path.realpath(each)) for each in (source, out))
    _check_places(source, out)
    with bars("looking at the data set") as report:
        listing = _listed(layout, source, report)
    shards = plan(listing)
    asked = Conversion(
        layout=layout.name,
        source=str(source),
        examples=sum(len(shard.examples) for shard in shards),
        identity=identity(layout.name, listing, shards),
    )
    with opened(out, asked) as journal:
        missing = _missing(journal, shards)
        if missing:
            _check_space(layout, source, out, missing)
            _make(layout, source, journal, missing, asked.examples, bars)
        _verify(journal, shards, bars)
        return Converted(manifests=_finish(layout, listing, journal, shards), written=len(missing))


def _listed(layout: Layout, source: Path, report: Report) -> Listing:
    try:
        return layout.list_examples(source, report)
    except UserError as error:
        others = (each for each in LAYOUTS.values() if each.name != layout.name)
        fitting = next((each.name for each in others if each.recognises(source)), None)
        if fitting is None:
            raise
        raise UserError(f"{source} looks like {fitting}: convert it as that. {error}") from error


def _check_places(source: Path, out: Path) -> None:
    if not source.is_dir():
        raise UserError(f"{source} is no folder: give the one that the data set was unpacked into.")
    if out.is_relative_to(source):
        raise UserError(f"{out} is inside of {source}, which is read: choose a folder elsewhere.")
    check_folder(out)


def _missing(journal: Journal, shards: Sequence[PlannedShard]) -> list[PlannedShard]:
    """Files that are not finished, or not there any more as they were."""

    def is_there(shard: PlannedShard) -> bool:
        noted, path = journal.files.get(shard.key), journal.folder(shard.split) / shard.name
        return noted is not None and path.is_file() and path.stat().st_size == noted.num_bytes

    return [shard for shard in shards if not is_there(shard)]


def _check_space(layout: Layout, source: Path, out: Path, missing: Sequence[PlannedShard]) -> None:
    """See that the disk has room for what a few examples let expect."""
    examples = [example for shard in missing for example in shard.examples]
    sampled = examples[:: max(1, len(examples) // _SAMPLED)]
    total = sum(layout.image_bytes(source / each.path) for each in sampled)
    needed, free = total / len(sampled) * len(examples), shutil.disk_usage(out).free
    if needed > free:
        raise UserError(
            f"{out} needs about {needed / 1e9:.1f} GB more and its disk has {free / 1e9:.1f} GB "
            "left: make room, or choose another folder."
        )


def _make(
    layout: Layout,
    source: Path,
    journal: Journal,
    missing: Sequence[PlannedShard],
    total: int,
    bars: Bars,
) -> None:
    """Write files, each by one thread."""
    done = total - sum(len(shard.examples) for shard in missing)
    with bars("examples converted") as report:
        tally = Tally(report, total, done)

        def records(shard: PlannedShard) -> Iterator[bytes]:
            for example in shard.examples:
                yield encoded_example(layout.image(source / example.path), example.labels)
                tally.add()

        def make(shard: PlannedShard) -> None:
            path = journal.folder(shard.split) / shard.name
            journal.add(shard.key, write_shard(path, records(shard)))

        in_threads(make, missing, tally)


def _verify(journal: Journal, shards: Sequence[PlannedShard], bars: Bars) -> None:
    """Read every file back, and compare its records, size and checksum with the journal.

    Raises:
        UserError: one differs; the same command writes it again.
    """
    with bars("files verified") as report:
        tally = Tally(report, len(shards))

        def is_as_written(shard: PlannedShard) -> bool:
            noted = journal.files[shard.key]
            found = read_shard(journal.folder(shard.split) / shard.name)
            tally.add()
            return found == noted and noted.records == len(shard.examples)

        kept = in_threads(is_as_written, shards, tally)
    damaged = [shard for shard, good in zip(shards, kept, strict=True) if not good]
    if damaged:
        journal.drop({shard.key for shard in damaged})
        first = journal.folder(damaged[0].split) / damaged[0].name
        raise UserError(
            f"{first} is not what was written ({len(damaged)} such files): the disk may be at "
            "fault. The same command writes it again."
        )


def _finish(
    layout: Layout, listing: Listing, journal: Journal, shards: Sequence[PlannedShard]
) -> list[Manifest]:
    """Describe every split, and give it its name."""
    manifests = []
    for split in listing.splits:
        manifest = Manifest(
            data_set=layout.name,
            split=split,
            form=listing.form,
            files=tuple(journal.files[shard.key] for shard in shards if shard.split == split),
            left_out=listing.left_out,
            names=listing.names,
        )
        write_json(journal.folder(split) / MANIFEST, manifest)
        journal.finish(split)
        manifests.append(manifest)
    return manifests


def told(made: Converted, out: Path) -> Iterator[str]:
    """Lines for the screen: what there is, what was left out, and what to do with it."""
    for manifest in made.manifests:
        yield _split(manifest)
    for reason, count in made.manifests[0].left_out.items():
        yield f"left out: {count} {reason}"
    total = sum(len(manifest.files) for manifest in made.manifests)
    if made.written:
        yield f"All {total} files were read back and hold what was written ({made.written} now)."
    else:
        yield f"Nothing to convert: all {total} files were read and hold what was written."
    yield f"To train with them: --input {out / made.manifests[0].split}"


def _split(manifest: Manifest) -> str:
    size = sum(each.num_bytes for each in manifest.files)
    return (
        f"{manifest.split}: {manifest.num_records} examples in {len(manifest.files)} files, "
        f"{size / 1e6:.1f} MB"
    )
