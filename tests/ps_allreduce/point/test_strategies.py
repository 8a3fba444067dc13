"""The tables of strategies and models are complete."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from experiments.sweep.profiles import WORKLOADS
from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import MODELS, TensorSet, model_info, tensor_set
from ps_allreduce.point.strategies import TRAITS, Strategy
from ps_allreduce.point.workload import Workload

PACKAGE = Path(__file__).resolve().parents[3] / "ps_allreduce"


def test_every_strategy_has_traits_and_a_label_of_its_own() -> None:
    assert set(TRAITS) == set(Strategy)
    assert len({traits.label for traits in TRAITS.values()}) == len(Strategy)


@pytest.mark.parametrize("strategy", Strategy)
def test_traits_do_not_contradict_each_other(strategy: Strategy) -> None:
    traits = TRAITS[strategy]
    assert not (traits.uses_servers and traits.uses_collective)
    assert not (traits.deals_steps and traits.synchronous)
    assert not (traits.replicated and traits.uses_servers)


def backend_table() -> dict[str, tuple[str, str]]:
    """`_CLASSES` of the backends, read as text: importing them takes TensorFlow."""
    tree = ast.parse((PACKAGE / "backends" / "__init__.py").read_text())
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_CLASSES"
    )
    assert isinstance(table, ast.Dict)
    keys = [ast.unparse(key) for key in table.keys if key is not None]
    return dict(zip(keys, (ast.literal_eval(value) for value in table.values), strict=True))


def test_every_strategy_has_a_backend() -> None:
    assert set(backend_table()) == {f"Strategy.{strategy.name}" for strategy in Strategy}


@pytest.mark.parametrize(("module", "name"), backend_table().values())
def test_every_backend_is_there(module: str, name: str) -> None:
    path = PACKAGE.parent / (module.replace(".", "/") + ".py")
    classes = [n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)]
    assert name in classes


@pytest.mark.parametrize("name", MODELS)
def test_a_model_can_be_used_at_its_usual_size(name: str) -> None:
    info = model_info(name)
    assert 1 <= info.minimum_image_size <= info.usual_image_size


def test_every_default_workload_trains_a_model_of_the_table() -> None:
    assert all(name == workload.model and name in MODELS for name, workload in WORKLOADS.items())


@pytest.mark.parametrize("name", ["resnet50", "", "ResNet50 "])
def test_an_unknown_model_is_told_which_there_are(name: str) -> None:
    with pytest.raises(UserError) as caught:
        model_info(name)
    assert f"unknown model {name!r}" in str(caught.value)
    assert all(known in str(caught.value) for known in MODELS)


def test_tensors_are_told_by_their_name() -> None:
    tensors = tensor_set("Tensors-16-25MB")
    assert tensors is not None
    assert (tensors.count, tensors.elements) == (16, 390_625)
    assert tensor_set("Tensors-1-4KB") == TensorSet(count=1, num_bytes=4000)
    assert all(tensor_set(name) is None for name in MODELS)


@pytest.mark.parametrize("name", ["Tensors-0-1MB", "Tensors-300-1KB", "Tensors-10001-1MB"])
def test_tensors_have_an_element_each(name: str) -> None:
    with pytest.raises(UserError, match="choose 1 to 10000 tensors"):
        tensor_set(name)


def test_tensors_need_an_emulated_accelerator() -> None:
    with pytest.raises(UserError, match="computes nothing"):
        Workload(model="Tensors-16-25MB")
