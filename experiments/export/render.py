"""The texts of an exported training: `train.py`, how it is started, and what to know about it.

Decides which template holds which part, and how values of an experiment stand in `train.py`.  Pure:
a `Training` in, text out.
"""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from experiments.export.exported import Start, Training
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Data, Digits, InputFiles, OwnDataset, RecordFiles
from ps_allreduce.point.inputs.data_set import Pipeline
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.models import Model
from ps_allreduce.point.models.trained import (
    SMALL_CNN,
    SMALL_GPT,
    SMALL_VIT,
    ImageModel,
    OwnModel,
    TextModel,
)
from ps_allreduce.point.optimizers import OnRows, Optimizer
from ps_allreduce.point.resources import Device
from ps_allreduce.point.strategies import AllReduce, AsynchronousServers
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import Precision, Workload
from ps_allreduce.record.variables import MADE_DENSE

TEMPLATES = Path(__file__).resolve().parent / "templates"

#: Blanks before a line of a method.
IN_METHOD = 8

#: What draws random examples, by the kind of model; others than these say it themselves.
_DRAWN_BY = {"image": "told", "text": "next_tokens"}

#: How many images there are of those that the suite makes: scikit-learn's.
NUM_DIGITS = 1797

#: What starts a training, by how: the template and the name of the file.
STARTS: Mapping[Start, str] = {
    Start.LOCAL: "launch.sh",
    Start.SSH: "launch_ssh.sh",
    Start.SLURM: "job.sbatch",
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of one file; `runs` if it is a program."""

    name: str
    text: str
    runs: bool = False


def render(training: Training) -> list[Rendered]:
    """All files that are made from templates."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"literal": quoted, "sh": shlex.quote}
    context = {**_context(training), **_surroundings(training)}

    def text(name: str) -> str:
        return environment.get_template(f"{name}.j2").render(context)

    start = STARTS[training.start]
    return [
        Rendered("train.py", text("train.py")),
        Rendered(start, text(start), runs=True),
        Rendered("README.md", text("README.md")),
    ]


def _context(training: Training) -> dict[str, object]:
    """What `train.py` consists of."""
    experiment = training.experiment
    strategy, workload = experiment.strategy, experiment.of_each
    emulated = workload.emulated is not None
    return {
        "title": experiment.title,
        "experiment_id": experiment.experiment_id,
        "strategy_kind": strategy.kind,
        "servers": strategy.uses_servers,
        "plain": strategy.as_shipped,
        "collective": str(strategy.columns().get("collective") or "").upper(),
        "allreduce": strategy.uses_collective,
        "parallel": strategy.communicates(),
        "aggregation": strategy.host_aggregation,
        "num_workers": experiment.num_workers,
        "num_ps": experiment.num_ps,
        "batch_per_worker": workload.batch_per_worker,
        "accumulation": workload.accumulation,
        "threads": experiment.resources.threads_per_worker,
        "device": "/device:GPU:0" if experiment.resources.device is Device.GPU else "/device:CPU:0",
        "seed": workload.seed,
        "optimizer": (keras_optimizer_text if strategy.as_shipped else optimizer_text)(
            workload.optimizer
        ),
        "optimizer_name": workload.optimizer.applied_by,
        "messages": "" if strategy.wire is None else messages_text(strategy.wire),
        "sparse": strategy.is_sparse,
        "lazy": strategy.is_sparse and workload.optimizer.on_rows is OnRows.LAZY,
        "tables": _tables_text(training),
        "packs": _packs_text(experiment),
        "exchange": _exchange_text(experiment),
        "precision": "" if workload.precision is Precision.FLOAT32 else workload.precision.value,
        "training_template": f"training_{_family(experiment)}.py.j2",
        "validated_by": "The chief" if strategy.uses_servers else "The first worker",
        "emulated": emulated,
        **_model_context(experiment),
        **_data_context(training),
    }


def _family(experiment: Experiment) -> str:
    if experiment.strategy.as_shipped:
        return "plain"
    return "servers" if experiment.strategy.uses_servers else "replicas"


def _packs_text(experiment: Experiment) -> str:
    strategy = experiment.strategy
    if not isinstance(strategy, AllReduce) or strategy.packed_bytes is None:
        return ""
    settings = {"bytes_per_pack": strategy.packed_bytes, "collective": strategy.collective.value}
    return call_text("PackedMeans", settings)


def _tables_text(training: Training) -> str:
    """Where rows of tables are on servers, as `exchange.stacking.Stack`; empty where nothing is."""
    stack = training.stack
    if stack is None:
        return ""
    placed = {
        "rows": stack.rows,
        "num_servers": stack.num_servers,
        "servers": stack.servers,
    }
    told = [f"{name}={value!r}" for name, value in placed.items()]
    return lines_of_call("Stack", [*told, f"rule=RowRule.{stack.rule.name}"])


def _exchange_text(experiment: Experiment) -> str:
    """How the exchange with servers is made."""
    strategy = experiment.strategy
    common = ["self._held", "MESSAGES", "NUM_WORKERS"]
    tables = ["tables=self._tables"] if strategy.is_sparse else []
    if isinstance(strategy, AsynchronousServers):
        bounds = [str(strategy.staleness), str(strategy.steps_per_dispatch)]
        arguments = [*common, "DEVICE", "self._coordinator", *bounds, *tables]
        return lines_of_call("AsynchronousExchange", arguments, IN_METHOD)
    hosts = ["workers_by_host(cluster)"] if strategy.host_aggregation else []
    arguments = [*common, "NUM_SERVERS", "DEVICE", *hosts, *tables]
    return lines_of_call("SynchronousExchange", arguments, IN_METHOD)


def _model_context(experiment: Experiment) -> dict[str, object]:
    model = experiment.workload.model
    kind = _kind_of(model)
    arguments = arguments_text(model.arguments) if isinstance(model, OwnModel) else ""
    return {
        "model": model,
        "model_template": f"model_{kind}.py.j2",
        "model_arguments": arguments,
        "own": isinstance(model, OwnModel),
        "own_module": kind == "own",
        "text": kind == "text",
        "tied": model.name == SMALL_GPT,
        "small_cnn": model.name == SMALL_CNN,
        "small_vit": model.name == SMALL_VIT,
        "transformer": "small_gpt" if kind == "text" else "small_vit" * (model.name == SMALL_VIT),
        "drawn_by": _DRAWN_BY.get(kind, "examples_for"),
        "rate_text": _rate_text(experiment),
    }


def _kind_of(model: Model) -> str:
    if isinstance(model, OwnModel):
        return "own" if model.function else "saved"
    return "text" if isinstance(model, TextModel) else "image"


def _rate_text(experiment: Experiment) -> str:
    """What stands at the end of a line of the log."""
    model, unit = experiment.workload.model, experiment.workload.unit
    text = f"{{rate:.1f}} {unit.counted}/s"
    if model.tokens_per_example is None:
        return text
    return f"{text}  {{rate * {model.tokens_per_example}:.0f}} tokens/s"


def _data_context(training: Training) -> dict[str, object]:
    workload = training.experiment.workload
    data = workload.data
    read = isinstance(data, InputFiles | Digits)
    kind = "own" if isinstance(data, OwnDataset) else "records" if read else "drawn"
    return {
        "data_template": f"data_{kind}.py.j2",
        "drawn": kind == "drawn",
        "data_kind": kind,
        "loose": isinstance(data, ImageFiles),
        "data_path": f"Path({quoted(data.path)})"
        if isinstance(data, InputFiles)
        else 'HERE / "data"',
        "num_examples": _num_examples(data),
        "images": _images_text(workload),
        "reading": _reading_text(workload),
    }


def _num_examples(data: Data) -> int | None:
    """As far as somebody has counted them."""
    if isinstance(data, RecordFiles):
        return data.num_records
    return data.num_files if isinstance(data, ImageFiles) else NUM_DIGITS


def _images_text(workload: Workload) -> str:
    """What images are and what becomes of them, as `reading.Images`."""
    model, data = workload.model, workload.data
    if not isinstance(data, InputFiles | Digits) or not isinstance(model, ImageModel):
        return ""
    return call_text("Images", data.form.images(model.image_size, model.num_classes))


def _reading_text(workload: Workload) -> str:
    """How files are read, as `reading.Settings`: what is not at its default."""
    plain = Pipeline().reading()
    asked = workload.reading.reading().items()
    return call_text("Settings", {name: value for name, value in asked if value != plain[name]})


def _surroundings(training: Training) -> dict[str, object]:
    """What launch files and the description say."""
    measured, record = training.measured, training.measured.record
    low, high = (None if end is None else f"{end:.1f}" for end in measured.rate.ends[1:])
    return {
        "python": sys.executable,
        "num_hosts": training.num_hosts,
        "num_tasks": len(training.tasks),
        "start": STARTS[training.start],
        "start_kind": training.start.value,
        "rate": f"{measured.rate.mean:.1f}",
        "interval": "" if low is None or high is None else f"[{low}, {high}] (95 %)",
        "launches": measured.launches_text,
        "unit": measured.unit,
        "launcher": record.experiment.launcher,
        "network": "" if record.experiment.network is None else str(record.experiment.network),
        "host": record.provenance.host,
        "cpu": record.provenance.cpu_model,
        "versions": record.provenance.versions,
        "measured_at": record.started_at,
        "notes": _notes(record.experiment),
        "cores_per_worker": record.experiment.resources.cores_per_worker,
        "better_alone": measured.better_alone,
        "label": record.experiment.strategy.label,
        "gpus": max(0 if task.gpu is None else task.gpu + 1 for task in training.tasks),
        "cores": max(max(task.cores) for task in training.tasks) + 1,
    }


#: So long may a call be that stands in one line behind a name.
LONGEST_CALL = 80


def call_text(name: str, arguments: Mapping[str, object]) -> str:
    """A call with named arguments."""
    return lines_of_call(name, [f"{key}={quoted(value)}" for key, value in arguments.items()])


def lines_of_call(name: str, arguments: Sequence[str], indent: int = 0) -> str:
    """A call in one line, or with a line for each argument where it is long."""
    short = f"{name}({', '.join(arguments)})"
    if len(short) + indent <= LONGEST_CALL:
        return short
    blanks = " " * indent
    lines = "".join(f"{blanks}    {each},\n" for each in arguments)
    return f"{name}(\n{lines}{blanks})"


def quoted(value: object) -> str:
    """A literal; texts in double quotes, in ASCII."""
    if isinstance(value, str):
        inside = ascii(value)[1:-1].replace("\\'", "'").replace('"', '\\"')
        return f'"{inside}"'
    return repr(value)


def optimizer_text(optimizer: Optimizer) -> str:
    """The rule of an optimizer, as it is made."""
    return call_text(optimizer.applied_by, asdict(optimizer))


def keras_optimizer_text(optimizer: Optimizer) -> str:
    """The same rule as what `keras.optimizers.get` takes."""
    lines = "".join(
        f'        "{key}": {quoted(each)},\n' for key, each in asdict(optimizer).items()
    )
    return f'{{\n    "class_name": "{optimizer.keras_class}",\n    "config": {{\n{lines}    }},\n}}'


def messages_text(wire: Wire) -> str:
    """How gradients are sent, as `exchange.buckets.Messages` is made."""
    return call_text("Messages", asdict(wire.messages))


def arguments_text(words: Sequence[str]) -> str:
    """`name=value` words as arguments of a call: a value is a Python literal if it is one."""
    pairs = [word.partition("=") for word in words]
    return ", ".join(f"{name}={quoted(_literal(text))}" for name, _, text in pairs)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _notes(experiment: Experiment) -> list[str]:
    """What is not done as the model asks for; gradients of rows stay sparse where rows are sent."""
    strategy, notes = experiment.strategy, getattr(experiment.workload.model, "notes", ())
    sends_rows = strategy.is_sparse or strategy.as_shipped
    return [note for note in notes if not (sends_rows and MADE_DENSE in note)]
