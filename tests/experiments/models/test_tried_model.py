"""What is said of the user's own model before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.models.settle_model import render_tried
from ps_allreduce.point.optimizers import Adam, Momentum, Optimizer, Sgd
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.record.variables import MADE_DENSE
from tests.fakes import TRIED, TWO_LAYERS


def test_sizes_time_balance_and_notes_are_told() -> None:
    lines = render_tried("mine.py:build", TRIED, 16).splitlines()
    assert lines == [
        "mine.py:build: 5,480 trainable parameters in 4 variables, 0.0219 MB; largest "
        "dense/kernel with 0.0128 MB. A step with 16 examples takes 12.3 ms here, and a worker "
        "1.2 GB of memory. It is trained with adam, learning rate 0.001, beta 1 0.9, beta 2 0.999, "
        "epsilon 1e-07, in float32. Bytes of the hottest server over the mean (1.00 is balanced), "
        "with 2, 4, 8 servers:",
        *lines[1:5],
        "Trained with SGD, not your Lion.",
    ]
    assert [line.split()[0] for line in lines[1:5]] == [
        *("round_robin", "greedy", "largest_first", "partitioned")
    ]
    assert [len(line.split()) for line in lines[1:5]] == [4] * 4
    # Four variables fill no eight servers; cut, they do.
    assert [line.split()[-1] == "-" for line in lines[1:5]] == [True, True, True, False]


TABLE = VariableSpec(name="t", shape=(90, 4), dtype="float32", trainable=True, is_table=True)


@pytest.mark.parametrize(
    ("only_whole", "optimizer", "told"),
    [
        ("", Sgd(), "Rows of 1 table can be exchanged alone (--embeddings sparse)."),
        (
            "",
            Adam(),
            "Rows of 1 table can be exchanged alone (--embeddings sparse); adam then changes no "
            "others.",
        ),
        (
            "",
            Momentum(),
            "No rows of tables can be exchanged alone: sgd_momentum changes those that nobody has "
            "looked up too.",
        ),
        ("it is so", Sgd(), "No rows of tables can be exchanged alone: it is so."),
    ],
)
def test_whether_rows_can_be_exchanged_alone_is_told(
    only_whole: str, optimizer: Optimizer, told: str
) -> None:
    tried = replace(
        TRIED,
        variables=(*TWO_LAYERS, TABLE),
        only_whole=only_whole,
        optimizer=optimizer,
        notes=(f"the gradient of t {MADE_DENSE}", "without your clipnorm 1.0"),
    )
    assert render_tried("mine.py:build", tried, 1).splitlines()[-2:] == [
        "Without your clipnorm 1.0.",
        told,
    ]


def test_a_model_of_one_number_has_no_balance() -> None:
    one = VariableSpec(name="w", shape=(), dtype="float32", trainable=True)
    text = render_tried("mine.py:build", replace(TRIED, variables=(one,), notes=()), 1)
    assert "1 trainable parameters in 1 variables" in text
    assert text.splitlines()[-1].split() == ["partitioned", "-", "-", "-"]
