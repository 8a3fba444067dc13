"""`sweep.json`: what a sweep was asked for, and what was decided for it.

Decides that an automatic choice is made once per sweep: whoever continues the sweep gets the same
answer, even where the machine has meanwhile more cores to offer.  Another request, or another block
of machine and software, decides anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from experiments.sweep.sweep import Sweep
from ps_allreduce.errors import UserError
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.record.files import DEFINITION, read_json, write_json
from ps_allreduce.serialization import from_json, to_json

#: What a pilot answers: a number, and seconds.
LAUNCHES = "launches of the main comparison"
WINDOW = "length of windows"

#: A number of turns for each of them.
LEFT = "points that left the main comparison, and after how many turns"

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Choices:
    """Answers to the questions that a request leaves open.

    Attributes:
        request: identifies what was asked for.
        block: fingerprint of machine and software; None where the hosts are not known yet.
        answers: JSON values, by question.
    """

    request: str = ""
    block: str | None = None
    answers: dict[str, object] = field(default_factory=dict)

    def decide(self, question: str, kind: type[T], compute: Callable[[], T]) -> T:
        """The answer of before; where there is none, the one that is computed now.

        Args:
            question: in words, for instance `cores per worker`.
            kind: type of the answer, which must have a form in JSON.

        Raises:
            RecordFormatError: the stored answer has another type.
        """
        answer = self.answer(question, kind)
        if answer is None:
            answer = compute()
            self.answers[question] = to_json(answer)
        return answer

    def answer(self, question: str, kind: type[T]) -> T | None:
        """The answer of before; None where there is none.

        Raises:
            RecordFormatError: the stored answer has another type.
        """
        if question not in self.answers:
            return None
        return from_json(kind, self.answers[question], f"{DEFINITION}, choice {question!r}")


def read_choices(sweep_dir: Path, request: str, block: str | None) -> Choices:
    """The answers that were stored for this request and block; none if there are only others.

    Args:
        block: None accepts the answers of any.
    """
    fresh = Choices(request=request, block=block)
    try:
        content = read_json(sweep_dir / DEFINITION)
        decided_for, answers = content["decided_for"], dict(content["choices"])
        same = decided_for["request"] == request and block in (None, decided_for["block"])
    except (OSError, ValueError, KeyError, TypeError):
        return fresh
    return Choices(request=request, block=block, answers=answers) if same else fresh


def set_aside_damaged(sweep_dir: Path, moment: str) -> str:
    """Keep a file that cannot be used under another name; what is to be said of it, or nothing.

    Args:
        moment: the present one, for the name.

    Raises:
        UserError: it cannot be moved.
    """
    path = sweep_dir / DEFINITION
    try:
        content = read_json(path)
        _ = content["decided_for"]["request"], dict(content["choices"]), [*content["points"]]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError):
        kept = path.with_name(f"{DEFINITION}.damaged-{re.sub('[^0-9]', '', moment)}")
    else:
        return ""
    try:
        path.rename(kept)
    except OSError as error:
        raise UserError(f"cannot move {path}, which is damaged: {error.strerror}.") from error
    return (
        f"{path} cannot be used, and is kept as {kept.name}. What was chosen for this sweep is "
        "chosen anew. Runs with other links or another batch will be another case: to go on with "
        "those, interrupt this and state what they had (--bandwidth, --batch-per-worker)."
    )


def own_digests(sweep_dir: Path, name: str) -> frozenset[str]:
    """The digests of the user's own model of that name, when the sweep was last begun."""
    try:
        points = read_json(sweep_dir / DEFINITION)["points"].values()
        models = [point["workload"]["model"] for point in points]
        return frozenset(
            model["digest"]
            for model in models
            if model["kind"] == OwnModel.kind and model["name"] == name
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return frozenset()


def begun(sweep_dir: Path) -> tuple[frozenset[str], str | None]:
    """Identities of the points of the sweep that was last begun here, and its block.

    No points where none was begun.
    """
    try:
        content = read_json(sweep_dir / DEFINITION)
        return frozenset(content["points"]), content["decided_for"]["block"]
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset(), None


def save_definition(sweep: Sweep, choices: Choices, sweep_dir: Path) -> None:
    """Write what was asked for, beside the runs: seed, order, points and choices.

    Until the clock or a pilot has decided how often the main comparison is launched, the order ends
    with what is launched in any case.

    Raises:
        UserError: the folder cannot be written.
    """
    launches = sweep.main_launches if LAUNCHES in choices.answers else sweep.fewest_turns
    decided = replace(sweep, main_launches=launches)
    content = {
        "name": sweep.name,
        "seed": sweep.seed,
        "order": [f"{run.experiment.experiment_id}/{run.repetition}" for run in decided.runs()],
        "points": {point.experiment_id: point for point in sweep.points},
        "choices": choices.answers,
        "decided_for": {"request": choices.request, "block": choices.block},
    }
    write_json(sweep_dir / DEFINITION, content)
