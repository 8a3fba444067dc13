"""The list of loose images on a host, and which of them is damaged (TensorFlow).

Decides the order of the list: that of no class, so that a short shuffling suffices.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from ps_allreduce.errors import HostFault, InputDataError
from ps_allreduce.exchange.image_reader import line_of
from ps_allreduce.point.inputs.image_files import ImageFiles, images_below
from ps_allreduce.regular_files import open_regular
from ps_allreduce.tf_internals.texts import essence

#: So long is looked for a damaged image.
SEARCH_S = 60.0


def existing_list(data: ImageFiles, data_dir: Path) -> Path:
    """The list that was made.

    Raises:
        HostFault: it is gone.
    """
    path = data.listed_in(data_dir)
    if not path.is_file():
        raise HostFault(f"the list of images that was made in {path} is gone.")
    return path


def write_list(data: ImageFiles, data_dir: Path) -> int:
    """Look for all images, and list them if they are those that were asked for.

    Returns:
        How many there are.

    Raises:
        InputDataError: they are others, or the list cannot be written.
    """
    folder = Path(data.path)
    images = images_below(folder)
    if ImageFiles.of(folder, images) != replace(data, place=None):
        raise InputDataError(
            f"the images in {folder} on {os.uname().nodename} are not those that the sweep was "
            "planned with: copy the same files there, or begin again with these."
        )
    order = np.random.default_rng(0).permutation(len(images))
    lines = (line_of(images[at].label, images[at].name) for at in order)
    path = data.listed_in(data_dir)
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(b"".join(os.fsencode(line) + b"\n" for line in lines))
        unfinished.replace(path)
    except OSError as error:
        raise InputDataError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return len(images)


def damage_in(data: ImageFiles) -> str | None:
    """The first image that TensorFlow cannot decode, and why; None if none was found in time."""
    ends_at = time.monotonic() + SEARCH_S
    folder = Path(data.path)
    for image in images_below(folder):
        try:
            with open_regular(folder / image.name) as stream:
                tf.io.decode_image(stream.read(), channels=3, expand_animations=False)
        except (OSError, tf.errors.OpError) as error:
            reason = essence(str(error)).rstrip(".")
            return f"{folder / image.name} is damaged: {reason}."
        if time.monotonic() > ends_at:
            return None
    return None
