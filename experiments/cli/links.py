"""A first look at links, before the sweep that runs on them, and how gradients travel there.

Decides which points are looked at and what is said.  Of emulated links: where no rate was stated,
one is chosen, model by model and once per sweep, and where nothing was stated about what is trained
the batch as well; a stated rate at which the processors are the limit, or little is left but
waiting, is told together with the ways out.  Links of a cluster are measured.  Which rate and batch
are good is decided in `sweep.link_rate`.

How gradients travel is chosen once, as soon as the links of all points are known; of a strategy
stands the point with the most workers and, as far as the study has it, as many servers, so that a
strategy is one setting in all of its points, and in every study.  The rule is in
`analysis.planning.exchange`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from analysis.planning.exchange import choose_exchange
from experiments.cli.requests import StudyRequest
from experiments.studies.scope import Describe
from experiments.sweep.definition import Choices
from experiments.sweep.link_rate import (
    LEAST_KEPT,
    LINKS,
    MOST_BUSY,
    Look,
    choose_batch,
    choose_rate,
)
from experiments.sweep.session import RunListener, Workplace, open_session, run_uninterrupted
from launchers.run.launcher import Capacity
from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.errors import LaunchError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.network import EmulatedNetwork, render_rate
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.strategies import NoCommunication
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.record.choices import (
    EXCHANGES,
    FIRST_LOOK,
    ExchangeChoice,
    ExchangeMode,
    batch_question,
    exchange_sentence,
    rate_question,
)
from ps_allreduce.record.records import FOREIGN_LIMIT, RunRecord

#: Of the links of a cluster on which a first look came to nothing.
ASSUMED_BITS_PER_S = 1e9

#: Long enough for the samples that tell how busy processors are.
BRIEF = Measurement(
    warmup=FixedWarmup(least_steps=5, least_s=1.0), measured_steps=10, measured_s=2.0
)


def _judged_question(model: str) -> str:
    """The choice that holds the stated rate of emulated links that was looked at."""
    return f"stated rate of the links for {model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """Looks at the links of a sweep that was asked for.

    Attributes:
        place: where runs of the sweep are made; those of a look go into a folder beside it.
        choices: takes the answers, and has those of earlier calls.
    """

    request: StudyRequest
    place: Workplace
    choices: Choices
    console: Console

    def take(self, points: Sequence[Experiment]) -> bool:
        """Look at what nobody has looked at yet; whether a rate was chosen.

        Raises:
            LaunchError: the point that is looked at cannot be run.
            KeyboardInterrupt: somebody interrupted it.
        """
        networks = {point.workload: point.network for point in points}
        chosen = self._measured(points)
        for workload, network in networks.items():
            model = workload.model.name
            questions = {rate_question(model), _judged_question(model)}
            unanswered = questions.isdisjoint(self.choices.answers)
            point = _busiest(point for point in points if point.workload == workload)
            if network is None or point is None or not unanswered or not self._bits(point):
                continue
            if network.is_unlimited and self.request.waits_for_rate:
                self._choose(point, network)
                chosen = True
            elif network.bits_per_s is not None:
                self._judge(point, network, network.bits_per_s)
        return chosen

    def _measured(self, points: Sequence[Experiment]) -> bool:
        """Have the links of a cluster measured, if how gradients travel depends on them."""
        point = _busiest(points)
        wanted = self.request.exchange is ExchangeMode.AUTO and LINKS not in self.choices.answers
        if point is None or point.network is not None or hosts_needed(point) == 1 or not wanted:
            return False
        self.console.print(f"A first look at {point.title} measures the links.")
        rate = self._run(replace(point, measurement=BRIEF)).link_bits_per_s
        if rate is None:
            assumed = render_rate(ASSUMED_BITS_PER_S)
            self.console.print(f"It came to nothing: links of {assumed} are assumed.")
        self.choices.decide(LINKS, float, lambda: rate or ASSUMED_BITS_PER_S)
        return True

    def _choose(self, point: Experiment, network: EmulatedNetwork) -> None:
        also = " and the batch" if self.request.waits_for_batch else ""
        self.console.print(f"A first look at {point.title} chooses the rate of the links{also}.")
        point, free = self._with_batch(point)
        bits, free_s = self._bits(point, free), _step_s(free)
        look = choose_rate(bits, free_s, lambda rate: self._look(point, network, rate, free))
        bits_per_s, model = look.bits_per_s + _carried(network), point.workload.model.name
        self.choices.decide(rate_question(model), float, lambda: bits_per_s)
        told = f"Links of {render_rate(bits_per_s)} ({_trained(point)}): {_seen(look)}"
        self.console.print(" ".join([told, *_ways_out(point, look)]))

    def _with_batch(self, point: Experiment) -> tuple[Experiment, RunRecord]:
        """The point with the batch that is chosen, if one is; a run that only computes there."""
        free, batch = self._free(point), point.workload.batch_per_worker
        if not self.request.waits_for_batch:
            return point, free
        # A small batch takes longer than its share of a large one, so it is looked at again.
        while (larger := choose_batch(batch, _step_s(free))) > batch:
            batch = larger
            point = replace(point, workload=replace(point.workload, batch_per_worker=batch))
            free = self._free(point)
        self.choices.decide(batch_question(point.workload.model.name), int, lambda: batch)
        return point, free

    def _judge(self, point: Experiment, network: EmulatedNetwork, bits_per_s: float) -> None:
        self.console.print(
            f"A first look at {point.title} tells whether links of {render_rate(bits_per_s)} are "
            "the limit."
        )
        look = self._look(point, network, bits_per_s - _carried(network), self._free(point))
        model = point.workload.model.name
        self.choices.decide(_judged_question(model), float, lambda: bits_per_s)
        if ways_out := _ways_out(point, look):
            told = [f"Links of {render_rate(bits_per_s)} ({_trained(point)}): {_seen(look)}"]
            if look.helps_by_rate:
                better = render_rate(look.better_bits_per_s + _carried(network))
                told.append(f"Links of about {better} would tell more.")
            self.console.print(" ".join([*told, *ways_out]))

    def _bits(self, point: Experiment, free: RunRecord | None = None) -> float:
        """Of rows of tables as many as were looked up in a run that only computed."""
        variables = self.place.launcher.describe(point.workload)
        num_bytes = sum(spec.num_bytes for spec in variables if spec.trainable)
        rows = free.rows_asked if free is not None else None
        if free is not None and rows is not None:
            num_bytes = free.gradient_bytes or 0
        alone = point.network and replace(point.network, traffic=())
        return nominal_network_s(replace(point, network=alone), num_bytes, 1.0, rows)

    def _free(self, point: Experiment) -> RunRecord:
        """As many workers that do not communicate."""
        sparse = Embeddings.SPARSE if point.strategy.is_sparse else Embeddings.DENSE
        strategy = NoCommunication(embeddings=sparse)
        return self._run(replace(point, strategy=strategy, measurement=BRIEF))

    def _look(
        self, point: Experiment, network: EmulatedNetwork, bits_per_s: float, free: RunRecord
    ) -> Look:
        """Run the point on links on which background traffic leaves so much."""
        links = replace(network, bits_per_s=bits_per_s + _carried(network))
        record = self._run(replace(point, network=links, measurement=BRIEF))
        step_s = _step_s(record)
        if record.machine_busy is None:
            raise LaunchError(
                f"the first look at {point.title} does not know how busy processors were."
            )
        return Look(
            bits_per_s=bits_per_s,
            bits=self._bits(point, free),
            step_s=step_s,
            free_s=_step_s(free),
            busy=max(0.0, record.machine_busy - _others_share(record)),
            others=_others_share(record),
        )

    def _run(self, point: Experiment) -> RunRecord:
        folder = self.request.launcher.results / FIRST_LOOK
        place = replace(self.place, sweep_dir=folder, listener=RunListener())
        place.launcher.check(point)
        place.launcher.prepare(point.workload)
        with open_session(place, FIRST_LOOK, self.request.sweep.chosen_profile) as session:
            return run_uninterrupted(session, point)


def _busiest(points: Iterable[Experiment]) -> Experiment | None:
    """The point with the most workers that waits least for links, so it keeps processors busiest.

    That is all-reduce in buckets, of rows where there are such, else the most and most evenly
    loaded synchronous servers.
    """

    def busiest(point: Experiment) -> tuple[int, ...]:
        own, servers = point.strategy, point.strategy.servers
        even = list(Policy).index(servers.placement) if servers else 0
        traits = not own.uses_servers, own.synchronous, own.wire is not None, own.is_sparse
        return point.num_workers, *traits, point.num_ps, even

    return max((p for p in points if p.strategy.communicates()), key=busiest, default=None)


def _step_s(record: RunRecord) -> float:
    """Mean time in which all workers complete a step each."""
    point = record.experiment
    if record.metrics is None:
        raise LaunchError(f"the first look at {point.title} came to nothing: {record.reason}")
    return point.global_batch / record.metrics.examples_per_sec


def _carried(network: EmulatedNetwork) -> float:
    """What background traffic takes of the link that carries most of it, in bits per second."""
    return max(max(network.traffic_at(host)) for host in range(network.num_hosts))


def _others_share(record: RunRecord) -> float:
    """What other programs and the hypervisor are known to have used: slower links help neither."""
    return (record.foreign_load or 0.0) + (record.stolen_load or 0.0)


def _seen(look: Look) -> str:
    others = ""
    if look.others > FOREIGN_LIMIT:
        others = f" Other programs used {look.others:.0%} of the processors besides."
    return (
        f"in a first look, steps took {look.step_s * 1e3:.0f} ms, kept {look.kept:.0%} of the rate "
        f"without communication, and kept processors {look.busy:.0%} busy and links "
        f"{look.network_share:.0%}.{others}"
    )


def _trained(point: Experiment) -> str:
    return f"{point.workload.model.name}, batch {point.workload.batch_per_worker}"


def _ways_out(point: Experiment, look: Look) -> list[str]:
    """What helps where processors are the limit, or where workers hardly do anything but wait."""
    told, emulated = [], point.workload.emulated is not None
    if look.busy > MOST_BUSY:
        help_ = (
            "fewer --hosts or a slower accelerator help."
            if emulated
            else "--emulate 0.02,0.04 takes computation off them."
        )
        told.append(f"Above {MOST_BUSY:.0%}, processors may decide and not the network; {help_}")
    if look.kept < LEAST_KEPT:
        longer = "a slower accelerator" if emulated else "a larger --batch-per-worker"
        told.append(f"With less than {LEAST_KEPT:.0%} kept, workers mostly wait; {longer} helps.")
    return told


NOT_YET = "The exchange (auto) is chosen once rates of links are known; this list shows buckets."


def settle_exchange(
    request: StudyRequest,
    points: Iterable[Experiment],
    capacity: Capacity,
    describe: Describe,
    choices: Choices,
) -> bool:
    """Choose how gradients travel, if that is to be chosen, nobody did, and links are known.

    Returns:
        Whether it was chosen, so that points have to be made again.
    """
    if request.exchange is not ExchangeMode.AUTO or EXCHANGES in choices.answers:
        return False
    by_size = sorted(points, key=_nearness)
    largest = {(p.workload, p.strategy.kind): p for p in by_size if p.strategy.wire is not None}
    chosen: list[ExchangeChoice] = []
    for point in largest.values():
        rate = _bits_per_s(request, point, choices)
        if rate is None:
            return False
        sizes = [spec.num_bytes for spec in describe(point.workload) if spec.trainable]
        chosen.append(choose_exchange(point, sizes, _cores_of(point, capacity), rate))
    if chosen:
        choices.decide(EXCHANGES, tuple[ExchangeChoice, ...], lambda: tuple(chosen))
    return bool(chosen)


def _nearness(point: Experiment) -> tuple[int, int, int]:
    """To what most studies have: the most workers, and a server for each of them."""
    return point.num_workers, -abs(point.num_workers - point.num_ps), point.num_ps


def _bits_per_s(request: StudyRequest, point: Experiment, choices: Choices) -> float | None:
    """Rate of the slowest link between the tasks; infinite without a limit; None: not known yet."""
    network = point.network
    if hosts_needed(point) == 1:
        return math.inf
    if network is None:
        return choices.answer(LINKS, float)
    if network.is_unlimited:
        return None if request.waits_for_rate else math.inf
    rates = network.bits_per_s, network.slow_bits_per_s, network.uplink_bits_per_s
    return min(rate for rate in rates if rate is not None)


def _cores_of(point: Experiment, capacity: Capacity) -> int:
    """Those of all workers, of which emulated hosts share the machine's."""
    cores = point.num_workers * point.resources.cores_per_worker
    return min(cores, capacity.shared_cores or cores)


def tell_exchange(request: StudyRequest, choices: Choices) -> str:
    """How gradients travel, if that was to be chosen; else nothing."""
    if request.exchange is not ExchangeMode.AUTO:
        return ""
    chosen = choices.answer(EXCHANGES, tuple[ExchangeChoice, ...])
    return exchange_sentence(chosen) if chosen else NOT_YET
