"""Images for the small form of a study that reads files, where no input is stated.

Decides where they are made: once, below the results folder, for all studies.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rich.console import Console

from experiments.cli.requests import StudyRequest
from experiments.data_sets.convert import convert
from experiments.data_sets.layouts.class_folders import ClassFolders
from experiments.data_sets.sample_images import write_samples
from experiments.sweep.progress import counting_bar
from experiments.sweep.sweep import QUICK
from ps_allreduce.point.inputs.data import RecordFiles, Synthetic
from ps_allreduce.point.inputs.image_files import ImageFiles

#: Below the results folder.
FOLDER = "samples"


def with_samples(request: StudyRequest, console: Console) -> StudyRequest:
    """The request with synthetic images, TFRecord files and loose images as its inputs.

    As it is where a model or inputs are stated, or where the study's form makes none.

    Raises:
        UserError: the results folder cannot be written.
    """
    small = request.study.small
    asked, is_quick = request.workload, request.sweep.profile.name == QUICK
    if small is None or small.samples is None or not is_quick or asked.inputs or asked.model:
        return request
    loose = request.launcher.results / FOLDER / small.samples.name
    with counting_bar(console, "images made") as report:
        write_samples(small.samples, loose, report)
    records = loose.with_name(f"{loose.name}-tfrecord")
    made = convert(ClassFolders(), loose, records, partial(counting_bar, console))
    inputs = (
        Synthetic(),
        RecordFiles.found_in(records / made.manifests[0].split),
        ImageFiles.found_in(loose),
    )
    pixels = asked.image_size or small.samples.pixels
    return replace(request, workload=replace(asked, inputs=inputs, image_size=pixels))
