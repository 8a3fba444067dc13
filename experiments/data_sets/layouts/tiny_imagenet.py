"""The layout `tiny-imagenet`: TinyImageNet-200 as it was unpacked.

Decides that classes are numbered in alphabetical order of their WordNet numbers, and named with
the words of `words.txt`.

The data set: Stanford's course CS231n, cs231n.stanford.edu/tiny-imagenet-200.zip: 200 classes with
500 images for training and 50 for validation each, of 64x64 pixels, and 10,000 images for a test
whose labels were never published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from experiments.data_sets.encoded_images import EncodedImages, entries, text_lines
from experiments.data_sets.listing import TRAINING, VALIDATION, Example, Listing, Report
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import ExampleForm

IMAGE_SIZE = 64

_ANNOTATIONS = "val/val_annotations.txt"
_CLASSES = "wnids.txt"

#: A number by the class's WordNet number.
Numbers = Mapping[str, int]


class TinyImageNet(EncodedImages):
    """`train/<class>/images`, and `val/images` with a file of annotations.

    `wnids.txt` lists the classes, `words.txt` their names.  The images of `test` are counted and
    left out.
    """

    name = "tiny-imagenet"

    def __init__(self) -> None:
        super().__init__(IMAGE_SIZE)

    def recognises(self, source: Path) -> bool:
        """Whether there is a list of classes."""
        return (source / _CLASSES).is_file()

    def list_examples(self, source: Path, report: Report) -> Listing:
        """All images that have a label.

        Raises:
            UserError: a class, an image or an annotation is missing, or one is too many.
        """
        numbers = _numbers(source / _CLASSES)
        form = ExampleForm(num_outputs=len(numbers), image_size=IMAGE_SIZE)
        validation = _validation(source, numbers)
        num_unlabelled = len(entries(source / "test" / "images").images)
        return Listing(
            form=form,
            names=_names(source / "words.txt", numbers),
            splits={TRAINING: _training(source, numbers, report), VALIDATION: validation},
            left_out={"test images that have no label": num_unlabelled},
        )


def _numbers(path: Path) -> Numbers:
    lines = [line.strip() for line in text_lines(path)]
    for line in lines:
        if not re.fullmatch(r"n\d{8}", line):
            raise UserError(f"{path}: {line!r} is no WordNet number such as n01443537.")
    if len(set(lines)) < max(2, len(lines)):
        raise UserError(f"{path} must name two classes or more, and none of them twice.")
    return {line: number for number, line in enumerate(sorted(lines))}


def _names(path: Path, numbers: Numbers) -> tuple[str, ...]:
    """`n01443537 goldfish, Carassius auratus`."""
    words = dict(line.split("\t", 1) for line in text_lines(path) if "\t" in line)
    if missing := [each for each in numbers if each not in words]:
        raise UserError(f"{path} does not tell the words of class {missing[0]}.")
    return tuple(f"{each} {words[each].strip()}" for each in numbers)


def _training(source: Path, numbers: Numbers, report: Report) -> list[Example]:
    inside = entries(source / "train").folders
    if unknown := set(inside) - numbers.keys():
        raise UserError(f"{source / 'train' / min(unknown)} is no class that wnids.txt names.")
    found = []
    for wnid, number in numbers.items():
        folder = f"train/{wnid}/images"
        images = entries(source / folder).images
        if not images:
            raise UserError(f"{source / folder} holds no image: unpack the archive again.")
        found += [Example(path=f"{folder}/{each}", labels=(number,)) for each in images]
        report(number + 1, len(numbers))
    return found


def _validation(source: Path, numbers: Numbers) -> list[Example]:
    path = source / _ANNOTATIONS
    labels: dict[str, int] = {}
    for place, line in enumerate(text_lines(path), 1):
        image, wnid, *_ = [*line.split("\t"), ""]
        if wnid not in numbers or image in labels:
            wrong = "annotates an image again" if image in labels else "names no known class"
            raise UserError(f"{path}, line {place}, {wrong}: {line.strip()[:80]!r}.")
        labels[image] = numbers[wnid]
    images = set(entries(source / "val/images").images)
    if different := sorted(images ^ labels.keys()):
        what = "has no annotation in" if different[0] in images else "is missing, but stands in"
        raise UserError(f"{source / 'val/images' / different[0]} {what} {path}.")
    return [
        Example(path=f"val/images/{image}", labels=(labels[image],)) for image in sorted(labels)
    ]
