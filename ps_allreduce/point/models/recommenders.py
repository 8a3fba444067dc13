"""Recommender models: tables of which an example looks up a row each, and a small network.

Decides which there are, how many rows their tables have, and the power law of the ids.
Users and items of real logs follow a power law.  The exponent is the default of the generator in
HugeCTR (Wang et al., "Merlin HugeCTR: GPU-accelerated Recommender System Training and Inference",
RecSys 2022).  Its `DataGenerator` offers 0.9, 1.1 and 1.3 too.
No fitted exponent of Criteo's logs is known here.

Source of the cardinalities: the 26 categorical features of Criteo's Kaggle set (2014), as DLRM
lists them (Naumov et al., "Deep Learning Recommendation Model for Personalization and
Recommendation Systems", 2019): 33,762,577 rows.  `SmallDLRM` has a hundredth of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ps_allreduce.errors import UserError, at_most
from ps_allreduce.point.models.trained import Unit, unknown_model
from ps_allreduce.serialization import Columns, column

SMALL_TWO_TOWER, SMALL_DLRM = "SmallTwoTower", "SmallDLRM"

#: Rows of Criteo's tables, in the order of its features.
CRITEO_ROWS = (
    *(1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593),
    *(3_194, 27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)

_SCALE = 100

#: Numbers of an example beside its ids: Criteo's 13 counts.
CRITEO_NUMBERS = 13

#: Elements of a row.
WIDTH = 32

HUGECTR_EXPONENT = 1.2

#: 4 GB, which each worker holds with all-reduce.
MOST_ELEMENTS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What an example of a recommender model consists of.

    Attributes:
        rows: of each table; an example looks up one row of each.
        numbers: real numbers beside the ids.
        width: elements of a row.
    """

    rows: tuple[int, ...]
    numbers: int = 0
    width: int = WIDTH

    def __post_init__(self) -> None:
        if min(*self.rows, self.width) < 1 or self.width * sum(self.rows) > MOST_ELEMENTS:
            raise UserError(
                f"tables need a row of a number each, and {MOST_ELEMENTS:g} numbers at most in "
                f"all: got {max(self.rows)} rows of {self.width}."
            )


RECOMMENDERS: Mapping[str, Tables] = {
    SMALL_TWO_TOWER: Tables(rows=(50_000, 50_000)),
    SMALL_DLRM: Tables(
        rows=tuple(max(2, -(-rows // _SCALE)) for rows in CRITEO_ROWS), numbers=CRITEO_NUMBERS
    ),
}


def tables_of(name: str) -> Tables | None:
    """Those of a model, for instance of `TwoTower-4000x64`, whose two have 4000 rows of 64.

    None if it is no recommender.

    Raises:
        UserError: the tables would be too large, or have no row.
    """
    found = re.fullmatch(r"TwoTower-([0-9]{1,9})x([0-9]{1,9})", name)
    if found is None:
        return RECOMMENDERS.get(name)
    return Tables(rows=(int(found[1]),) * 2, width=int(found[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommenderModel(Columns):
    """A model that tells as a logit whether somebody chooses something; the loss is binary.

    Attributes:
        id_exponent: of the power law of ids; 0 draws all rows evenly.
    """

    kind: ClassVar[str] = "recommender_model"
    unit: ClassVar[Unit] = Unit.ROWS
    tokens_per_example: ClassVar[None] = None
    computes: ClassVar[bool] = True

    name: str = field(default=SMALL_TWO_TOWER, metadata=column(None))
    id_exponent: float = HUGECTR_EXPONENT

    def __post_init__(self) -> None:
        if tables_of(self.name) is None:
            raise unknown_model(self.name)
        if not self.id_exponent >= 0:
            raise UserError(f"id_exponent must be at least 0, got {self.id_exponent:g}.")
        at_most(10, id_exponent=self.id_exponent)

    @property
    def tables(self) -> Tables:
        """What its examples consist of."""
        found = tables_of(self.name)
        assert found is not None
        return found
