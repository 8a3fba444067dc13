"""Print what TensorFlow does and says where the suite relies on what is not published.

One process, because an import takes seconds.  It first is what the fork server is before it forks.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

from ps_allreduce.fork_server.child import UNUSED_BY_TASKS, left_out
from ps_allreduce.fork_server.run_folder import hold_port
from ps_allreduce.tf_texts import TASK_ENVIRONMENT

with left_out(*UNUSED_BY_TASKS):
    from ps_allreduce.runner import forked_jobs

import keras
import tensorflow as tf
from tensorflow.python.distribute import parameter_server_strategy_v2
from tensorflow.python.eager import context

from ps_allreduce.exchange import private_api

Cluster = dict[str, list[str]]

HUGE = (1_000_000, 1_000_000, 1_000)


def is_asleep() -> bool:
    """No operation has run in this process."""
    present = context.context_safe()
    return present is None or not present._initialized


def said_by(function: Callable[[], Any]) -> str:
    """The text of the error that a function raises; empty if it raises none."""
    try:
        function()
    except Exception as error:
        return str(error)
    return ""


def reduce_with_nobody() -> tf.Tensor:
    """A collective that waits for another process."""
    return tf.raw_ops.CollectiveReduceV2(
        input=tf.ones([1]),
        group_size=tf.constant(2),
        group_key=tf.constant(1),
        instance_key=tf.constant(1),
        ordering_token=[],
        merge_op="Add",
        final_op="Div",
        communication_hint="ring",
    )


def aborted_collective() -> str:
    """What an operation says after a collective was aborted."""
    texts: list[str] = []
    step = tf.function(reduce_with_nobody, autograph=False)
    thread = Thread(target=lambda: texts.append(said_by(step)), daemon=True)
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, "no peer")
    thread.start()
    thread.join(20)
    return texts[0] if texts else "nothing"


def ordered_operations() -> list[str]:
    """Types of stateful operations that TensorFlow makes wait for one that came before."""

    def step() -> tf.Tensor:
        for _ in range(2):
            tf.timestamp()
            reduce_with_nobody()
            tf.raw_ops.VarHandleOp(shared_name="v", dtype=tf.float32, shape=[])
            types = {"output_types": [tf.int64], "output_shapes": [[]]}
            tf.raw_ops.IteratorV2(shared_name="i", container="", **types)
            tf.raw_ops.FIFOQueueV2(component_types=[tf.int64], shared_name="q")
        return tf.constant(0)

    graph = tf.function(step, autograph=False).get_concrete_function().graph
    return sorted({op.type for op in graph.get_operations() if op.control_inputs})


def serve(cluster: Cluster, job: str) -> tf.distribute.Server:
    """The only task of a job."""
    return tf.distribute.Server(cluster, job_name=job, task_index=0, protocol="grpc")


def served_at_taken_port() -> str:
    """What a server says whose port belongs to somebody else."""
    with socket.create_server(("", 0)) as taken:
        cluster = {"worker": [f"127.0.0.1:{taken.getsockname()[1]}"]}
        return said_by(lambda: serve(cluster, "worker"))


def slow_step() -> tf.Tensor:
    """A step that goes on while the chief leaves its result on the worker."""
    end = tf.timestamp() + 0.3
    (turns,) = tf.while_loop(lambda _: tf.timestamp() < end, lambda n: [n + 1], [tf.constant(0)])
    return tf.minimum(turns, 7)


def scheduled_on(cluster: Cluster) -> dict[str, Any]:
    """What the coordinator knows of a result that was left on the worker, and where it is."""
    task = {"type": "chief", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    result = coordinator.schedule(tf.function(slow_step, autograph=False))
    private_api.leave_on_worker(result)
    coordinator.join()
    value = private_api.value_on_worker(result)
    return {
        "copied": result.get() is not None,
        "device": private_api.memory_device(value),
        "value": value.numpy().tolist(),
    }


def served_at_held_ports() -> dict[str, Any]:
    """A cluster whose tasks are all this process, at ports that it also holds."""
    with ExitStack() as stack:
        held = [stack.enter_context(hold_port()) for _ in range(3)]
        addresses = [[f"127.0.0.1:{port.getsockname()[1]}"] for port in held]
        cluster: Cluster = dict(zip(("chief", "worker", "ps"), addresses, strict=True))
        servers = [serve(cluster, job) for job in ("worker", "ps")]
        targets = [server.target for server in servers]
        expected = [f"grpc://{cluster[job][0]}" for job in ("worker", "ps")]
        return {"served_at_held_ports": targets == expected, "left": scheduled_on(cluster)}


def named_in_tensorflow() -> list[str]:
    """Variables that files of TensorFlow set or read."""
    grpc_state = Path(tf.sysconfig.get_include(), "xla/tsl/distributed_runtime/rpc/grpc_state.h")
    files = [Path(parameter_server_strategy_v2.__file__), grpc_state]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return [name for name in (*TASK_ENVIRONMENT, *private_api.CALLS_WITHOUT_STREAM) if name in text]


def seen_of_keras() -> dict[str, Any]:
    """Of two models with a cleared session between them: creation, structure, metrics, decay."""
    layers = keras.layers
    given = {"b": keras.Input((2,), name="one"), "a": keras.Input((2,), name="two")}
    last = layers.Add()([layers.Dense(1, name=name)(given[name]) for name in ("b", "a")])
    first = keras.Model(given, {"sum": last})
    first.compile(loss="mse")
    keras.utils.clear_session()
    second = keras.Sequential([keras.Input((2,)), layers.Dense(1, name="later")])
    variables = [*second.variables, *reversed(first.variables)]
    variables.sort(key=lambda variable: private_api.creation_number(variable.value))
    plain, excluding = keras.optimizers.AdamW(), keras.optimizers.AdamW()
    excluding.exclude_from_weight_decay(var_names=["bias"])
    return {
        "created": ["/".join(variable.path.split("/")[-2:]) for variable in variables],
        "inputs": {key: tensor.name for key, tensor in private_api.input_structure(first).items()},
        "outputs": list(private_api.output_structure(first)),
        "of_sequential": list(private_api.input_structure(second).shape),
        "metrics": [variable.path for variable in private_api.metric_variables(first)],
        "excludes": [private_api.excludes_from_decay(each) for each in (plain, excluding)],
    }


def strategies_seen() -> list[bool]:
    """Whether there is a strategy, in its scope, as if there were none, and in its scope again."""
    seen = []
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        seen.append(tf.distribute.has_strategy())
        with private_api.without_strategy():
            seen.append(tf.distribute.has_strategy())
        seen.append(tf.distribute.has_strategy())
    return seen


def main() -> None:
    """Provoke everything; what is written to standard error before is what an import says."""
    findings: dict[str, Any] = {"asleep": is_asleep(), "version": tf.__version__}
    findings["checked_with"] = private_api.CHECKED_WITH
    findings["loaded"] = sorted(sys.modules.keys() & set(UNUSED_BY_TASKS))
    sys.stderr.write("imported\n")
    sys.stderr.flush()
    os.environ.update(TASK_ENVIRONMENT)
    findings["ordered_before"] = ordered_operations()
    private_api.leave_unordered()
    findings["ordered_after"] = ordered_operations()
    random = tf.function(lambda: tf.random.uniform(HUGE), autograph=False)
    findings["out_of_memory"] = [said_by(lambda: tf.fill(HUGE, 1.0)), said_by(random)]
    findings["unwritable"] = said_by(lambda: tf.io.TFRecordWriter("/nowhere/x"))
    findings["port_taken"] = served_at_taken_port()
    findings["renamed"] = said_by(lambda: private_api.require(object(), "RemoteValueImpl", "_x"))
    findings |= served_at_held_ports()
    findings["keras"] = seen_of_keras()
    findings["strategies"] = strategies_seen()
    findings["aborted"] = aborted_collective()
    findings["named"] = named_in_tensorflow()
    sys.stdout.write(json.dumps(findings) + "\n")
    sys.stdout.flush()
    os._exit(0 if forked_jobs.JOBS else 1)


if __name__ == "__main__":
    main()
