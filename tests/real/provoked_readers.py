"""Print what readers of files give: which examples to whom, and in which form.

`python -m tests.real.provoked_readers FOLDER`; one process, because an import takes seconds.
"""

from __future__ import annotations

import io
import json
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from ps_allreduce.exchange.reading import (
    ImageReader,
    Images,
    Reader,
    RecordReader,
    Settings,
    WorkerShare,
    endless_batches,
)
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.workloads.inputs import damage_in, write_list

#: Pixels of stored images, and of those that are read.
STORED, SIZE = 8, 6

ENCODED = Images(size=SIZE, num_outputs=3)

RAW = Images(
    encoding="uint16",
    channels=5,
    stored_size=STORED,
    size=SIZE,
    highest=1000.0,
    target="labels",
    num_outputs=4,
)

AGES = Images(stored_size=STORED, size=SIZE, target="value", num_outputs=1)


def write_records(path: Path, examples: list[tuple[bytes, list[int]]]) -> str:
    """A TFRecord file."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content, label in examples:
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[content])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=label)),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return str(path)


def encoded(mode: str, form: str, **options: object) -> bytes:
    """An image of random pixels."""
    pixels = np.random.default_rng(1).integers(0, 256, (STORED, STORED, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, form, **options)
    return stream.getvalue()


def shares(reader: Reader, num_workers: int, asked: Settings) -> list[list[bytes]]:
    """What each worker reads in an epoch."""
    return [
        list(reader.share(num_workers, tf.constant(w, tf.int64), asked, 1).as_numpy_iterator())
        for w in range(num_workers)
    ]


def shares_are_everything(folder: Path) -> int:
    """Raise an error unless each example is read by one worker; return how often was tried."""
    tried: list[int] = []

    @settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(st.integers(1, 5), min_size=1, max_size=5),
        st.integers(1, 6),
        st.sampled_from([None, 1, 3]),
        st.sampled_from([0, 7]),
    )
    def check(lengths: list[int], workers: int, reads: int | None, shuffle: int) -> None:
        files, lines = [], []
        for number, length in enumerate(lengths):
            path = folder / f"{number}-{length}.tfrecord"
            names = [f"{number}/{record}".encode() for record in range(length)]
            if not path.exists():
                write_records(path, [(name, [0]) for name in names])
            files.append(str(path))
            lines += names
        listed = folder / "list.txt"
        listed.write_bytes(b"".join(line + b"\n" for line in lines))
        asked = Settings(parallel_reads=reads, shuffle=shuffle)
        readers = (
            RecordReader(files=files, images=ENCODED),
            ImageReader(folder="", listed=str(listed), images=ENCODED),
        )
        for reader in readers:
            all_of_it = sorted(reader.everything().as_numpy_iterator())
            dealt = shares(reader, workers, asked)
            assert sorted(chain(*dealt)) == all_of_it, (lengths, workers)
            assert len(all_of_it) == sum(lengths)
        tried.append(1)

    check()
    return len(tried)


def own_files_only(folder: Path) -> bool:
    """With as many files as workers, none reads those of another."""
    files = [write_records(folder / f"own-{n}", [(b"", [n])] * 3) for n in range(3)]
    reader = RecordReader(files=files, images=ENCODED)
    return all(len(set(share)) == 1 for share in shares(reader, 3, Settings()))


def batches_of(
    reader: Reader, asked: Settings, workers: int = 1, worker: int = 0, count: int = 20
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first batches of a worker: of 6 examples together."""
    share = WorkerShare(num_workers=workers, worker=worker, batch=6 // workers, seed=3)
    endless = endless_batches(reader, asked, share)
    return list(endless.take(count).as_numpy_iterator())


def outcome(reader: Reader) -> dict[str, object]:
    ordered = Settings(ordered=True, shuffle=5, flips=True)
    first, second = batches_of(reader, ordered), batches_of(reader, ordered)
    of_two = [batches_of(reader, ordered, 2, worker) for worker in (0, 1)]
    images, targets = first[0]
    mixed = [
        np.stack([a[0], b[0]], axis=1).reshape(images.shape) for a, b in zip(*of_two, strict=True)
    ]
    lowest = min(float(batch.min()) for batch, _ in first)
    highest = max(float(batch.max()) for batch, _ in first)
    others = [
        batches_of(reader, Settings(cache=True, parallel_maps=1, prefetch=0)),
        batches_of(reader, Settings(cache=True, ordered=True, flips=True), 2, 1),
        batches_of(reader, Settings(shuffle=0, parallel_maps=3, parallel_reads=2), 3, 2),
    ]
    return {
        "shape": images.shape,
        "dtypes": [str(images.dtype), str(targets.dtype)],
        "targets": targets.shape,
        "in range": 0.0 <= lowest < highest <= 1.0,
        "batches": [len(first), *map(len, others)],
        "repeats": all(np.array_equal(a[0], b[0]) for a, b in zip(first, second, strict=True)),
        "dealt": all(np.array_equal(a[0], b) for a, b in zip(first, mixed, strict=True)),
    }


def loose_reader(folder: Path) -> ImageReader:
    """Images of all kinds that TensorFlow reads."""
    exif = Image.Exif()
    exif[274] = 6
    kinds = {
        "a/rgb.jpg": encoded("RGB", "JPEG"),
        "a/grey.jpg": encoded("L", "JPEG"),
        "a/cmyk.JPEG": encoded("CMYK", "JPEG"),
        "b/exif.jpg": encoded("RGB", "JPEG", exif=exif),
        "b/palette.gif": encoded("P", "GIF"),
        "c/with \u00e4 blank.png": encoded("RGBA", "PNG"),
        "c/grey.bmp": encoded("L", "BMP"),
    }
    for name, content in kinds.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    data = ImageFiles.found_in(folder)
    write_list(data, folder / "data")
    listed = str(data.listed_in(folder / "data"))
    return ImageReader(folder=str(folder), listed=listed, images=ENCODED)


def readers(folder: Path) -> dict[str, Reader]:
    image = encoded("RGB", "JPEG")
    raw = np.arange(STORED * STORED * 5, dtype="<u2") * 7
    some = write_records(folder / "encoded", [(image, [n % 3]) for n in range(7)])
    labels: tuple[list[int], ...] = ([], [1, 3])
    numbers = write_records(folder / "raw", [(raw.tobytes(), labels[n % 2]) for n in range(7)])
    ages = write_records(folder / "ages", [(image, [20 + n]) for n in range(7)])
    return {
        "encoded records": RecordReader(files=[some], images=ENCODED),
        "raw records": RecordReader(files=[numbers], images=RAW),
        "values": RecordReader(files=[ages], images=AGES),
        "loose images": loose_reader(folder / "loose"),
    }


def damage(folder: Path) -> str | None:
    """What is said of a damaged image."""
    path = folder / "loose" / "b" / "exif.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    return damage_in(ImageFiles.found_in(folder / "loose"))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    outcomes = {name: outcome(reader) for name, reader in readers(place).items()}
    plain = Settings(ordered=True, shuffle=0)
    targets = [batches_of(each, plain, count=1)[0][1].tolist() for each in readers(place).values()]
    told = {
        "outcomes": outcomes,
        "targets": dict(zip(outcomes, targets, strict=True)),
        "tried": shares_are_everything(place),
        "own files": own_files_only(place),
        "damage": damage(place),
    }
    sys.stdout.write(json.dumps(told) + "\n")
