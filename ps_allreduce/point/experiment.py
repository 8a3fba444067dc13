"""One fully specified point of a sweep.

Decides what a point consists of, which combinations make sense, and its identity.  How often and
with which deadline it is run is no part of it: that is decided by the sweep.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace

from ps_allreduce.errors import UserError, at_least, at_most
from ps_allreduce.point.measurement import (
    Evaluation,
    Learning,
    Measurement,
    RecordingComparison,
)
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.optimizers import RateSchedule
from ps_allreduce.point.resources import Device, Resources, Spread
from ps_allreduce.point.strategies import AnyStrategy
from ps_allreduce.point.workload import Workload
from ps_allreduce.serialization import identity_of

#: More than any cluster has; as many as there may be parameter servers.
MOST_WORKERS = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A point of a sweep: everything that decides what is measured.

    Attributes:
        launcher: how tasks are started, by its name.
        spread: tasks per host; None where all tasks share one host.
        network: what is emulated; None for networks as they are.
        interface: the network whose addresses the tasks use, a name or a subnet; None leaves the
            choice to the launcher.
    """

    strategy: AnyStrategy
    num_workers: int = 1
    workload: Workload = field(default_factory=Workload)
    resources: Resources = field(default_factory=Resources)
    measurement: Measurement | Learning | RecordingComparison = field(default_factory=Measurement)
    launcher: str = "local"
    spread: Spread | None = None
    network: EmulatedNetwork | None = None
    interface: str | None = None

    def __post_init__(self) -> None:
        at_least(1, num_workers=self.num_workers)
        at_most(MOST_WORKERS, num_workers=self.num_workers)
        if self.network is not None and self.resources.device is Device.GPU:
            raise UserError("emulated hosts have no GPUs; use the device cpu.")
        if self.workload.dealt_to is not None and self.num_workers > 1:
            raise UserError(
                f"dealt_to is for a single worker that takes the batches of several, got "
                f"num_workers {self.num_workers}."
            )
        self.workload.of_each(self.num_workers)
        if self.evaluation is not None and self.strategy.as_shipped:
            raise UserError(
                f"{self.strategy.kind} is plain TensorFlow, of which only training is measured: "
                "leave --evaluation-batches out."
            )
        if self.strategy.as_shipped and self.workload.schedule != RateSchedule():
            raise UserError(
                f"{self.strategy.kind} is plain TensorFlow, which knows no schedule: leave "
                "--linear-scaling and --rate-warmup-steps out."
            )
        if self.learning is not None and not getattr(self.workload.model, "learning", None):
            raise UserError(
                f"model {self.workload.model.name} does not say when it has learned enough: write "
                "dataset, validation_dataset and LEARNED into your model's module "
                "(docs/own_model.md)."
            )
        self.strategy.check_fits(self.num_workers, self.spread, self.resources)
        self.strategy.check_trains(self.workload)

    @property
    def num_ps(self) -> int:
        """Number of parameter servers."""
        return self.strategy.num_ps

    @property
    def transport(self) -> str | None:
        """What carries the gradients, and as what if not float32; None where nothing is carried."""
        return self.strategy.transport_on(self.resources.device)

    @property
    def evaluation(self) -> Evaluation | None:
        """What is evaluated after the measured steps, or again and again; None for nothing."""
        measured = self.measurement
        return None if isinstance(measured, RecordingComparison) else measured.evaluation

    @property
    def learning(self) -> Learning | None:
        """When training ends that is to learn; None where something else is measured."""
        return self.measurement if isinstance(self.measurement, Learning) else None

    @property
    def of_each(self) -> Workload:
        """What each worker trains."""
        return self.workload.of_each(self.num_workers)

    @property
    def global_batch(self) -> int:
        """Examples per step of all workers together."""
        return self.num_workers * self.of_each.examples_per_step

    @property
    def experiment_id(self) -> str:
        """Twelve hexadecimal digits that identify the content of this point."""
        text = json.dumps(identity_of(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def point_id(self) -> str:
        """Equal for experiments whose runs are launches of one point: seeds of what learns."""
        if self.learning is None:
            return self.experiment_id
        return replace(self, workload=replace(self.workload, seed=Workload().seed)).experiment_id

    @property
    def title(self) -> str:
        """A short line for progress bars and messages."""
        workers = f"{self.num_workers} worker{'s' * (self.num_workers > 1)}"
        parts = [str(self.strategy), self.workload.model.name, workers]
        if self.spread is not None and self.spread.workers_per_host > 1:
            parts.append(f"{self.spread.workers_per_host} per host")
        parts += [*self.strategy.title_parts(), *self.workload.title_parts()]
        if self.evaluation is not None:
            parts.append(f"{self.evaluation.mode} evaluation")
        if self.network is not None and self.network.bits_per_s is not None:
            parts.append(f"links of {self.network}")
        return ", ".join([*parts, *self.resources.title_parts()])

    @property
    def run_title(self) -> str:
        """The title, and the rate and seed that tell the trainings of a point apart."""
        if self.learning is None:
            return self.title
        rate = self.workload.optimizer.learning_rate
        return f"{self.title}, learning rate {rate:g}, seed {self.workload.seed}"

    def columns(self) -> dict[str, object]:
        """Everything that was asked for, as columns of a table; None where nothing was."""
        servers_spread = self.spread if self.strategy.uses_servers else None
        return {
            **self.strategy.columns(),
            "transport": self.transport,
            "num_workers": self.num_workers,
            "global_batch": self.global_batch,
            **self.workload.columns(),
            **self.resources.columns(),
            **self.measurement.columns(),
            "launcher": self.launcher,
            "asked_workers_per_host": self.spread.workers_per_host if self.spread else None,
            "ps_per_host": servers_spread.ps_per_host if servers_spread else None,
            "coordinator": servers_spread.coordinator.value if servers_spread else None,
            "network": None if self.network is None else str(self.network),
            "network_hosts": None if self.network is None else self.network.num_hosts,
            "port_buffer_bytes": None if self.network is None else self.network.port_buffer_bytes,
            "asked_interface": self.interface,
        }
