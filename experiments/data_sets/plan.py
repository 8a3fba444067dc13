"""Which examples go into which file.

Decides the number of files and their names.  Every file holds a part of a shuffled split, so a
worker that reads a few of them sees all classes.  The same listing gives the same plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.data_sets.listing import SEED, Example, Listing, shuffled
from ps_allreduce.serialization import to_json

#: About 100 MB of ImageNet's images: TensorFlow's guide asks for that
#: (www.tensorflow.org/tutorials/load_data/tfrecord).
RECORDS_PER_FILE = 1000

#: Splits with fewer records than 16 such files still have up to 16, so that workers have some each.
LEAST_FILES, FEW_RECORDS = 16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShard:
    """A file that is to be written.

    Attributes:
        split, name: of the file.
        examples: its records, in their order.
    """

    split: str
    name: str
    examples: Sequence[Example]

    @property
    def key(self) -> str:
        """Its path below the folder of a finished conversion."""
        return f"{self.split}/{self.name}"


def plan(listing: Listing) -> list[PlannedShard]:
    """The files of all splits."""
    return [
        PlannedShard(split=split, name=f"part-{number:05d}.tfrecord", examples=part)
        for split, examples in listing.splits.items()
        for number, part in enumerate(_parts(_in_order(examples, split)))
    ]


def _in_order(examples: Sequence[Example], split: str) -> list[Example]:
    # One path may be there with two labels; an example that is there twice is one.
    named = {f"{example.path} {example.labels}": example for example in examples}
    return [named[name] for name in shuffled(named, split)]


def _parts(examples: Sequence[Example]) -> list[Sequence[Example]]:
    """Consecutive parts whose sizes differ by one at most."""
    most = min(LEAST_FILES, -(-len(examples) // FEW_RECORDS))
    number = max(-(-len(examples) // RECORDS_PER_FILE), most)
    ends = [len(examples) * each // number for each in range(number + 1)]
    return [examples[begin:end] for begin, end in pairwise(ends)]


def identity(layout: str, listing: Listing, shards: Sequence[PlannedShard]) -> str:
    """A SHA-256 over all that decides the content of the files, but for the images themselves."""
    digest = hashlib.sha256()
    about = (layout, SEED, to_json(listing.form), listing.names, sorted(listing.left_out.items()))
    digest.update(repr(about).encode("utf-8", "surrogateescape"))
    for shard in shards:
        for example in shard.examples:
            line = f"{shard.key} {example.path} {example.labels}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
