"""Models as users write them: the suite trains them as Keras does, or says why not."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ps_allreduce.inspection.model_facts import FindModel, FoundModel, TriedModel, TryModel
from ps_allreduce.inspection.questions import Answer, Message
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Data, OwnDataset, Synthetic
from ps_allreduce.point.models.trained import OwnModel, Unit
from ps_allreduce.point.optimizers import Adam, AdamW, Momentum, Optimizer
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload
from ps_allreduce.record.records import Status
from tests.cluster import LocalLauncher
from tests.real.gate import TOLERANCE, Compare
from tests.real.points import launch, output_of, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]

MODULE = Path(__file__).with_name("model_kinds.py")


@pytest.fixture(scope="module")
def kinds() -> Mapping[str, Any]:
    """What `provoked_models` prints of every kind of model."""
    return json.loads(output_of("provoked_models", "kinds").stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def told() -> Mapping[str, Any]:
    """What else it prints."""
    return json.loads(output_of("provoked_models", "rest").stdout)  # type: ignore[no-any-return]


#: Some of its gradients are zero or made dense.
NOTED = {
    "two_embeddings": {"the gradient of embedding_1/embeddings is sparse and was made dense"},
    "frozen_layer_and_unused_one": {
        "the loss does not depend on spare/kernel: its gradient is zero",
        "the loss does not depend on spare/bias: its gradient is zero",
    },
}


def test_every_kind_of_model_has_the_gradients_of_keras(kinds: Mapping[str, Any]) -> None:
    assert len(kinds) >= 16
    # 16 bits have many roundings, of which compiled and eager graphs order some in other ways.
    limits = dict.fromkeys(kinds, 1e-6)
    limits |= {"mixed_float16": 2e-3, "one_inner_layer_in_float16": 2e-3}
    apart = {name: found["gradients"] for name, found in kinds.items()}
    assert {name: value for name, value in apart.items() if value > limits[name]} == {}
    assert [name for name, found in kinds.items() if found["state"] > 1e-6] == []
    assert [name for name, found in kinds.items() if found["moved"] < 1e-6] == []
    for name, found in kinds.items():
        ours, theirs = found["loss"]
        assert ours == pytest.approx(theirs, rel=limits[name]), name


def test_a_step_that_was_begun_ahead_finds_the_state_of_the_one_before(
    kinds: Mapping[str, Any],
) -> None:
    assert [name for name, found in kinds.items() if found["not_awaited"]] == []


def test_notes_say_what_becomes_of_gradients(kinds: Mapping[str, Any]) -> None:
    for name, notes in NOTED.items():
        assert notes <= set(kinds[name]["notes"])
    assert kinds["sequential"]["notes"] == []


def test_variables_are_in_the_order_of_their_creation(kinds: Mapping[str, Any]) -> None:
    created = kinds["clear_session_first"]["created"]
    assert [name.rpartition("/")[2] for name in created] == ["kernel", "bias"] * 2
    # Keras lists the statistics of batch norm, and the seeds of dropout, behind all weights.
    names = [n.rpartition("/")[2] for n in kinds["dropout_and_batch_norm"]["created"]]
    assert names.index("moving_mean") < len(names) - 2


def test_drawn_inputs_and_targets_are_in_range(kinds: Mapping[str, Any]) -> None:
    words, others, numbers = kinds["two_embeddings"]["examples"]
    assert words[0] >= 0
    assert 3 < words[1] < 50
    assert (others, type(others[0])) == ([0.0, 2.0], float)
    assert 0 <= numbers[0] < numbers[1] < 1
    assert kinds["two_outputs_with_names"]["examples"][1:] == [[0.0, 1.0], [0.0, 1.0]]
    assert kinds["augmentation"]["examples"][1][1] in (0, 1)


def test_layers_decide_the_precision(kinds: Mapping[str, Any]) -> None:
    assert kinds["mixed_float16"]["precision"] == ["mixed_float16", 1024.0]
    partly = kinds["one_inner_layer_in_float16"]
    assert partly["precision"] == ["mixed_float16", 1024.0]
    assert partly["computes_in"] == ["float16", "float32"]
    assert kinds["sequential"]["precision"] == ["float32", 1.0]


def test_ten_updates_are_those_of_keras(told: Mapping[str, Any]) -> None:
    for name, found in told["updates"].items():
        assert found["apart"] < 3e-6 * max(1.0, found["way"]), name
        assert found["way"] > 1e-3, name


def test_a_growing_rate_goes_on_where_synchronous_steps_end(told: Mapping[str, Any]) -> None:
    # Two steps of all workers are half of four; then every step of one is an eighth of them.
    assert told["rates"] == [1 / 4, 2 / 4, 5 / 8, 6 / 8, 7 / 8, 1.0, 1.0]


COMPILED = {
    "sgd": ("Sgd(learning_rate=0.1)", []),
    "momentum": ("Momentum(learning_rate=0.1, momentum=0.9, nesterov=True)", []),
    "adagrad": (
        "Adagrad(learning_rate=0.02, initial_accumulator_value=0.5, epsilon=1e-07)",
        [],
    ),
    "adam": ("Adam(learning_rate=0.002, beta_1=0.8, beta_2=0.999, epsilon=1e-07)", []),
    "decaying adam": (f"{AdamW(weight_decay=0.01)}", []),
    "adamw": (f"{AdamW()}", []),
    "excluding": (f"{AdamW()}", ["all weights decay, also those that you excluded"]),
    "lion": ("Sgd(learning_rate=0.0003)", ["trained with SGD, not your Lion"]),
    "scaled": (
        f"{Adam()}",
        [
            "the loss is scaled by a constant, not by your LossScaleOptimizer",
            "without your amsgrad",
        ],
    ),
    "schedule": (
        "Sgd(learning_rate=0.05)",
        ["the learning rate stays at 0.05, the first of your schedule"],
    ),
    "much": (
        "Sgd(learning_rate=0.1)",
        [
            "without your clipnorm 1.0",
            "without your use_ema",
            "without your gradient_accumulation_steps 4",
            "without your weight_decay 0.1",
        ],
    ),
    "global": ("Sgd(learning_rate=0.1)", ["without your global_clipnorm 2.0"]),
    "value": ("Sgd(learning_rate=0.1)", ["without your clipvalue 0.5"]),
}


@pytest.mark.parametrize("name", COMPILED)
def test_what_is_not_followed_of_an_optimizer_is_said(name: str, told: Mapping[str, Any]) -> None:
    optimizer, notes = told["compiled"][name]
    assert (optimizer, notes) == COMPILED[name]


REFUSED = {
    "own_train_step": r"_OwnStep has a train_step of its own",
    "stateful": r"variable memory/.*rnn_state, which is none of the model's",
    "look_up": r"a table or another resource of TensorFlow at .*words",
    "look_up_text": r"a table or another resource of TensorFlow at .*terms",
    "raw_variable": r"uses the tf\.Variable scale:0, which Keras does not know",
    "unseeded_noise": r"variable .*seed_generator_state, which is none of the model's",
    "assigned": r"a step assigns the trained weight .*dense.*/kernel itself, as SpectralNorm",
    "float64": r"the weight wide/kernel is float64",
    "nothing": r"nothing\(\) returned nothing and no keras\.Model",
    "another_thing": r"returned a Module of tensorflow and no keras\.Model",
    "keras_2": r"keras_2\(\) returned a Model of tf_keras and no keras\.Model: .* Keras 3",
    "not_compiled": r"the model of not_compiled\(\) is not compiled: call model\.compile",
    "raises": r"raises\(\) failed at refused_models\.py line \d+: RuntimeError: no such head$",
    "leaves": r"leaves\(\) failed at refused_models\.py line \d+: SystemExit: 3$",
    "no_inputs": r"_Silent does not tell which inputs it takes .*write a function dataset",
    "open_shape": r"input series has the open shape \(None, 3\): give keras\.Input its sizes",
    "without_loss": r"one training step failed.*No loss to compute",
    "several_numbers": r"the loss of _Several has the shape \(4, 1\): return one number",
    "width=2 dept=1": r"sized\(width: 'int', \*, depth: 'int' = 1\) .* cannot be called so: .*dept",
    "depth=1": r"cannot be called so: missing a required argument: 'width'",
    "width=two": r"sized\(\) failed at refused_models\.py line \d+: ValueError: .*two",
    "sized well": r"^$",
    "absent": r"refused_models has no function absent; it has own_train_step, stateful,",
    "dataset: generator": r"dataset\(\) uses Dataset\.from_generator",
    "dataset: function": r"dataset\(\) uses tf\.numpy_function",
    "dataset: large": r"dataset\(\) holds 104 MB of arrays in its graph, above 100 MB",
    "dataset: table": r"dataset\(\) uses a table, a variable or a dataset that was made outside",
    "dataset: batches": r"dataset\(\) yields batches: leave \.batch out",
    "dataset: shape": r"dataset\(\) yields .* the shape \(3,\), .* input \S+ takes \(2,\)",
    "dataset: inputs only": r"dataset\(\) must yield tuples \(inputs, targets\)",
    "dataset: ragged": r"dataset\(\) yields RaggedTensors",
    "dataset: list": r"dataset\(\) returned a list: return a tf\.data\.Dataset",
    "dataset: raises": r"dataset\(0, 1\) failed at refused_models\.py line \d+: ZeroDivisionError",
}


def test_every_refusal_names_the_culprit_in_a_sentence(told: Mapping[str, Any]) -> None:
    assert set(told["refused"]) == set(REFUSED)
    missed = {
        name: said
        for name, said in told["refused"].items()
        if not re.search(REFUSED[name], said) or "\n" in said
    }
    assert missed == {}


@pytest.fixture(scope="module")
def copied(data_dir: Path) -> None:
    """The module lies where tasks look for it."""
    folder = data_dir / "models" / "kinds"
    folder.mkdir(parents=True)
    shutil.copy(MODULE, folder)


A = TypeVar("A", bound=Answer)


def _answer(launcher: LocalLauncher, kind: type[A], request: Message) -> A:
    """Of a job that a fork server does."""
    (answer,) = launcher._ask(kind, request)
    return answer


@pytest.mark.usefixtures("copied")
def test_a_module_is_found(launcher: LocalLauncher) -> None:
    request = FindModel(root=str(MODULE.parent), module=MODULE.stem, function="attention")
    assert _answer(launcher, FoundModel, request) == FoundModel(
        files=("model_kinds.py",), unit=Unit.TOKENS, tokens_per_example=7, has_dataset=True
    )


@pytest.mark.usefixtures("copied")
def test_a_model_is_tried(launcher: LocalLauncher, data_dir: Path) -> None:
    workload = _workload("asks_for_much", Synthetic(), Momentum())
    tried = _answer(launcher, TriedModel, TryModel(workload=workload, data_dir=str(data_dir)))
    assert (tried.optimizer, tried.precision) == (Adam(learning_rate=0.002), Precision.FLOAT32)
    assert tried.notes == (
        "without your clipnorm 1.0",
        "without your constraint of last/kernel",
        "without XLA, with which fit would compile it",
        "the gradient of words/embeddings is sparse and was made dense",
        "the loss does not depend on spare/kernel: its gradient is zero",
        "the loss does not depend on spare/bias: its gradient is zero",
    )
    assert 0 < tried.step_s < 5
    assert tried.variables == launcher.describe(workload)


def test_a_saved_model_is_found_and_tried(
    launcher: LocalLauncher, data_dir: Path, told: Mapping[str, Any]
) -> None:
    folder = data_dir / "models" / "saved"
    folder.mkdir(parents=True)
    (folder / "mine.keras").write_bytes(base64.b64decode(told["saved"]))
    request = FindModel(root=str(folder), module="mine.keras", function="")
    found = _answer(launcher, FoundModel, request)
    assert found == FoundModel(
        files=("mine.keras",), unit=Unit.ROWS, tokens_per_example=None, has_dataset=False
    )
    model = OwnModel(name="mine.keras", module="mine.keras", function="", digest="saved")
    workload = Workload(model=model, batch_per_worker=4)
    tried = _answer(launcher, TriedModel, TryModel(workload=workload, data_dir=str(data_dir)))
    assert len([spec for spec in tried.variables if spec.trainable]) == 6


def _workload(function: str, data: Data, optimizer: Optimizer, **settings: Any) -> Workload:
    name = f"model_kinds.py:{function}"
    model = OwnModel(
        name=name, module="model_kinds", function=function, digest="kinds", has_dataset=True
    )
    return Workload(model=model, data=data, optimizer=optimizer, batch_per_worker=4, **settings)


#: As the module's model is compiled.
ADAM = Adam(epsilon=0.01)

DRAWN = _workload("trained_by_adam", Synthetic(), ADAM)
DEALT = _workload("unbuilt_subclass_without_training", OwnDataset(), Momentum(nesterov=True))
DECAYED = _workload("trained_by_adam", Synthetic(), AdamW(epsilon=0.01, weight_decay=0.1))

TRAINED: list[tuple[type[AnyStrategy], int, Workload]] = [
    (SynchronousServers, 2, DRAWN),
    (AllReduce, 2, DECAYED),
    (AllReduce, 2, DEALT),
    (SynchronousServers, 2, DEALT),
    (AsynchronousServers, 1, DECAYED),
]


def _point(strategy: type[AnyStrategy], workers: int, workload: Workload) -> Experiment:
    placed = {"placement": Policy.LARGEST_FIRST} if strategy.uses_servers else {}
    return point(strategy, workers, workload=workload, **placed)


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(("strategy", "workers", "workload"), TRAINED)
def test_strategies_train_an_own_model_like_a_single_worker(
    strategy: type[AnyStrategy],
    workers: int,
    workload: Workload,
    launcher: LocalLauncher,
    difference_from_single: Compare,
) -> None:
    assert difference_from_single(launcher, _point(strategy, workers, workload)) < TOLERANCE


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(
    ("strategy", "looked_up"),
    # Of 40 rows, 7 for each of 4 examples.  ParameterServerStrategy's input hides how many it has.
    [(AllReduce, 28), (SynchronousServers, 28), (StockAllReduce, 28), (StockServers, None)],
)
def test_workers_tell_which_gradients_are_sparse_and_how_many_rows_they_look_up(
    strategy: type[AnyStrategy], looked_up: int | None, launcher: LocalLauncher
) -> None:
    workers = 2 if strategy.uses_collective else 1
    run = launch(launcher, point(strategy, workers, workload=DRAWN))
    assert run.status is Status.OK, run.reason
    (told,) = run.sparse
    assert (told.num_rows, told.row_bytes, told.looked_up) == (40, 32, looked_up)


@pytest.mark.usefixtures("copied")
def test_an_emulated_accelerator_needs_only_the_sizes(launcher: LocalLauncher) -> None:
    compute = EmulatedCompute(forward_s=0.002, backward_s=0.002)
    workload = _workload("two_outputs_with_names", Synthetic(), ADAM, emulated=compute)
    run = launch(launcher, _point(AllReduce, 2, workload))
    assert run.status is Status.OK, run.reason
