"""What a study covers where nobody states it.  Pure.

Decides which numbers of workers are tried and how many cores each has, which models are trained,
and sizes that a laptop can train: the architecture counts here, not the size of the images.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

from experiments.sweep.sweep import STANDARD, Profile, powers_of_two
from launchers.run.launcher import Capacity
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Digits, OwnDataset, Synthetic
from ps_allreduce.point.layout import room_for_workers, too_few_hosts
from ps_allreduce.point.models import shipped_model
from ps_allreduce.point.models.recommenders import SMALL_DLRM, RecommenderModel
from ps_allreduce.point.models.trained import SMALL_CNN, SMALL_VIT, ImageModel, OwnModel, TextModel
from ps_allreduce.point.optimizers import Adagrad, Momentum, Optimizer, Sgd
from ps_allreduce.point.resources import LayoutKind, Spread
from ps_allreduce.point.strategies import SynchronousServers
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.strategies.stated import StrategySettings
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload

#: On one machine more would only share its memory.
MOST_ON_ONE_HOST = 8

#: Pixels of images, where the models allow it.
IMAGE_SIZE = 64
IMAGE_SIZES = {SMALL_CNN: 32, SMALL_VIT: 32, "VGG16": 32}

BATCH = 8
BATCHES = {SMALL_CNN: 32, SMALL_VIT: 16}

#: Sequences: each holds many tokens.
TEXT_BATCH = 4

#: Small for a recommender: a step looks up a few hundred rows of each large table.
RECOMMENDER_BATCH = 512

#: As their authors train them: MLPerf's DLRM by SGD, towers usually by Adagrad.  Gradients are
#: means over a batch: beside 0.1, with which Keras begins, their squares would count for nothing.
TWO_TOWER_OPTIMIZER = Adagrad(learning_rate=0.01, initial_accumulator_value=1e-6)
DLRM_OPTIMIZER = Sgd(learning_rate=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTraining:
    """The user's own model, and what its own code says of its training."""

    model: OwnModel
    optimizer: Optimizer = field(default_factory=Momentum)
    precision: Precision = Precision.FLOAT32

    def workload(self, emulated: EmulatedCompute | None) -> Workload:
        """What is trained of it; an emulated accelerator computes in no precision."""
        return Workload(
            model=self.model,
            data=OwnDataset() if self.model.has_dataset else Synthetic(),
            optimizer=self.optimizer,
            precision=Precision.FLOAT32 if emulated else self.precision,
            emulated=emulated,
        )


def default_num_ps(
    settings: StrategySettings, spread: Spread | None, num_ps_hosts: int
) -> int | None:
    """The servers that are stated, or that hosts named for them hold; None for one per worker."""
    if settings.num_ps is not None or settings.layout is not LayoutKind.PS_HOSTS:
        return settings.num_ps
    return num_ps_hosts * ((spread and spread.ps_per_host) or 1) or None


def default_workers(
    profile: Profile,
    spread: Spread | None,
    capacity: Capacity,
    settings: StrategySettings | None = None,
    *,
    brief: bool = False,
) -> tuple[int, ...]:
    """Numbers of workers where none are stated.

    On hosts they are doubled from one to as many as fit, beside the servers if these have hosts of
    their own; on one machine there are 1 and 2, and in the profile `standard` they are doubled for
    as long as each keeps two cores.

    Args:
        spread: None on one machine.
        settings: what was stated about servers.
        brief: of the numbers on hosts only one, the most, and the most at equal hosts.

    Raises:
        UserError: the machine has one core, and a comparison needs two.
    """
    if spread is not None:
        return _workers_on_hosts(spread, capacity, settings or StrategySettings(), brief=brief)
    cores = capacity.cores_per_host
    if cores < 2:
        raise UserError(
            "this machine offers 1 core, but a comparison needs 2 workers with a core each."
        )
    thorough = profile.name == STANDARD
    return powers_of_two(max(2, min(MOST_ON_ONE_HOST, cores // 2)) if thorough else 2)


def _workers_on_hosts(
    spread: Spread, capacity: Capacity, settings: StrategySettings, *, brief: bool
) -> tuple[int, ...]:
    """Where servers have hosts of their own, with the most workers that all-reduce can match."""

    def served(workers: int) -> Experiment:
        num_ps = default_num_ps(settings, spread, capacity.num_ps_hosts) or workers
        servers = Servers(num_ps=num_ps, layout=settings.layout or LayoutKind.COLOCATED)
        strategy = SynchronousServers(servers=servers)
        return Experiment(strategy=strategy, num_workers=workers, spread=spread)

    def fits(workers: int) -> bool:
        own = served(workers)
        return not too_few_hosts(own, capacity.num_hosts, capacity.num_ps_hosts)

    most = capacity.num_hosts * spread.workers_per_host
    numbers = powers_of_two(most)
    if settings.layout is not None and settings.layout.is_apart and fits(1):
        every = range(1, most + 1)
        matched = bisect_right(every, most, key=lambda count: room_for_workers(served(count)))
        numbers = tuple(sorted({*filter(fits, numbers), matched} - {0}))
        return tuple(sorted({1, matched, numbers[-1]} - {0})) if brief else numbers
    return tuple(sorted({1, numbers[-1]})) if brief else numbers


def default_cores(workers: tuple[int, ...], spread: Spread | None, capacity: Capacity) -> int:
    """Cores of every worker, so that as many workers as ever share a host do not share cores."""
    together = max(workers) if spread is None else spread.workers_per_host
    return max(1, capacity.cores_per_host // together)


def default_models(profile: Profile) -> tuple[str, ...]:
    """The models that a study trains where none is stated."""
    return (SMALL_CNN, "ResNet50", "VGG16") if profile.name == STANDARD else (SMALL_CNN,)


def default_workload(model: str | OwnTraining, emulated: EmulatedCompute | None = None) -> Workload:
    """What is trained of a model, by its name, or of the user's own.

    Args:
        emulated: an accelerator, without which weights alone are no workload.

    Raises:
        UserError: there is no such model, or it needs an emulated accelerator.
    """
    if isinstance(model, OwnTraining):
        return model.workload(emulated)
    shipped = shipped_model(model)
    if isinstance(shipped, TextModel):
        return Workload(model=shipped, batch_per_worker=TEXT_BATCH, emulated=emulated)
    if isinstance(shipped, RecommenderModel):
        return Workload(
            model=shipped,
            optimizer=DLRM_OPTIMIZER if shipped.name == SMALL_DLRM else TWO_TOWER_OPTIMIZER,
            batch_per_worker=RECOMMENDER_BATCH,
            emulated=emulated,
        )
    if not isinstance(shipped, ImageModel):
        return Workload(model=shipped, batch_per_worker=1, emulated=emulated)
    size = IMAGE_SIZES.get(model, max(shipped.sizes.minimum_image_size, IMAGE_SIZE))
    return Workload(
        model=replace(shipped, image_size=size),
        data=Digits(),
        batch_per_worker=BATCHES.get(model, BATCH),
        emulated=emulated,
    )
