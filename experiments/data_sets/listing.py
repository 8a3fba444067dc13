"""What a converter finds in a data set, and which example goes into which file.

Decides the words that all layouts share, the order of examples, how a data set without splits is
divided, and the number of files and their names.  All of it follows from a stated seed and the
examples' names, by SHA-256: it is the same on every machine and with every version of the suite's
packages.  Every file holds a part of a shuffled split, so a worker that reads a few of them sees
all classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from ps_allreduce.point.inputs.data_set import ExampleForm
from ps_allreduce.serialization import to_json

TRAINING, VALIDATION, TEST = "training", "validation", "test"

#: Of every order and division.
SEED = 1

#: Told how many are done, of how many.
Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example of a data set.

    Attributes:
        path: of its image, or of the folder that holds its bands, below the data set's folder.
        labels: a class, the numbers of all labels, or a value.
    """

    path: str
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All examples of a data set that can be converted.

    Attributes:
        form: of each.
        splits: examples by the name of their split; none is empty.
        names: of classes or labels, by number.
        left_out: how many others there are, by the reason.
    """

    form: ExampleForm
    splits: Mapping[str, Sequence[Example]]
    names: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


class Layout(Protocol):
    """How a data set lies on the disk.  Everything it refuses is a `UserError` that names a file.

    Attributes:
        name: of the layout, for the command line.
    """

    @property
    def name(self) -> str:
        """As users choose it."""
        ...

    def recognises(self, source: Path) -> bool:
        """Whether a folder holds a file that only this layout has."""
        ...

    def list_examples(self, source: Path, report: Report) -> Listing:
        """Look at all that can be known of a data set without decoding an image."""
        ...

    def image(self, path: Path) -> bytes:
        """What the feature `image` of a record holds, once it has been decoded without fault."""
        ...

    def image_bytes(self, path: Path) -> int:
        """How many bytes that will be."""
        ...


def shuffled(names: Iterable[str], purpose: str) -> list[str]:
    """Names in an order that follows from the seed, a purpose and the names."""

    def place(name: str) -> bytes:
        text = f"{SEED} {purpose} {name}"
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()

    return sorted(names, key=place)


def divided(names: Iterable[str], shares: Mapping[str, float]) -> dict[str, str]:
    """The split of each name.

    Args:
        shares: of each split; they add up to one.
    """
    order = shuffled(set(names), "split")
    found, begin, share_before = {}, 0, 0.0
    for split, share in shares.items():
        share_before += share
        end = round(share_before * len(order))
        found.update(dict.fromkeys(order[begin:end], split))
        begin = end
    return found


def by_split(
    examples: Iterable[Example], split_of: Callable[[Example], str]
) -> dict[str, list[Example]]:
    """Examples by their split; splits without any are left out."""
    found: dict[str, list[Example]] = {name: [] for name in (TRAINING, VALIDATION, TEST)}
    for example in examples:
        found[split_of(example)].append(example)
    return {name: members for name, members in found.items() if members}


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
