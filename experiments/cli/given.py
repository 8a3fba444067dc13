"""What was typed on the command line, as domain values.

`given` holds the options by name, None for what was not typed.  Every mistake is a `UserError`
with the valid choices; nothing is run here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.studies.request import Describe
from experiments.sweep.profiles import WORKLOADS, Scale, profile_named, scale_for, scale_of_hosts
from launchers import LOCAL
from launchers.options import network_from
from launchers.protocol import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import SMALL_CNN, model_info, tensor_set
from ps_allreduce.point.experiment import (
    Collective,
    Device,
    Experiment,
    Profile,
    Resources,
    server_settings,
)
from ps_allreduce.point.placement import DEFAULT_SPLIT_BYTES, Policy, usual_split_bytes
from ps_allreduce.point.spread import Coordinator, LayoutKind, Spread, workers_together
from ps_allreduce.point.strategies import TRAITS, Strategy
from ps_allreduce.point.wire import Wire, WireType
from ps_allreduce.point.workload import DIGITS, SYNTHETIC, EmulatedCompute, Precision, Workload


def profile_from(given: dict[str, Any]) -> Profile:
    """The profile, with the repetitions that were asked for."""
    profile = profile_named(given["profile"])
    repetitions = given.get("repetitions")
    return profile if repetitions is None else _replace(profile, repetitions=repetitions)


def _replace(value: Any, **changes: Any) -> Any:
    """A copy with those changes that are not None."""
    return replace(value, **{name: new for name, new in changes.items() if new is not None})


def workload_from(given: dict[str, Any], model: str) -> Workload:
    """A model's usual workload, with what was asked for instead."""
    base = WORKLOADS.get(model) or _usual_workload(model, _emulated(given["emulate"]))
    workload: Workload = _replace(
        base,
        image_size=given["image_size"],
        num_classes=given["num_classes"],
        batch_per_worker=given["batch_per_worker"],
        accumulation=given["accumulation"],
        input=_resolved(given["source"]),
        emulated=_emulated(given["emulate"]),
        precision=_choice_or_none(Precision, given["precision"], "precision"),
    )
    return workload


def _usual_workload(model: str, emulated: EmulatedCompute | None) -> Workload:
    info = model_info(model)
    if tensor_set(model) is not None:
        return Workload(model=model, batch_per_worker=1, emulated=emulated)
    return Workload(
        model=model,
        image_size=max(info.minimum_image_size, 64),
        batch_per_worker=8,
        input=WORKLOADS[SMALL_CNN].input,
        emulated=emulated,
    )


def _resolved(source: str | None) -> str | None:
    """Tasks have another working directory than the user: folders become absolute."""
    if source in (None, SYNTHETIC, DIGITS):
        return source
    if not Path(source).is_dir():
        raise UserError(
            f"input {source!r} is neither {SYNTHETIC}, {DIGITS} nor a folder of TFRecord files "
            "(python -m experiments convert-images makes one)."
        )
    return str(Path(source).resolve())


def _emulated(text: str | None) -> EmulatedCompute | None:
    if text is None:
        return None
    try:
        forward, backward = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(
            f"--emulate takes two numbers of seconds, for instance 0.02,0.04; got {text!r}."
        ) from None
    return EmulatedCompute(forward_s=forward, backward_s=backward)


def wire_from(given: dict[str, Any]) -> Wire:
    """How gradients travel: the usual settings, with what was asked for instead."""
    wire: Wire = _replace(
        Wire(),
        group_bytes=given["group_bytes"],
        cut_bytes=given["cut_bytes"],
        in_flight=given["in_flight"],
        gradients=_choice_or_none(WireType, given["gradients"], "format of gradients"),
        host_aggregation=given["host_aggregation"],
    )
    return wire


def dealing_from(given: dict[str, Any]) -> dict[str, Any]:
    """What was typed of the settings of strategies that deal steps, by their names."""
    names = ("staleness", "steps_per_dispatch")
    return {name: given[name] for name in names if given[name] is not None}


def spread_from(given: dict[str, Any]) -> Spread | None:
    """Tasks per host; None for a launcher that has one host."""
    typed = {
        "workers_per_host": given["workers_per_host"],
        "ps_per_host": given["ps_per_host"],
        "coordinator": _choice_or_none(Coordinator, given["coordinator"], "coordinator"),
    }
    settings = {name: value for name, value in typed.items() if value is not None}
    if given["launcher"] != LOCAL:
        return Spread(**settings)
    if settings:
        option = f"--{next(iter(settings)).replace('_', '-')}"
        raise UserError(f"{option}: the launcher local has one host; use another LAUNCHER.")
    return None


def device_from(given: dict[str, Any]) -> Device:
    """Where workers compute."""
    device: Device = choice(Device, given["device"], "device")
    if device is Device.GPU and given["emulate"] is not None:
        raise UserError("--emulate stands in for an accelerator: leave --device gpu out.")
    return device


def scale_from(given: dict[str, Any], profile: Profile, capacity: Capacity) -> Scale:
    """How far the axes reach: what was asked for, else what the hosts have."""
    cores = given["cores_per_worker"]
    if given["workers"] is None:
        scale = _usual_scale(given, profile, capacity)
        return scale if cores is None else Scale(workers=scale.workers, cores_per_worker=cores)
    workers = _numbers(given["workers"], "--workers")
    if cores is None:
        on_one_host = max(workers) if spread_from(given) is None else _per_host(given)
        cores = max(1, capacity.cores_per_host // on_one_host)
    return Scale(workers=workers, cores_per_worker=cores)


def _usual_scale(given: dict[str, Any], profile: Profile, capacity: Capacity) -> Scale:
    if spread_from(given) is None:
        return scale_for(capacity.cores_per_host, profile)
    cores = capacity.cores_per_host // _per_host(given)
    return scale_of_hosts(capacity.num_hosts * _per_host(given), max(1, cores))


def _per_host(given: dict[str, Any]) -> int:
    spread = spread_from(given)
    return 1 if spread is None else spread.workers_per_host


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"{option} takes numbers of 1 or more, for instance 1,2,4; got {text!r}.")
    return tuple(sorted({int(part) for part in parts}))


def choice(kind: Any, text: str, option: str) -> Any:
    """A member of an enumeration by its value.

    Raises:
        UserError: there is none; the message lists those that exist.
    """
    try:
        return kind(text)
    except ValueError:
        raise UserError(f"unknown {option} {text!r}; choose one of {', '.join(kind)}.") from None


def _choice_or_none(kind: Any, text: str | None, option: str) -> Any:
    return None if text is None else choice(kind, text, option)


def _threshold(given: dict[str, Any], describe: Describe) -> int:
    """Of the policy `partitioned`, for a single experiment."""
    if given["split_bytes"] is not None:
        return int(given["split_bytes"])
    if given["placement"] != Policy.PARTITIONED:
        return DEFAULT_SPLIT_BYTES
    workload = workload_from(given, given["model"] or SMALL_CNN)
    return usual_split_bytes(describe(workload), given["num_ps"] or 1)


def experiment_from(given: dict[str, Any], describe: Describe) -> Experiment:
    """The single experiment of `run-one`.

    Raises:
        UserError: the options do not fit together.
    """
    strategy = choice(Strategy, given["strategy"], "strategy")
    experiment = Experiment(
        strategy=strategy,
        num_workers=given["num_workers"],
        launcher=given["launcher"],
        spread=spread_from(given),
        network=network_from(given),
        interface=given["interface"],
        wire=wire_from(given),
        **dealing_from(given),
        workload=workload_from(given, given["model"] or SMALL_CNN),
        resources=Resources(
            cores_per_worker=given["cores_per_worker"],
            threads_per_worker=given["threads_per_worker"],
            device=device_from(given),
        ),
        profile=profile_from(given),
        **_settings_of(strategy, given, describe),
    )
    together = workers_together(experiment.num_workers, experiment.spread)
    if experiment.wire.host_aggregation and together < 2:
        raise UserError(
            "--host-aggregation adds up the gradients of workers that share a host, and here none "
            "do: leave it out, or take several workers on a host (--num-workers, "
            "--workers-per-host)."
        )
    return experiment


def _settings_of(strategy: Strategy, given: dict[str, Any], describe: Describe) -> dict[str, Any]:
    """What only strategies of this kind have: servers, or a collective."""
    traits = TRAITS[strategy]
    settings: dict[str, Any] = {}
    if traits.uses_servers:
        settings = server_settings(
            1 if given["num_ps"] is None else given["num_ps"],
            choice(Policy, given["placement"], "placement"),
            choice(LayoutKind, given["layout"], "layout"),
            _threshold(given, describe),
        )
    elif given["num_ps"] is not None:
        settings["num_ps"] = given["num_ps"]  # for the point to refuse
    if traits.uses_collective:
        wanted = given["collective"] or Collective.RING
        settings["collective"] = choice(Collective, wanted, "collective")
        settings["bytes_per_pack"] = given["bytes_per_pack"]
        if given["bytes_per_pack"] is None and settings["collective"] is not Collective.RING:
            settings["bytes_per_pack"] = 0
    elif given["collective"] is not None or given["bytes_per_pack"] is not None:
        settings["collective"] = given["collective"]  # for the point to refuse
        settings["bytes_per_pack"] = given["bytes_per_pack"]
    return settings
