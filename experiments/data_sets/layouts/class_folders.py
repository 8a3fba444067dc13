"""The layout `class-folders`: a folder of images for each class, as ImageNet's is used.

Decides that classes are numbered in alphabetical order over all splits, as most readers of such
folders do (`torchvision.datasets.ImageFolder`, `keras.utils.image_dataset_from_directory`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from experiments.data_sets.encoded_images import SUFFIXES, EncodedImages, entries
from experiments.data_sets.listing import TEST, TRAINING, VALIDATION, Example, Listing, Report
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import ExampleForm

#: Folders of splits, as they are called.
_SPLITS = {"train": TRAINING, "val": VALIDATION, "test": TEST}

_UNLABELLED, _OTHERS = "test images that have no label", "files that are no images"


class ClassFolders(EncodedImages):
    """`<class>/*`, or `train/<class>/*` with `val/<class>/*` and `test/<class>/*` where there are.

    Images in `test` itself have no label; they are left out and counted.
    """

    name = "class-folders"

    def recognises(self, source: Path) -> bool:
        """Never: folders of images are a part of other layouts, too."""
        return False

    def list_examples(self, source: Path, report: Report) -> Listing:
        """All images below folders of classes.

        Raises:
            UserError: a folder of a class is empty, images of `train` or `val` have no folder, or
                there are fewer than two classes.
        """
        left_out: Counter[str] = Counter()
        found = {
            split: _images_by_class(source, folder, split, left_out, report)
            for split, folder in _split_folders(source).items()
        }
        names = sorted({name for classes in found.values() for name in classes})
        if len(names) < 2:
            raise UserError(
                f"{source} needs at least two folders of images, one for each class, in itself or "
                f"in {source}/train; found {len(names)}."
            )
        labels = {name: (number,) for number, name in enumerate(names)}
        splits = {
            split: [
                Example(path=path, labels=labels[name])
                for name, paths in classes.items()
                for path in paths
            ]
            for split, classes in found.items()
            if classes
        }
        form = ExampleForm(num_outputs=len(names))
        return Listing(form=form, splits=splits, names=tuple(names), left_out=left_out)


def _split_folders(source: Path) -> dict[str, str]:
    """The folder of each split below the source; that of a class may be called `train` as well."""
    if "train" in (inside := entries(source).folders) and entries(source / "train").folders:
        return {split: folder for folder, split in _SPLITS.items() if folder in inside}
    return {TRAINING: ""}


def _images_by_class(
    source: Path, folder: str, split: str, left_out: Counter[str], report: Report
) -> dict[str, list[str]]:
    """Paths below the source by the class; what else there is gets counted."""
    inside = entries(source / folder)
    if inside.images and split != TEST:
        raise UserError(
            f"{source / folder / inside.images[0]} is in no folder of a class, so its label is "
            f"unknown: sort the images of {source / folder} into folders, one for each class."
        )
    left_out.update({_UNLABELLED: len(inside.images)} if inside.images else {})
    found = {}
    for done, name in enumerate(inside.folders):
        members = entries(source / folder / name)
        if not members.images:
            raise UserError(
                f"{source / folder / name} holds no image ({', '.join(SUFFIXES)}), and every "
                "folder there is a class: unpack it again, or take it away."
            )
        left_out.update({_OTHERS: members.others} if members.others else {})
        found[name] = [f"{folder}/{name}/{each}".removeprefix("/") for each in members.images]
        report(done + 1, len(inside.folders))
    return found
