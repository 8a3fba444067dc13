"""What was found out about the user's own model, as text: sizes, time, balance, and notes.

Pure: facts in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ps_allreduce.errors import UserError
from ps_allreduce.inspection.model_facts import TriedModel, trainable_parameters
from ps_allreduce.point.optimizers import optimizer_text
from ps_allreduce.point.placement import Policy, VariableSpec, default_split_bytes, make_plan

#: For so many servers the balance of every placement is told.
SERVERS = (2, 4, 8)


def render_tried(name: str, tried: TriedModel, examples: int) -> str:
    """A paragraph about a model, the balance of every placement, and every note.

    Args:
        examples: of a step of one worker.
    """
    trainable = [spec for spec in tried.variables if spec.trainable]
    largest = max(trainable, key=lambda spec: spec.num_bytes)
    parameters = trainable_parameters(trainable)
    total = sum(spec.num_bytes for spec in trainable)
    servers = ", ".join(map(str, SERVERS))
    lines = [
        f"{name}: {parameters:,} trainable parameters in {len(trainable)} variables, "
        f"{total / 1e6:.3g} MB; largest {largest.name} with {largest.num_bytes / 1e6:.3g} MB. A "
        f"step with {examples} examples takes {tried.step_s * 1e3:.3g} ms here, and a worker "
        f"{tried.peak_memory_bytes / 1e9:.1f} GB of memory. It is trained with "
        f"{optimizer_text(tried.optimizer)}, in {tried.precision}. Bytes of the hottest server "
        f"over the mean (1.00 is balanced), with {servers} servers:",
        *(_balance_line(policy, tried.variables) for policy in Policy),
        *(f"{note[:1].upper()}{note[1:]}." for note in tried.notes),
    ]
    return "\n".join(lines)


def _balance_line(policy: Policy, variables: Sequence[VariableSpec]) -> str:
    shares = (_max_over_mean(policy, variables, count) for count in SERVERS)
    return f"  {policy:<14}" + "".join(f"{share:>6}" for share in shares)


def _max_over_mean(policy: Policy, variables: Sequence[VariableSpec], num_ps: int) -> str:
    try:
        plan = make_plan(policy, variables, num_ps, default_split_bytes(variables, num_ps))
    except UserError:  # fewer variables than servers
        return "-"
    return f"{plan.max_over_mean:.2f}"
