"""How emulated accelerators, their factors and their jitter are typed.  Pure."""

from __future__ import annotations

import re

from launchers.cli.types import parse_decimal
from ps_allreduce.errors import UserError
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.workload import EmulatedCompute


def parse_emulate(text: str) -> EmulatedCompute:
    """An accelerator as `0.02,0.04`: seconds of the forward and of the backward pass.

    Raises:
        UserError: the text is not two numbers, or one of them makes no sense.
    """
    try:
        forward, backward = (parse_decimal(part.strip(" ")) for part in text.split(","))
    except (ValueError, UserError):  # not two, or not numbers
        raise UserError(
            f"{text!r} is not two numbers of seconds; write for instance 0.02,0.04."
        ) from None
    return EmulatedCompute(forward_s=forward, backward_s=backward)


def parse_factors(text: str) -> tuple[float, ...]:
    """The factor of every worker up to the last that is named, of `1:1.5,3:0.8`.

    Raises:
        UserError: the text is no such list, or names a worker twice.
    """
    factors: dict[int, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5}):([0-9]+(?:\.[0-9]+)?)", part)
        if match is None:
            raise UserError(
                f"{text!r} is no list of workers with a factor each; write for instance "
                "1:1.5,3:0.8."
            )
        if int(match[1]) in factors:
            raise UserError(f"{text!r} names worker {int(match[1])} twice.")
        factors[int(match[1])] = float(match[2])
    different = [worker for worker, factor in factors.items() if factor != 1]
    return tuple(factors.get(worker, 1.0) for worker in range(max(different, default=-1) + 1))


def parse_jitter(text: str) -> Jitter:
    """Jitter as `lognormal:0.1` or, with a seed, `lognormal:0.1:7`.

    Raises:
        UserError: there is no such distribution, or a number makes no sense.
    """
    match = re.fullmatch(r"([a-z]+):([0-9]+(?:\.[0-9]+)?)(?::([0-9]+))?", text)
    if match is None or match[1] not in list(Distribution):
        raise UserError(
            f"{text!r} is no jitter; write one of {', '.join(Distribution)} and its coefficient of "
            "variation, for instance lognormal:0.1, and after a colon a seed if you like."
        )
    distribution, variation = Distribution(match[1]), float(match[2])
    return Jitter(distribution=distribution, variation=variation, seed=int(match[3] or 1))
