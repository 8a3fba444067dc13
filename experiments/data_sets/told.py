"""What is said of a finished conversion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.data_sets.convert import Converted
from ps_allreduce.point.inputs.data_set import Manifest


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
