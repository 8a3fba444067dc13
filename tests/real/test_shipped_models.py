"""The table of Keras' applications is true, and the shipped models train, for real."""

from __future__ import annotations

import json

import pytest

from ps_allreduce.point.models.recommenders import SMALL_DLRM, SMALL_TWO_TOWER, RecommenderModel
from ps_allreduce.point.models.trained import (
    KERAS_APPLICATIONS,
    SMALL_GPT,
    SMALL_GPT_UNTIED,
    SMALL_VIT,
    ImageModel,
    TextModel,
)
from ps_allreduce.point.models.weights import PublishedModel
from ps_allreduce.point.optimizers import Adagrad, Sgd
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import AllReduce, AnyStrategy, SynchronousServers
from ps_allreduce.point.workload import EmulatedCompute, Workload
from tests.cluster import LocalLauncher
from tests.real.gate import TOLERANCE, Compare
from tests.real.points import output_of, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("two_cores")]

TRAINED = {
    SMALL_TWO_TOWER: Workload(model=RecommenderModel(), optimizer=Adagrad(), batch_per_worker=64),
    SMALL_DLRM: Workload(
        model=RecommenderModel(name=SMALL_DLRM), optimizer=Sgd(), batch_per_worker=64
    ),
    SMALL_VIT: Workload(model=ImageModel(name=SMALL_VIT), batch_per_worker=8),
    SMALL_GPT: Workload(model=TextModel(sequence_length=16), batch_per_worker=2),
    SMALL_GPT_UNTIED: Workload(
        model=TextModel(name=SMALL_GPT_UNTIED, sequence_length=16), batch_per_worker=2
    ),
}


def test_the_table_holds_what_keras_has() -> None:
    told = json.loads(output_of("provoked_applications").stdout)
    assert sorted(told["names"]) == sorted(KERAS_APPLICATIONS)
    assert len(told["built"]) > 2
    for name, outcome in told["built"].items():
        assert outcome == {"refused": True, "outputs": 7}, name


@pytest.mark.parametrize("strategy", [AllReduce, SynchronousServers])
@pytest.mark.parametrize("name", TRAINED)
def test_two_workers_train_a_shipped_model_like_one_with_the_whole_batch(
    name: str,
    strategy: type[AnyStrategy],
    launcher: LocalLauncher,
    difference_from_single: Compare,
) -> None:
    placed = {"placement": Policy.PARTITIONED} if strategy.uses_servers else {}
    experiment = point(strategy, 2, workload=TRAINED[name], **placed)
    assert difference_from_single(launcher, experiment) < TOLERANCE


def test_published_variables_are_those_that_are_sent(launcher: LocalLauncher) -> None:
    model = PublishedModel(name="ViT-B-16")
    compute = EmulatedCompute(forward_s=0.02, backward_s=0.04)
    sent = launcher.describe(Workload(model=model, emulated=compute))
    assert [(spec.shape, spec.dtype, spec.trainable) for spec in sent] == [
        (spec.shape, spec.dtype, spec.trainable) for spec in model.variables
    ]
