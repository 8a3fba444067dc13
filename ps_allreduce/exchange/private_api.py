"""Names of TensorFlow and Keras that are used here although they are not public.

Decides how each is used.  Importing this module sees that all are there: assigning to an attribute
that was renamed would fail without a word.  It executes nothing of TensorFlow, because a process
that is to fork must not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

#: The version that every item here was checked with.
CHECKED_WITH = "2.21"

#: For a chief without ParameterServerStrategy, which would set it.  TensorFlow's default sends all
#: calls to a worker in one stream: one call waits there for the step before it, and that step may
#: wait for that call.
CALLS_WITHOUT_STREAM = {"TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "False"}


def missing(item: object) -> ImportError:
    """The error for something that TensorFlow has taken away."""
    return ImportError(
        f"TensorFlow {tf.__version__} lacks what is needed here and TensorFlow does not publish: "
        f"{item}. Install TensorFlow {CHECKED_WITH}."
    )


def require(owner: object, owner_name: str, *names: str) -> None:
    """See that an object has these attributes.

    Raises:
        ImportError: it lacks one.
    """
    for name in names:
        if not hasattr(owner, name):
            raise missing(f"{owner_name}.{name}")


try:
    from tensorflow.python.distribute import distribute_lib
    from tensorflow.python.distribute.coordinator import values
    from tensorflow.python.framework import auto_control_deps, ops
except ImportError as error:
    raise missing(error) from error

require(auto_control_deps, "auto_control_deps", "ASYNC_STATEFUL_OPS")
require(values.RemoteValueImpl(None, None), "RemoteValueImpl", "_values", "_has_fetched_to_local")
require(ops.EagerTensor, "EagerTensor", "backing_device")
require(distribute_lib, "distribute_lib", "_push_per_thread_mode", "_pop_per_thread_mode")
require(distribute_lib, "distribute_lib", "_get_default_replica_mode")
require(keras.Model, "keras.Model", "_get_own_metrics")
require(keras.Layer, "keras.Layer", "_flatten_layers")

#: Operations that TensorFlow may not put in order while it traces a step.  The last are handles of
#: what a worker finds by name.
UNORDERED = frozenset(
    {
        "Timestamp",
        "CollectiveReduceV2",
        "CollectiveGatherV2",
        "VarHandleOp",
        "IteratorV2",
        "FIFOQueueV2",
    }
)


def leave_unordered() -> None:
    """Leave `UNORDERED` unordered in everything that this process traces from now on.

    TensorFlow chains all stateful operations that use no resource, in the order in which they are
    created (`AutomaticControlDependencies`).  A clock that is read for one tensor would wait for
    everything that was created before it, and a collective for the clock before it: timestamps
    would gate, and nothing would overlap.  Data and control inputs order these operations as far as
    they need it.
    """
    auto_control_deps.ASYNC_STATEFUL_OPS |= UNORDERED


def leave_on_worker(result: Any) -> None:
    """Keep a result that was just scheduled from being copied to the chief.

    The coordinator copies each result before the worker goes on, which costs a round trip.  It does
    not where it believes that this is done.
    """
    result._has_fetched_to_local = True


def value_on_worker(result: Any) -> tf.Tensor:
    """The tensor of a result that is ready, where it is; `fetch` would copy it."""
    return result._values


def memory_device(tensor: tf.Tensor) -> str:
    """The device that holds a tensor; `tensor.device` is where the operation ran."""
    return str(tensor.backing_device)


@contextmanager
def without_strategy() -> Iterator[None]:
    """Trace as if there were no distribution strategy.

    Inside of one Keras divides losses by the number of workers, because it adds their gradients.
    The suite averages gradients, so losses must stay as they are; and a loss that a user computes
    without Keras' classes is not divided.
    """
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()


def creation_number(variable: tf.Variable) -> int:
    """A number that is larger for every variable that this process creates.

    Round robin deals variables in the order of their creation, which Keras does not keep.  A
    creator scope would see it, but `keras.utils.clear_session` drops the graph that holds the scope
    (`tf.compat.v1.reset_default_graph`), and many functions that build models begin with it.
    """
    try:
        return int(variable._unique_id.rpartition("_")[2])
    except (AttributeError, ValueError):
        raise missing("BaseResourceVariable._unique_id") from None


def input_structure(model: keras.Model) -> Any:
    """The symbolic inputs of a functional model, nested as it takes them."""
    return _structure(model, "_inputs_struct")


def output_structure(model: keras.Model) -> Any:
    """The symbolic outputs of a functional model, nested as it gives them."""
    return _structure(model, "_outputs_struct")


def _structure(model: keras.Model, name: str) -> Any:
    """`model.inputs` and `model.outputs` are flat."""
    if isinstance(model, keras.Sequential):
        return (model.inputs if name == "_inputs_struct" else model.outputs)[0]
    require(model, "Functional", name)
    return getattr(model, name)


def metric_variables(model: keras.Model) -> list[keras.Variable]:
    """What metrics count, also where a model hides Keras' own metrics behind its `metrics`."""
    metrics = [*model._get_own_metrics(), *model.metrics]
    named = {id(variable): variable for metric in metrics for variable in metric.variables}
    return list(named.values())


def excludes_from_decay(optimizer: keras.optimizers.Optimizer) -> bool:
    """`exclude_from_weight_decay` was called."""
    excluded = getattr(optimizer, "_exclude_from_weight_decay", None)
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    return bool(excluded) or pattern is not None


def all_layers(layer: keras.Layer) -> list[keras.Layer]:
    """A layer and all layers inside of it, however deep; `layers` of a model are the outermost."""
    return list(layer._flatten_layers())
