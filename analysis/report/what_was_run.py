"""What was run and where, as names and values: for a reader who would repeat it.

Decides what is said of what the points of a case share: model, workers, lengths, and how gradients
are exchanged, and what becomes of sparse ones; and of machine, software and the commands that
repeat it.  What sets points apart is in their labels (`data.setting`).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data.blocks import Block, SweepResults
from analysis.data.case_names import BATCH
from analysis.data.cases import Case
from analysis.data.columns import LENGTHS
from analysis.data.setting import exchange_of
from analysis.wording import bytes_text, capital, count_text, range_text
from ps_allreduce.kernel_files import quota_text
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data_set import Target
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.optimizers import OnRows, optimizer_text
from ps_allreduce.record.records import Status
from ps_allreduce.record.variables import MADE_DENSE, SparseGradient

#: Columns of the exchange that have a shorter name here.
_SHORT = {"gradients_on_wire": "gradients"}

#: More values than this stand in the labels only.
_FEW = 3

#: So many notes about the user's own model stand in a headline.
MOST_NOTES = 2

Items = list[tuple[str, str]]


def what_was_run(case: Case) -> Items:
    """Names and values, for a reader who would repeat it."""
    own = case.conditions
    items = [
        ("model", _model_text(case)),
        *_model_items(case),
        (BATCH[own["scaling"]], f"{own['batch_per_worker']}, accumulation {own['accumulation']}"),
        ("input", _shared(case.attempts["input"])),
        ("optimizer", _optimizers_text(case)),
        (
            "worker",
            f"{own['device']}, {count_text(own['cores_per_worker'], 'core')}, "
            f"{_threads_text(case)}",
        ),
        ("launcher", own["launcher"]),
        ("profile", _profile_text(case)),
    ]
    return items + _exchange_items(case) + _further_items(case)


def _optimizers_text(case: Case) -> str:
    """Strategies that learn may have learning rates of their own."""
    trained = [record.experiment.workload for point in case.points for record in point.records]
    return "; ".join(dict.fromkeys(optimizer_text(load.optimizer) for load in trained))


def _threads_text(case: Case) -> str:
    """Of a worker; by strategy where they differ."""
    by_strategy: dict[str, set[int]] = {}
    for point in case.points:
        by_strategy.setdefault(point.setting.called, set()).add(point.threads)
    numbers = {name: " or ".join(map(str, sorted(each))) for name, each in by_strategy.items()}
    if len(set(numbers.values())) == 1:
        return f"threads {next(iter(numbers.values()))}"
    return "threads " + ", ".join(f"{name} {text}" for name, text in numbers.items())


def notes_line(case: Case) -> str:
    """What is not done as the user's own model asks for, the first of it, in a sentence.

    Sparse gradients have a sentence of their own.
    """
    notes = [note for note in _notes(case) if MADE_DENSE not in note]
    shown = "; ".join(notes[:MOST_NOTES])
    more = f"; {len(notes) - MOST_NOTES} more in the report" if len(notes) > MOST_NOTES else ""
    return f"{capital(shown)}{more}." if notes else ""


def _notes(case: Case) -> tuple[str, ...]:
    model = case.points[0].experiment.workload.model
    return model.notes if isinstance(model, OwnModel) else ()


def _model_items(case: Case) -> Items:
    """Of the user's own model: the digest of its files, arguments, and what is done otherwise."""
    own = case.conditions
    named = {
        "its files": own["model_digest"],
        "its arguments": own["model_arguments"],
        "not as it asks": "; ".join(_notes(case)) or None,
    }
    return [(name, str(value)) for name, value in named.items() if value is not None]


def _model_text(case: Case) -> str:
    own = case.conditions
    parts = [str(own["model"])]
    if own["image_size"] is not None:
        size = own["image_size"]
        channels = "" if own["channels"] is None else f" x {own['channels']}"
        parts.append(f"{size} x {size}{channels}{_learned_text(own)}")
    if case.tokens_per_example is not None:
        parts.append(f"{case.tokens_per_example} tokens in an example")
    if own["vocabulary"] is not None:
        parts.append(f"vocabulary {own['vocabulary']}")
    if own["id_exponent"] is not None:
        parts.append(f"ids drawn with exponent {own['id_exponent']:g}")
    return ", ".join(parts)


def _learned_text(own: Mapping[str, Any]) -> str:
    """What is learned of an image; nothing where weights alone are sent."""
    if own["target"] is None:
        return ""
    if own["target"] == Target.VALUE:
        return ", a value"
    return f", {own['num_classes']} {'labels' if own['target'] == Target.LABELS else 'classes'}"


def _profile_text(case: Case) -> str:
    """What a run measures other than throughput has no lengths to state."""
    own = case.conditions
    lengths = ""
    steps, seconds = (case.attempts[name].dropna() for name in LENGTHS)
    if len(steps):
        most = ""
        if own["most_warmup_steps"] is not None:
            most = (
                f", which ends at the latest when {own['most_warmup_steps']} steps and "
                f"{own['most_warmup_s']:g} s are both over"
            )
        least = f" and {_range(seconds)} s" * bool(seconds.max() > 0)
        lengths = (
            f": {own['warmup']} warm-up of at least {own['least_warmup_steps']} steps and "
            f"{own['least_warmup_s']:g} s{most}; at least {_range(steps)} steps{least} measured"
        )
    return f"{_shared(case.attempts['profile'])}{lengths}; {_repetitions_text(case)}"


def _repetitions_text(case: Case) -> str:
    """Points of the main comparison may have more than the others; each seed has one of its own."""
    launches = [p.attempts[["experiment_id", "repetition"]] for p in case.points]
    begun = [len(each.drop_duplicates()) for each in launches]
    return f"{_range(begun)} launch{'es' * (max(begun) != 1)} of a point"


def _range(values: Sequence[float] | pd.Series) -> str:
    fewest, most = min(values), max(values)
    return f"{fewest:g} to {most:g}" if most > fewest else f"{fewest:g}"


def _shared(values: pd.Series) -> str:
    return ", ".join(values.dropna().unique())


def _further_items(case: Case) -> Items:
    own, items = case.conditions, []
    if own["asked_workers_per_host"] is not None:
        items.append(("workers per host", str(own["asked_workers_per_host"])))
    if case.emulated:
        forward_s, backward_s = own["emulated_forward_s"], own["emulated_backward_s"]
        text = f"emulated: forward {forward_s:g} s, backward {backward_s:g} s"
        items.append(("compute", ", ".join(filter(None, [text, differences_text(own)]))))
    return items


def differences_text(own: Mapping[str, Any]) -> str:
    """How emulated workers differ from what is stated for all of them; empty if they do not."""
    named = {"factors of workers": own["emulated_factors"], "jitter": own["emulated_jitter"]}
    return ", ".join(f"{name} {text}" for name, text in named.items() if text is not None)


def _exchange_items(case: Case) -> Items:
    """How each strategy exchanges gradients: what all its points share, and what labels tell."""
    by_strategy: dict[str, list[dict[str, object]]] = {}
    for point in case.points:
        if point.setting.traits.communicates():
            layout = point.asked["layout"]
            settings = exchange_of(point.asked) | ({} if layout is None else {"layout": layout})
            by_strategy.setdefault(point.setting.called, []).append(settings)
    return [(f"exchange of {name}", _shared_text(each)) for name, each in by_strategy.items()]


def _shared_text(settings: Sequence[Mapping[str, object]]) -> str:
    names = dict.fromkeys(name for each in settings for name in each)
    values = {
        name: dict.fromkeys(each[name] for each in settings if name in each) for name in names
    }
    return ", ".join(f"{_SHORT.get(name, name)} {_text(all_)}" for name, all_ in values.items())


def _text(values: Collection[object]) -> str:
    told = ["none" if value is None else str(value) for value in values]
    return "as labelled" if len(told) > _FEW else " or ".join(told)


def moment_text(moment: pd.Timestamp) -> str:
    """A moment with its zone, to the second."""
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z")


def repeat_lines(results: SweepResults) -> list[str]:
    """What to type for the same runs and the same report: every command that made some of them."""
    block = results.block
    commands = dict.fromkeys(record.provenance.command for record in block.records)
    folder = shlex.quote(str(results.files.folder))
    return [
        _checkout_line(block.provenance.commit),
        "make setup",
        *(_of_environment(command) for command in commands),
        _of_environment(f"python -m analysis report -- {folder}"),
    ]


def _checkout_line(commit: str) -> str:
    """With a remark where the commit alone is not what was run."""
    name, _, remark = commit.partition(" ")
    if name.startswith("unknown"):
        return f"# the commit is not known: {remark}"
    return f"git checkout {name}{f'  # {remark}' if remark else ''}"


def _of_environment(command: str) -> str:
    """With the Python that `make setup` makes."""
    program, _, rest = command.partition(" ")
    is_python = Path(program).name.startswith("python")
    return f".venv/bin/python {rest}" if is_python else command


def provenance_items(block: Block) -> Items:
    """The runs of a block, what others used of their hosts, and what they were made with."""
    made_with = block.provenance
    foreign, begun = block.table["foreign_load"].dropna(), block.table["started_at"]
    ended = block.table["finished_at"]
    known = f" ({len(foreign)} of {len(begun)} runs)" * (len(foreign) < len(begun))
    others = f"{range_text(foreign)}{known}" if len(foreign) else "not known"
    cores = ", ".join(str(core) for core in made_with.affinity)
    quota = quota_text(made_with.processor_quota)
    return [
        ("block", block.fingerprint),
        (
            "runs",
            f"{len(begun)}, from {moment_text(begun.min())} to {moment_text(ended.max())}",
        ),
        ("processor time that others used while measuring", others),
        ("commit", ", ".join(block.table["commit"].unique())),
        ("measured program", made_with.program),
        ("versions", ", ".join(f"{name} {value}" for name, value in made_with.versions.items())),
        ("environment", made_with.environment),
        ("settings", ", ".join(f"{name}={value}" for name, value in made_with.settings.items())),
        ("started on", made_with.host),
        ("system", made_with.system),
        (
            "processor",
            f"{made_with.cpu_model}, {made_with.cpu_count} in all, usable {cores}{quota}",
        ),
        ("vector extensions", ", ".join(made_with.cpu_flags) or "none known"),
        ("memory", f"{made_with.memory_bytes / 1e9:.1f} GB"),
    ]


def block_lines(results: SweepResults) -> list[str]:
    """Runs that are left out, and what sets them apart from those that are analysed; else empty."""
    lines = [
        f"{block.fingerprint}: {count_text(len(block.table), 'run')}, the last begun "
        f"{moment_text(block.table['started_at'].max())}; {'; '.join(block.differences)}."
        for block in results.older_blocks
    ]
    told = (
        "Runs of another machine, software or measured program are never pooled; the newest block "
        "is analysed. All blocks are in summary.csv."
    )
    return [told, *lines] if lines else []


def unusable_rows(results: SweepResults) -> pd.DataFrame:
    """Attempts that did not end well, where their logs lie, and why."""
    table = results.block.table
    bad = table[table["status"] != Status.OK]
    titles = {r.experiment_id: r.experiment.title for r in results.block.records}
    return pd.DataFrame(
        {
            "point": bad["experiment_id"].map(titles),
            "run": bad["run_id"].str.split("/").str[-1],
            "status": bad["status"].astype("string").str.replace("_", " "),
            "reason": bad["reason"],
            "log": bad["record_path"].str.replace(r"json$", "log", regex=True),
        }
    )


def sparse_line(case: Case) -> str:
    """What making sparse gradients dense costs, or that rows are trained to other weights.

    Empty where none is known to be sparse, and where what rows save is measured beside it.
    """
    records = [record for point in case.points for record in point.counting]
    own = [r for r in records if not r.experiment.strategy.as_shipped]
    if not any(r.experiment.strategy.communicates() for r in own):
        return ""
    if by_rows := [r.experiment for r in records if r.experiment.strategy.is_sparse]:
        return _lazy_text(by_rows)
    if not any(record.is_sparse for record in records):
        return ""
    told = [record.sparse for record in records if record.sparse]
    # ParameterServerStrategy's input does not tell the size of a batch; others' does.
    found = min(told, key=lambda each: sum(one.looked_up is None for one in each), default=())
    if not found:
        return "Some gradients are sparse, and the suite makes them dense: it exchanges all rows."
    dense = bytes_text(sum(each.dense_bytes for each in found))
    return (
        f"Gradients of {count_text(len(found), 'variable')} are sparse, and the suite makes them "
        f"dense: {dense} of float32 for each worker in a step{_touched_text(found)}."
    )


def _lazy_text(experiments: Sequence[Experiment]) -> str:
    """Settings with rows and with whole tables do the same work, and are not the same training."""
    lazy = {
        each.workload.optimizer.kind
        for each in experiments
        if each.workload.optimizer.on_rows is OnRows.LAZY and not each.strategy.as_shipped
    }
    if not lazy:
        return ""
    return (
        f"With sparse embeddings, {' and '.join(sorted(lazy))} changes the rows of a step and no "
        "others: not the weights that whole tables are trained to."
    )


def _touched_text(found: tuple[SparseGradient, ...]) -> str:
    """How much of it a step can change; empty where the graph of the step does not tell."""
    rows = [each.most_touched_rows for each in found]
    known = [each for each in rows if each is not None]
    if len(known) < len(found):
        return ""
    touched = sum(n * each.row_bytes for n, each in zip(known, found, strict=True))
    whole = sum(each.num_rows for each in found)
    if sum(known) == whole:
        return ", which may look up all of their rows"
    return (
        f", against {bytes_text(touched)} at most for the rows that it looks up ({sum(known)} of "
        f"{whole})"
    )
