"""How far weights differ, as a share of the distance trained."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.suite.gate_arms import LIMIT, Agreement, GateArm, GateVerdict, compare
from ps_allreduce.record.variables import RunWeights

Arrays = list[npt.NDArray[np.float32]]

#: Shapes of variables, and a seed for their values.
SHAPES = st.lists(st.sampled_from([(3,), (2, 3), (1, 1, 4), ()]), min_size=1, max_size=5)
SEEDS = st.integers(0, 2**32 - 1)


def drawn(shapes: list[tuple[int, ...]], seed: int) -> Arrays:
    dice = np.random.default_rng(seed)
    return [np.asarray(dice.normal(size=shape), np.float32) for shape in shapes]


def names(arrays: Arrays) -> list[str]:
    return [f"variable {number}" for number in range(len(arrays))]


def flat(arrays: Arrays) -> npt.NDArray[np.float64]:
    return np.concatenate([array.ravel() for array in arrays]).astype(np.float64)


@given(SHAPES, SEEDS)
def test_it_is_the_distance_of_all_weights_in_one_row(
    shapes: list[tuple[int, ...]], seed: int
) -> None:
    weights, initial, final = (drawn(shapes, seed + number) for number in range(3))
    found = compare(weights, RunWeights(initial=initial, final=final), names(final))
    way = np.linalg.norm(flat(final) - flat(initial))
    assert found.distance == pytest.approx(np.linalg.norm(flat(weights) - flat(final)) / way)
    pairs = zip(weights, final, strict=True)
    parts = [np.linalg.norm(flat([a]) - flat([b])) / way for a, b in pairs]
    assert found.furthest_distance == pytest.approx(max(parts))
    assert found.furthest == f"variable {int(np.argmax(parts))}"
    assert found.furthest_distance <= found.distance * (1 + 1e-9)


@given(SHAPES, SEEDS)
def test_a_reference_agrees_with_itself_and_who_did_not_train_is_as_far_as_it_trained(
    shapes: list[tuple[int, ...]], seed: int
) -> None:
    initial, final = drawn(shapes, seed), drawn(shapes, seed + 1)
    reference = RunWeights(initial=initial, final=final)
    assert compare(final, reference, names(final)).distance == 0
    assert compare(initial, reference, names(final)).distance == pytest.approx(1)


@given(SHAPES, SEEDS, st.sampled_from([2.0**-20, 0.5, 2.0, 2.0**20]))
def test_the_scale_of_weights_does_not_matter(
    shapes: list[tuple[int, ...]], seed: int, scale: float
) -> None:
    def found(factor: float) -> Agreement:
        weights, initial, final = (
            [np.asarray(factor * array) for array in drawn(shapes, seed + number)]
            for number in range(3)
        )
        return compare(weights, RunWeights(initial=initial, final=final), names(final))

    assert found(scale).distance == pytest.approx(found(1.0).distance)


def test_what_is_no_comparison_is_refused() -> None:
    one, two = [np.zeros(2, np.float32)], [np.ones(2, np.float32)]
    reference = RunWeights(initial=one, final=two)
    with pytest.raises(ValueError, match="shape"):
        compare([np.ones(1, np.float32)], reference, ["a"])
    with pytest.raises(ValueError, match="zip"):
        compare([*two, *two], reference, ["a", "b"])
    with pytest.raises(ValueError, match="did not train"):
        compare(two, RunWeights(initial=two, final=two), ["a"])


@pytest.mark.parametrize(
    ("distance", "verdict"),
    [
        (0.0, GateVerdict.AGREES),
        (LIMIT, GateVerdict.AGREES),
        (1.01 * LIMIT, GateVerdict.DIFFERS),
        (math.nan, GateVerdict.DIFFERS),
        (None, GateVerdict.NOT_TRAINED),
    ],
)
def test_an_arm_agrees_up_to_the_limit(distance: float | None, verdict: GateVerdict) -> None:
    found = distance is not None and Agreement(
        distance=distance, furthest="kernel", furthest_distance=distance
    )
    assert GateArm(name="", run="", reference="", agreement=found or None).verdict is verdict
