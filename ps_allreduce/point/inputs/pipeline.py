"""How input files become batches: what users can set of it.

Decides the settings and their defaults.  Making the pipeline is the business of `workloads`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ps_allreduce.errors import at_least, at_most
from ps_allreduce.serialization import Columns, changed_parts, column


class Cache(StrEnum):
    """Where decoded images are kept after the first epoch."""

    NONE = "none"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Columns):
    """How every worker reads its share of input files (decision 0019).

    Attributes:
        ordered: the same examples in the same step for every number of workers, one file after the
            other; else each worker reads its own files as fast as they come.
        parallel_reads: files that are read at once; None leaves it to tf.data.
        parallel_maps: images that are decoded at once; None leaves it to tf.data.
        prefetch: batches that are ready before they are asked for; 0 for none.
        cache: where decoded images are kept after the first epoch.
        shuffle: examples among which the next one is drawn; 0 shuffles nothing.
        flips: half of the images, at random, are mirrored left to right.
        read_size: pixels of the images that are read for a model that takes none itself; None for
            those of the data.
    """

    ordered: bool = field(default=False, metadata=column("ordered_input"))
    parallel_reads: int | None = None
    parallel_maps: int | None = None
    prefetch: int = 2
    cache: Cache = Cache.NONE
    shuffle: int = 2048
    flips: bool = False
    read_size: int | None = field(default=None, metadata=column(None))

    def __post_init__(self) -> None:
        for name in ("parallel_reads", "parallel_maps", "read_size"):
            if (value := getattr(self, name)) is not None:
                at_least(1, **{name: value})
                at_most(1e4, **{name: value})
        at_least(0, prefetch=self.prefetch, shuffle=self.shuffle)
        at_most(1e4, prefetch=self.prefetch)
        at_most(1e9, shuffle=self.shuffle)

    def title_parts(self) -> list[str]:
        """What is not at its default, as `prefetch 0`, or `ordered` where it is so or not."""
        return changed_parts(self)
