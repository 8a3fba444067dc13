"""Where variables would go, as text: every policy on one line, and a suggestion.

Pure: variables in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ps_allreduce.point.placement import (
    Plan,
    Policy,
    VariableSpec,
    better_num_ps,
    make_plan,
    possible_plans,
    suggest,
    useful_servers,
)


def render_placements(
    model: str, variables: Sequence[VariableSpec], num_ps: int, split_bytes: int
) -> str:
    """What every policy would do with a model on `num_ps` servers.

    Raises:
        UserError: under every policy some server would get nothing.
    """
    plans = possible_plans(variables, num_ps, split_bytes)
    impossible = [policy for policy in Policy if policy not in {plan.policy for plan in plans}]
    trainable = [spec for spec in variables if spec.trainable]
    total = sum(spec.num_bytes for spec in trainable)
    largest = max(trainable, key=lambda spec: spec.num_bytes)
    lines = [
        f"{model}: {len(trainable)} trainable variables, {total / 1e6:.1f} MB; largest "
        f"{largest.name} with {largest.num_bytes / 1e6:.1f} MB; {num_ps} servers",
        "",
        f"{'policy':<14} {'max/mean':>8}  MB (variables or shards) per server",
        *(
            f"{policy:<14} {'-':>8}  impossible: more servers than variables"
            for policy in impossible
        ),
        *(_plan_line(plan) for plan in plans),
        "",
        *_suggestion(variables, plans, num_ps, split_bytes),
    ]
    return "\n".join(lines)


def _plan_line(plan: Plan) -> str:
    loads = zip(plan.bytes_per_server(), plan.shards_per_server(), strict=True)
    servers = "  ".join(f"{load / 1e6:.2f} ({count})" for load, count in loads)
    return f"{plan.policy:<14} {plan.max_over_mean:>8.2f}  {servers}"


def _suggestion(
    variables: Sequence[VariableSpec], plans: Sequence[Plan], num_ps: int, split_bytes: int
) -> list[str]:
    best = suggest(plans)
    lines = [
        f"Suggested: {best.policy} (max/mean {best.max_over_mean:.2f}, {len(best.shards)} "
        "variables or shards)."
    ]
    limit = useful_servers(variables)
    if limit < num_ps:
        lines.append(
            f"With whole variables no more than {limit} servers can share the load of this model; "
            "more help only with partitioned."
        )
    for plan in plans:
        better = better_num_ps(plan.policy, variables, num_ps, split_bytes)
        if better < num_ps:
            fewer = make_plan(plan.policy, variables, better, split_bytes)
            lines.append(
                f"{plan.policy}: the hottest of {num_ps} servers holds {_hottest_mb(plan)} MB, "
                f"with num_ps {better} it holds {_hottest_mb(fewer)} MB; use {better} or "
                "another policy."
            )
    return lines


def _hottest_mb(plan: Plan) -> str:
    return f"{max(plan.bytes_per_server()) / 1e6:.2f}"
