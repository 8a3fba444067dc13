"""How options of experiments are spelled that launchers know nothing of."""

from __future__ import annotations

from pathlib import Path

from launchers.cli.types import Parsed
from ps_allreduce.errors import UserError
from ps_allreduce.point.data import Digits, RecordFiles, Synthetic
from ps_allreduce.point.workload import EmulatedCompute


def parse_emulate(text: str) -> EmulatedCompute:
    """An accelerator as `0.02,0.04`: seconds of the forward and of the backward pass.

    Raises:
        UserError: the text is not two numbers, or one of them makes no sense.
    """
    try:
        forward, backward = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(
            f"{text!r} is not two numbers of seconds; write for instance 0.02,0.04."
        ) from None
    return EmulatedCompute(forward_s=forward, backward_s=backward)


def parse_input(text: str) -> Synthetic | Digits | RecordFiles:
    """`synthetic`, `digits`, or a folder of TFRecord files, which are looked at now.

    Raises:
        UserError: it is neither.
    """
    for data in (Synthetic(), Digits()):
        if text == data.name:
            return data
    if not Path(text).is_dir():
        raise UserError(
            f"{text!r} is neither {Synthetic().name}, {Digits().name} nor a folder of TFRecord "
            "files (python -m experiments convert-images makes one)."
        )
    return RecordFiles.found_in(Path(text))


EMULATE = Parsed("forward,backward in s", parse_emulate)

INPUT = Parsed("synthetic, digits or folder", parse_input)
