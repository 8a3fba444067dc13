"""TensorFlow has what the suite relies on although it is not published, and says what is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ps_allreduce import tf_texts as texts
from ps_allreduce.fork_server.child import ADVICE, explain_out_of_memory
from tests.real.points import output_of

pytestmark = pytest.mark.tensorflow


#: Variables of a dense layer.
KINDS = ("kernel", "bias")


@pytest.fixture(scope="module")
def findings() -> Mapping[str, Any]:
    """What `provoked_internals` prints, and what is written while it imports TensorFlow."""
    done = output_of("provoked_internals")
    return {**json.loads(done.stdout), "chatter": done.stderr.partition("imported\n")[0]}


def test_importing_all_jobs_executes_nothing_and_loads_nothing_unused(
    findings: Mapping[str, Any],
) -> None:
    assert (findings["asleep"], findings["loaded"]) == (True, [])


def test_this_version_was_checked_and_what_it_lacks_is_named(findings: Mapping[str, Any]) -> None:
    assert f"{findings['version']}.".startswith(f"{findings['checked_with']}.")
    assert "publish: RemoteValueImpl._x. Install TensorFlow" in findings["renamed"]


def test_operations_are_ordered_unless_tensorflow_is_told(findings: Mapping[str, Any]) -> None:
    unordered = {"Timestamp", "CollectiveReduceV2", "VarHandleOp", "IteratorV2", "FIFOQueueV2"}
    assert unordered <= set(findings["ordered_before"])
    assert findings["ordered_after"] == []


def test_a_result_stays_on_its_worker(findings: Mapping[str, Any]) -> None:
    assert findings["left"] == {
        "copied": False,
        "device": "/job:worker/replica:0/task:0/device:CPU:0",
        "value": 7,
    }


def test_a_task_shares_a_held_port_and_a_taken_one_is_recognised(
    findings: Mapping[str, Any],
) -> None:
    assert findings["served_at_held_ports"] is True
    assert findings["port_taken"] in texts.PORT_TAKEN


def test_tensorflow_sets_or_reads_variables_whose_effect_takes_several_tasks(
    findings: Mapping[str, Any],
) -> None:
    assert findings["named"] == ["GRPC_FAIL_FAST", "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"]


def test_keras_tells_what_it_does_not_publish(findings: Mapping[str, Any]) -> None:
    assert findings["keras"] == {
        "created": [f"{layer}/{name}" for layer in ("b", "a", "later") for name in KINDS],
        "inputs": {"b": "one", "a": "two"},
        "outputs": ["sum"],
        "of_sequential": [None, 2],
        "metrics": ["loss/total", "loss/count"],
        "excludes": [False, True],
    }


def test_a_strategy_can_be_hidden(findings: Mapping[str, Any]) -> None:
    assert findings["strategies"] == [True, False, True]


def test_want_of_memory_is_recognised(findings: Mapping[str, Any]) -> None:
    sentence = "out of memory on the host (no room for a tensor float[1000000,1000000,1000])"
    for text in findings["out_of_memory"]:
        assert explain_out_of_memory(text, "worker:0") == f"{sentence}; {ADVICE}"


def test_the_cause_is_found_in_an_error(findings: Mapping[str, Any]) -> None:
    assert texts.essence(findings["aborted"]) == "Collective ops is aborted by: no peer"
    assert texts.cause_of_file_error(findings["unwritable"]) == "No such file or directory"


def test_what_an_import_writes_is_chatter(findings: Mapping[str, Any]) -> None:
    lines = findings["chatter"].splitlines()
    assert lines
    assert [line for line in lines if not texts.CHATTER.match(line)] == []
