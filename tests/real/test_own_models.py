"""Models as users write them: the suite trains them as Keras does, or says in a sentence why not."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ps_allreduce.point.architectures import OwnModel
from ps_allreduce.point.data import Data, OwnDataset, Synthetic
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.optimizers import Adam, AdamW, Momentum, Optimizer
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    SynchronousServers,
)
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.records import Status
from tests.cluster import LocalLauncher
from tests.real.gate import TOLERANCE, Compare
from tests.real.points import launch, output_of, point

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("need_tensorflow", "two_cores")]

MODULE = Path(__file__).with_name("model_kinds.py")


@pytest.fixture(scope="module")
def told() -> Mapping[str, Any]:
    """What `provoked_models` prints."""
    return json.loads(output_of("provoked_models").stdout)  # type: ignore[no-any-return]


#: Some of its gradients are zero or made dense.
NOTED = {
    "two_embeddings": {"the gradient of embedding_1/embeddings is sparse and was made dense"},
    "frozen_layer_and_unused_one": {
        "the loss does not depend on spare/kernel: its gradient is zero",
        "the loss does not depend on spare/bias: its gradient is zero",
    },
}


def test_every_kind_of_model_has_the_gradients_of_keras(told: Mapping[str, Any]) -> None:
    kinds = told["kinds"]
    assert len(kinds) >= 16
    # 16 bits have many roundings, of which compiled and eager graphs order some in other ways.
    limits = {name: 1e-6 for name in kinds} | {"mixed_float16": 2e-3}
    apart = {name: found["gradients"] for name, found in kinds.items()}
    assert {name: value for name, value in apart.items() if value > limits[name]} == {}
    assert [name for name, found in kinds.items() if found["state"] > 1e-6] == []
    assert [name for name, found in kinds.items() if found["moved"] < 1e-6] == []
    for name, found in kinds.items():
        ours, theirs = found["loss"]
        assert ours == pytest.approx(theirs, rel=limits[name]), name
