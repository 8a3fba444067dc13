"""How close converting a data set comes to decoding its images, or to copying them.

Decides the form of `conversion.json`, which a bench leaves, and what is told of it.  Nothing is
judged: on a busy machine all three take longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ps_allreduce.errors import RecordFormatError, UserError
from ps_allreduce.record.files import read_json
from ps_allreduce.serialization import from_json

CONVERSION = "conversion.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionSpeed:
    """Images per second, in rounds of all three, one after the other.

    Attributes:
        width, height: pixels of the images, JPEGs.
        num_images: of a round.
        num_threads: of all three.
        converting: to verified TFRecord files.
        decoding: reading and decoding alone.
        copying: the same bytes, file by file.
    """

    width: int
    height: int
    num_images: int
    num_threads: int
    converting: tuple[float, ...]
    decoding: tuple[float, ...]
    copying: tuple[float, ...]

    @property
    def fraction_of_bound(self) -> float:
        """Of the slower one of decoding and copying, round by round; the middle of all rounds."""
        rounds = zip(self.converting, self.decoding, self.copying, strict=True)
        return median(made / min(decoded, copied) for made, decoded, copied in rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionSpeeds:
    """What `conversion.json` holds."""

    sizes: tuple[ConversionSpeed, ...]


def render_conversion(bench: Path, content: dict[str, Any]) -> Iterator[str]:
    """A line for each size of images; nothing where none was measured.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        found = from_json(ConversionSpeeds, read_json(bench / CONVERSION))
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecordFormatError) as error:
        raise UserError(
            f"{bench / CONVERSION} cannot be read ({error}): take it away, and make bench measures "
            "again."
        ) from error
    content["conversion"] = [_row(each) for each in found.sizes]
    yield "converting JPEGs to TFRecord files, beside the slower one of decoding and copying them"
    for row in content["conversion"]:
        yield (
            f"  {row['width']}x{row['height']}: {row['converting']:.0f} images/s converted, "
            f"{row['decoding']:.0f} decoded, {row['copying']:.0f} copied; "
            f"{row['fraction_of_bound']:.2f} of the bound, {row['num_threads']} threads"
        )


def _row(speed: ConversionSpeed) -> dict[str, Any]:
    return {
        "width": speed.width,
        "height": speed.height,
        "num_threads": speed.num_threads,
        "converting": median(speed.converting),
        "decoding": median(speed.decoding),
        "copying": median(speed.copying),
        "fraction_of_bound": speed.fraction_of_bound,
    }
