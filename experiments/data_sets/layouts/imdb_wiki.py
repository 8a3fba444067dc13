"""The layout `imdb-wiki`: photographs of faces, and the age of the person on each.

Decides which images are left out and how the others are divided.  The form of the metadata, the
meaning of its fields and the formula of the age are those of the data set's own page,
data.vision.ee.ethz.ch/cvl/rrothe/imdb-wiki: Rothe, Timofte, Van Gool, "Deep expectation of real and
apparent age from a single image without facial landmarks", IJCV 126, 2018.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.data_sets.encoded_images import UNDECODABLE, EncodedImages, entries
from experiments.data_sets.listing import (
    TEST,
    TRAINING,
    VALIDATION,
    Example,
    Listing,
    Report,
    by_split,
    divided,
)
from ps_allreduce.errors import UserError
from ps_allreduce.point.inputs.data_set import ExampleForm, Target

_FIELDS = ("dob", "photo_taken", "full_path", "face_score")

#: The data set has no splits.
SHARES = {TRAINING: 0.8, VALIDATION: 0.1, TEST: 0.1}

_FACELESS = "images without a face (face_score is infinite)"
_IMPOSSIBLE = "images with an age below 0 or above 100 years"

#: MATLAB's serial number of 1970-01-01, where NumPy's days begin; 1 is the first day of the year 0.
_EPOCH = 719_529

_OLDEST = 100

#: What SciPy raises, depending on which byte is wrong or on the version of the file.
_UNREADABLE: tuple[type[Exception], ...]
_UNREADABLE = (*UNDECODABLE, NotImplementedError, AttributeError, MemoryError)


class ImdbWiki(EncodedImages):
    """`wiki.mat` or `imdb.mat`, and the folders of images that it names.

    The photographs of a person are in one split: a part of the persons, told by the name of the
    file up to its first underscore, falls to each.
    """

    name = "imdb-wiki"

    def recognises(self, source: Path) -> bool:
        """Whether there are metadata."""
        return bool(_metadata_files(source))

    def list_examples(self, source: Path, report: Report) -> Listing:
        """All images with a face and an age of 0 to 100 years.

        Raises:
            UserError: the metadata cannot be read or lack a field, or an image is missing.
        """
        metadata = _metadata(source)
        paths = [str(np.squeeze(each)) for each in metadata["full_path"]]
        ages = age_of(metadata["dob"], metadata["photo_taken"])
        has_face = np.isfinite(metadata["face_score"].astype(float))
        left_out: Counter[str] = Counter()
        examples = []
        for path, age, face in zip(paths, ages.tolist(), has_face.tolist(), strict=True):
            if face and 0 <= age <= _OLDEST:
                examples.append(Example(path=path, labels=(age,)))
            else:
                left_out[_IMPOSSIBLE if face else _FACELESS] += 1
        _check_present(source, examples, report)
        split_of = divided(map(_person, examples), SHARES)
        return Listing(
            form=ExampleForm(target=Target.VALUE, num_outputs=1),
            splits=by_split(examples, lambda example: split_of[_person(example)]),
            left_out=left_out,
        )


def age_of(birth: npt.NDArray[Any], taken: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Whole years: `datevec(datenum(photo_taken, 7, 1) - dob)`, the first of its numbers.

    The page assumes that a photograph was taken in the middle of its year.

    Args:
        birth: MATLAB's serial numbers of days.
        taken: years.

    Returns:
        Years; -1 where a date is none.
    """
    is_date = np.isfinite(birth.astype(float)) & (np.abs(taken.astype(float)) < 10_000)
    years = np.where(is_date, taken, 1970).astype(np.int64)
    middle = (years - 1970).astype("datetime64[Y]").astype("datetime64[M]") + 6
    photo = middle.astype("datetime64[D]").astype(np.int64) + _EPOCH
    days = photo - np.floor(np.where(is_date, birth, photo).astype(float)).astype(np.int64)
    dates = (days - _EPOCH).astype("datetime64[D]")
    ages = dates.astype("datetime64[Y]").astype(np.int64) + 1970
    return np.where(is_date, ages, -1)


def _person(example: Example) -> str:
    return PurePosixPath(example.path).name.split("_")[0]


def _metadata(source: Path) -> dict[str, npt.NDArray[Any]]:
    """Fields by their names, each with one entry for every image."""
    from scipy.io import loadmat  # the other layouts do without

    path = _metadata_file(source)
    try:
        content = loadmat(path)[path.stem][0, 0]
        names = content.dtype.names or ()
    except _UNREADABLE as error:
        raise UserError(
            f"{path} does not hold the struct {path.stem} of a MATLAB 5 file ({error}): unpack it "
            "again."
        ) from error
    if missing := [each for each in _FIELDS if each not in names]:
        raise UserError(f"{path} lacks the field {', '.join(missing)}: unpack it again.")
    found = {each: np.asarray(content[each]).ravel() for each in _FIELDS}
    if len({len(values) for values in found.values()}) > 1:
        raise UserError(f"{path}: its fields do not have equally many entries: unpack it again.")
    return found


def _metadata_files(source: Path) -> list[Path]:
    return [path for name in ("wiki", "imdb") if (path := source / f"{name}.mat").exists()]


def _metadata_file(source: Path) -> Path:
    found = _metadata_files(source)
    if len(found) != 1:
        raise UserError(
            f"{source} must hold one of wiki.mat and imdb.mat beside its folders of images, as "
            f"wiki_crop.tar and imdb_crop.tar do; it holds {len(found)} of them."
        )
    return found[0]


def _check_present(source: Path, examples: list[Example], report: Report) -> None:
    """That every image is there, a look into each folder."""
    wanted: dict[str, set[str]] = {}
    for example in examples:
        path = PurePosixPath(example.path)
        if path.is_absolute() or ".." in path.parts:
            raise UserError(f"the metadata in {source} name {path}, which is outside of it.")
        wanted.setdefault(str(path.parent), set()).add(path.name)
    for done, (folder, names) in enumerate(sorted(wanted.items())):
        if missing := names - set(entries(source / folder).images):
            raise UserError(
                f"{source / folder / min(missing)} is missing, but stands in the metadata: unpack "
                "the images again."
            )
        report(done + 1, len(wanted))
    if not examples:
        raise UserError(f"the metadata in {source} name no image with a face and an age.")
