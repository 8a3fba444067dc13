"""Names of files: short, readable, and never twice in a sweep."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.data.case_names import file_names
from analysis.data.cases import Case
from analysis.data.columns import CONDITIONS
from analysis.wording import slug

SLOW = {"emulated_forward_s": 0.03359580052493439, "emulated_backward_s": 0.06719160104986878}
FAST = {"emulated_forward_s": 0.01679790026246719, "emulated_backward_s": 0.03359580052493438}


def case(model: str, conditions: Mapping[str, object]) -> Case:
    return Case(
        name=model,
        conditions={**dict.fromkeys(CONDITIONS), "model": model, **conditions},
        points=(),
    )


def names(*cases: Case) -> list[str]:
    told = file_names(cases)
    return [told[each] for each in cases]


def test_a_case_that_is_alone_needs_no_name() -> None:
    assert names(case("SmallCNN", {})) == [""]


def test_a_name_tells_as_much_as_is_needed_and_numbers_with_three_digits() -> None:
    sweep = [
        case("ResNet50", {**times, "network": network})
        for times in (SLOW, FAST)
        for network in ("1.75gbit", "31.25mbit")
    ]
    other = case("VGG16", {**SLOW, "network": "1.75gbit"})
    assert names(*sweep, other) == [
        "ResNet50-emulated-forward-0.0336s-1.75gbit",
        "ResNet50-emulated-forward-0.0336s-31.25mbit",
        "ResNet50-emulated-forward-0.0168s-1.75gbit",
        "ResNet50-emulated-forward-0.0168s-31.25mbit",
        "VGG16",
    ]
    assert names(other, *reversed(sweep)) == [*reversed(names(*sweep, other))]


def test_numbers_stand_behind_what_they_count() -> None:
    told = names(
        case("SmallCNN", {"batch_per_worker": 8, "asked_workers_per_host": None}),
        case("SmallCNN", {"batch_per_worker": 8, "asked_workers_per_host": 2}),
        case("SmallCNN", {"batch_per_worker": 16, "asked_workers_per_host": 2}),
    )
    assert told == [
        "SmallCNN-batch-per-worker-8-workers-per-host-none",
        "SmallCNN-batch-per-worker-8-workers-per-host-2",
        "SmallCNN-batch-per-worker-16-workers-per-host-2",
    ]


def test_what_only_some_cases_have_is_told_last() -> None:
    told = names(
        case("SmallCNN", {"image_size": None, "input": "synthetic"}),
        case("SmallCNN", {"image_size": 64, "input": "/data"}),
    )
    assert told == ["SmallCNN-synthetic", "SmallCNN-data"]


def test_names_that_would_be_alike_end_in_a_digest() -> None:
    told = names(
        case("SmallCNN", {"least_warmup_s": 1.0001}),
        case("SmallCNN", {"least_warmup_s": 1.0002}),
        case("own", {}),
        case("Own", {}),
    )
    assert len({name.lower() for name in told}) == 4
    assert all(name.startswith("SmallCNN-least-warmup-1s-") for name in told[:2])
    assert told == names(
        case("SmallCNN", {"least_warmup_s": 1.0001}),
        case("SmallCNN", {"least_warmup_s": 1.0002}),
        case("own", {}),
        case("Own", {}),
    )


def test_long_names_are_cut() -> None:
    long = "/a/folder/of/somebody/who/likes/long/names/for/images/"
    told = names(*(case("SmallCNN", {"input": long + end}) for end in ("one", "two")))
    assert [len(name) for name in told] == [60, 60]
    assert told[0] != told[1]
    assert all(name.startswith("SmallCNN-a-folder-of-somebody") for name in told)


def test_what_may_not_stand_in_file_names_becomes_a_hyphen() -> None:
    assert slug("VGG16, input /data set, batch_per_worker 8") == (
        "VGG16-input-data-set-batch-per-worker-8"
    )
