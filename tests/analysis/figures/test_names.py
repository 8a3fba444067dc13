"""Names of files: short, readable, and never twice in a sweep."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.data.case_names import file_names
from analysis.data.cases import Case
from analysis.data.columns import CONDITIONS
from analysis.wording import slug
from tests.goldens import golden

SLOW = {"emulated_forward_s": 0.03359580052493439, "emulated_backward_s": 0.06719160104986878}
FAST = {"emulated_forward_s": 0.01679790026246719, "emulated_backward_s": 0.03359580052493438}
LONG = "/a/folder/of/somebody/who/likes/long/names/for/images/"


def case(model: str = "SmallCNN", **conditions: object) -> Case:
    return Case(
        name=model,
        conditions={**dict.fromkeys(CONDITIONS), "model": model, **conditions},
        points=(),
    )


SWEEPS: Mapping[str, list[Case]] = {
    "one case, which needs no name": [case()],
    "as much as is needed, and numbers with three digits": [
        *(
            case("ResNet50", **times, network=network)
            for times in (SLOW, FAST)
            for network in ("1.75gbit", "31.25mbit")
        ),
        case("VGG16", **SLOW, network="1.75gbit"),
    ],
    "numbers stand behind what they count": [
        case(batch_per_worker=8, asked_workers_per_host=None),
        case(batch_per_worker=8, asked_workers_per_host=2),
        case(batch_per_worker=16, asked_workers_per_host=2),
    ],
    "what only some cases have is told last": [
        case(image_size=None, input="synthetic"),
        case(image_size=64, input="/data"),
    ],
    "a digest where names would be alike": [
        *(case(least_warmup_s=seconds) for seconds in (1.0001, 1.0002)),
        *(case(model) for model in ("own", "Own")),
    ],
    "long names are cut": [case(input=LONG + end) for end in ("one", "two")],
}


def test_names_of_files() -> None:
    lines = []
    for title, cases in SWEEPS.items():
        names = file_names(cases)
        assert len({name.lower() for name in names.values()}) == len(cases)
        assert file_names(cases[::-1]) == names
        lines += [f"# {title}", *(names[each] for each in cases), ""]
    golden.check({"sentences/names.txt": "\n".join(lines)})


def test_what_may_not_stand_in_file_names_becomes_a_hyphen() -> None:
    assert slug("VGG16, input /data set, batch_per_worker 8") == (
        "VGG16-input-data-set-batch-per-worker-8"
    )
