"""Print what the suite makes of users' models: gradients, refusals, examples, optimizers.

`python -m tests.real.provoked_models kinds|rest`; few processes, because an import takes seconds.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ps_allreduce.backends.altered_stock import FusedUpdates
from ps_allreduce.backends.contract import scheduled_rule, update_rule
from ps_allreduce.backends.worker_step import initialise_worker
from ps_allreduce.errors import UserError
from ps_allreduce.exchange.pure_model import FLOAT16_LOSS_SCALE
from ps_allreduce.exchange.steps import traced_function
from ps_allreduce.exchange.updates import UpdateRule, WarmedUp
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset, Synthetic
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import (
    Adagrad,
    Adam,
    AdamW,
    Momentum,
    Optimizer,
    RateSchedule,
    Sgd,
)
from ps_allreduce.point.strategies import AsynchronousServers
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.workloads.inputs import make_dataset
from ps_allreduce.workloads.keras_program import RealProgram
from ps_allreduce.workloads.own_model import optimizer_of
from ps_allreduce.workloads.program import run_program
from tests.real import model_kinds, refused_models

#: Those that do not say what they take.
WITH_DATASET = {"unbuilt_subclass_without_training"}


def own_workload(module: Any, function: str, data: Any, *arguments: str) -> Workload:
    """Four examples a batch of a user's model."""
    name = Path(module.__file__).stem
    model = OwnModel(
        name=f"{name}.py:{function}",
        module=name,
        function=function,
        arguments=arguments,
        digest=name,
        has_dataset=True,
    )
    return Workload(model=model, data=data, batch_per_worker=4)


def kinds() -> dict[str, Callable[[], Any]]:
    """The functions of `model_kinds`."""
    public = {k: v for k, v in vars(model_kinds).items() if not k.startswith("_")}
    mine = {k: v for k, v in public.items() if getattr(v, "__module__", "") == model_kinds.__name__}
    return {k: v for k, v in mine.items() if k != "dataset"}


def against_keras(data_dir: Path, function: str) -> dict[str, Any]:
    """Gradients, loss and state of the suite's step, against what Keras' own step computes."""
    data = OwnDataset() if function in WITH_DATASET else Synthetic()
    workload = own_workload(model_kinds, function, data)
    if "float16" in function:  # as the trial of such a model tells
        workload = replace(workload, precision=Precision.MIXED_FLOAT16)
    program = RealProgram(workload, 2, data_dir)
    keras.config.set_dtype_policy("float32")
    # A task has one program, whose resources have always the same names.
    program.iterators = tuple(rename(each, function) for each in program.iterators)
    program.state = tuple(rename(each, function) for each in program.state)
    traced_function(lambda: initialise_worker(program, 1))()

    values, told = program.initial_values(), list[tf.Tensor]()

    def step() -> Any:
        out = run_program(program, [tf.constant(value) for value in values])
        told.append(out.loss)  # what is returned waits for everything
        return out.loss, out.gradients, out.state

    loss, gradients, state = traced_function(step)()
    dataset = make_dataset(workload, 2, 1, data_dir, program._examples)
    flat = tf.nest.flatten(next(iter(dataset)))
    batch = tf.nest.pack_sequence_as(program._structure, flat)
    reference = traced_function(lambda: plain_step(program.keras_model, batch))()
    by_id = {
        id(v): g for v, g in zip(program.keras_model.trainable_variables, reference[1], strict=True)
    }
    scale = FLOAT16_LOSS_SCALE if program.precision is Precision.MIXED_FLOAT16 else 1.0
    paired = [
        (gradient, by_id[id(variable)])
        for variable, gradient in zip(program._model.pure.trainable, gradients, strict=True)
    ]
    return {
        "loss": [float(loss), float(reference[0])],
        "gradients": max(relative(g, tf.zeros_like(g) if r is None else r) for g, r in paired),
        "moved": float(max(np.abs(g).max() for g in gradients)),
        "state": max(
            [relative(s, v) for s, v in zip(state, program._model.pure.others, strict=True)],
            default=0.0,
        ),
        "created": [spec.name for spec in program.variables],
        "notes": list(program.notes),
        "precision": [str(program.precision), scale],
        "computes_in": sorted(program._pure.computes_in),
        "not_awaited": not_awaited(told[-1]),
        "examples": [[value.numpy().min().item(), value.numpy().max().item()] for value in flat],
    }


def not_awaited(loss: tf.Tensor) -> list[str]:
    """Assignments of a step that may come after its loss is told."""
    waiting, seen = [loss.op], set[str]()
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [*(each.op for each in operation.inputs), *operation.control_inputs]
    made = [op for op in loss.graph.get_operations() if op.type == "AssignVariableOp"]
    return [op.name for op in made if op.name not in seen]


def rename(resource: Any, prefix: str) -> Any:
    """The same kind of resource under another name."""
    return replace(resource, name=f"{prefix}/{resource.name}")


def plain_step(model: keras.Model, batch: Any) -> tuple[Any, list[Any]]:
    """What `keras.Model.train_step` does before it applies the gradients, on Keras' variables.

    With a scale where there is one: without it, float16 loses digits.
    """
    x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
    with tf.name_scope("step"), tf.GradientTape() as tape:
        outputs = model(x, training=True) if model._call_has_training_arg else model(x)
        loss = model._compute_loss(x, y, outputs, weights, training=True)
        scale = 1024.0 if model.dtype_policy.compute_dtype == "float16" else 1.0
        scaled = loss * scale
    found = tape.gradient(scaled, model.trainable_variables)
    dense = [None if g is None else tf.convert_to_tensor(g) / scale for g in found]
    return loss, dense


def relative(one: Any, other: Any) -> float:
    """The largest difference, relative to the largest value where that is above one."""
    a, b = (np.asarray(value).astype(np.float64) for value in (one, other))
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1.0)) if a.size else 0.0


def refusal(data_dir: Path, function: str, *arguments: str, data: Any = None) -> str:
    try:
        workload = own_workload(refused_models, function, data or Synthetic(), *arguments)
        RealProgram(workload, 1, data_dir)
    except UserError as error:
        return str(error)
    return ""


DATASETS = (
    *("generator", "function", "large", "table", "batches", "shape", "inputs only", "ragged"),
    *("list", "raises"),
)


def refusals(data_dir: Path) -> dict[str, str]:
    """Of every function that takes no arguments, of wrong arguments, and of every dataset."""
    module = vars(refused_models)
    names = [
        name
        for name, value in module.items()
        if getattr(value, "__module__", "") == refused_models.__name__ and not name.startswith("_")
    ]
    told = {n: refusal(data_dir, n) for n in names if n not in ("sized", "dataset")}
    told |= {
        words: refusal(data_dir, "sized", *words.split())
        for words in ("width=2 dept=1", "depth=1", "width=two")
    }
    told["sized well"] = refusal(data_dir, "sized", "width=2", "depth=2")
    told["absent"] = refusal(data_dir, "absent")
    for kind in DATASETS:
        sys.modules["refused_models"].KIND = kind  # type: ignore[attr-defined]
        told[f"dataset: {kind}"] = refusal(data_dir, "sized", "width=1", data=OwnDataset())
    return told


#: Ours and Keras' own.
OPTIMIZERS: dict[str, tuple[Optimizer, Callable[[], keras.optimizers.Optimizer]]] = {
    "sgd": (Sgd(learning_rate=0.1), lambda: keras.optimizers.SGD(0.1)),
    "momentum": (Momentum(momentum=0.8), lambda: keras.optimizers.SGD(0.01, momentum=0.8)),
    "nesterov": (
        Momentum(nesterov=True),
        lambda: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    ),
    "adagrad": (
        Adagrad(learning_rate=0.01, epsilon=0.02),
        lambda: keras.optimizers.Adagrad(0.01, epsilon=0.02),
    ),
    "adam": (Adam(epsilon=1e-3), lambda: keras.optimizers.Adam(epsilon=1e-3)),
    "adamw": (AdamW(weight_decay=0.5), lambda: keras.optimizers.AdamW(weight_decay=0.5)),
}


#: Learning rates grow over so many updates.
WARMING = 4


def warmed(rate: float) -> keras.optimizers.schedules.LearningRateSchedule:
    """Keras' own schedule that does the same, from its first update on."""
    return keras.optimizers.schedules.PolynomialDecay(rate / WARMING, WARMING - 1, rate)


#: The same where rates grow.
WARMED: dict[str, tuple[Optimizer, Callable[[], keras.optimizers.Optimizer]]] = {
    "warmed sgd": (Sgd(learning_rate=0.1), lambda: keras.optimizers.SGD(warmed(0.1))),
    "warmed adagrad": (
        Adagrad(learning_rate=0.01),
        lambda: keras.optimizers.Adagrad(warmed(0.01)),
    ),
    "warmed adam": (Adam(epsilon=1e-3), lambda: keras.optimizers.Adam(warmed(0.001), epsilon=1e-3)),
}


#: Changes a variable by a gradient.
Change = Callable[[tf.Tensor], object]


def all_updated() -> dict[str, dict[str, float]]:
    """Of every optimizer: with constant and growing rates, and as altered plain TensorFlow."""
    told = {}
    for name, (ours, make) in OPTIMIZERS.items():
        told[name] = updated(partial(ruled, update_rule(ours)), make())
        told[f"altered {name}"] = updated(partial(fused, ours), make())
    for name, (ours, make) in WARMED.items():
        rule = WarmedUp(rule=update_rule(ours), num_updates=WARMING)
        told[name] = updated(partial(ruled, rule), make())
    return told


def ruled(rule: UpdateRule, variable: keras.Variable) -> Change:
    """As strategies of the suite's own apply gradients."""
    shapes = rule.slots(tuple(variable.shape))
    slots = [tf.Variable(tf.fill(shape, rule.first_slot_value)) for shape in shapes]
    handles = [slot.handle for slot in slots]
    return lambda gradient: rule.apply(variable.value.handle, handles, gradient)


def fused(optimizer: Optimizer, variable: keras.Variable) -> Change:
    """As plain TensorFlow does with the suite's optimizer."""
    updates = FusedUpdates(optimizer, [variable])
    return lambda gradient: updates.apply([gradient])


def rates_of_switching() -> list[float]:
    """Of two workers, whose first two of four steps with growing rates are synchronous."""
    point = Experiment(
        strategy=AsynchronousServers(synchronous_steps=2),
        num_workers=2,
        workload=Workload(
            optimizer=Sgd(learning_rate=1.0), schedule=RateSchedule(rate_warmup_steps=4)
        ),
    )
    rules = [scheduled_rule(point, averaged=averaged) for averaged in (True, False)]
    held, count = tf.Variable(0.0), tf.Variable(0.0)

    def rate(rule: UpdateRule) -> float:
        held.assign(0.0)
        rule.apply(held.handle, [count.handle], tf.constant(-1.0))
        return float(held)

    return [rate(rules[0]) for _ in range(2)] + [rate(rules[1]) for _ in range(5)]


def updated(
    changes: Callable[[keras.Variable], Change], compiled: keras.optimizers.Optimizer
) -> dict[str, float]:
    """How far ten updates are from ten of Keras, and how far they go."""
    random = np.random.default_rng(1)
    start = random.normal(size=[50]).astype(np.float32)
    ours, theirs = keras.Variable(start), keras.Variable(start)
    change = changes(ours)

    @tf.function(autograph=False)
    def apply(gradient: tf.Tensor) -> None:
        change(gradient)

    for _ in range(10):
        gradient = tf.constant(random.normal(size=[50]).astype(np.float32))
        apply(gradient)
        compiled.apply([gradient], [theirs])
    ways = [np.asarray(v).astype(np.float64) - start for v in (ours, theirs)]
    return {"apart": float(np.abs(ways[0] - ways[1]).max()), "way": float(np.abs(ways[1]).max())}


def compiled_optimizers() -> dict[str, Any]:
    """What the suite makes of optimizers of Keras."""
    kerass = keras.optimizers
    excluding = kerass.AdamW()
    excluding.exclude_from_weight_decay(var_names=["bias"])
    decay = kerass.schedules.ExponentialDecay(0.05, 10, 0.5)
    given = {
        "sgd": kerass.SGD(0.1, nesterov=True),
        "momentum": kerass.SGD(0.1, momentum=0.9, nesterov=True),
        "adagrad": kerass.Adagrad(0.02, initial_accumulator_value=0.5),
        "adam": kerass.Adam(0.002, beta_1=0.8),
        "decaying adam": kerass.Adam(weight_decay=0.01),
        "adamw": kerass.AdamW(),
        "excluding": excluding,
        "lion": kerass.Lion(0.0003),
        "scaled": kerass.LossScaleOptimizer(kerass.Adam(amsgrad=True)),
        "schedule": kerass.SGD(decay),
        "much": kerass.SGD(
            0.1, clipnorm=1.0, use_ema=True, gradient_accumulation_steps=4, weight_decay=0.1
        ),
        "global": kerass.SGD(0.1, global_clipnorm=2.0),
        "value": kerass.SGD(0.1, clipvalue=0.5),
    }
    return {name: (repr(made), notes) for name, (made, notes) in _each(given).items()}


def _each(given: dict[str, Any]) -> dict[str, tuple[Optimizer, tuple[str, ...]]]:
    return {name: optimizer_of(compiled) for name, compiled in given.items()}


def main() -> None:
    """Print gradients of every kind of model, or everything else."""
    with tempfile.TemporaryDirectory() as name:
        data_dir = Path(name)
        told: dict[str, Any] = {}
        for module in (model_kinds, refused_models):
            file = Path(str(module.__file__))
            (data_dir / "models" / file.stem).mkdir(parents=True)
            shutil.copy(file, data_dir / "models" / file.stem)
        if sys.argv[1] == "kinds":
            told = {kind: against_keras(data_dir, kind) for kind in kinds()}
        else:
            saved = data_dir / "mine.keras"
            model_kinds.dropout_and_batch_norm().save(saved)
            told["saved"] = base64.b64encode(saved.read_bytes()).decode()
            told["updates"] = all_updated()
            told["rates"] = rates_of_switching()
            told["compiled"] = compiled_optimizers()
            told["refused"] = refusals(data_dir)
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
