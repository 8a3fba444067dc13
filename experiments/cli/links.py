"""A first look at links, before the sweep that runs on them.

Decides which point is looked at and what is said.  Of emulated links: where no rate was stated, one
is chosen, model by model and once per sweep; a stated one at which the processors are the limit is
told together with the ways out.  Those of a cluster are measured.  Which rate is good is decided in
`sweep.link_rate`, and how gradients travel on it in `exchange`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from experiments.cli.requests import StudyRequest
from experiments.sweep.definition import Choices
from experiments.sweep.link_rate import LINKS, MOST_BUSY, Look, choose_rate
from experiments.sweep.session import RunListener, Workplace, open_session, run_uninterrupted
from ps_allreduce.bounds import nominal_network_s
from ps_allreduce.errors import LaunchError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts as hosts_needed
from ps_allreduce.point.measurement import FixedWarmup, Measurement
from ps_allreduce.point.network import EmulatedNetwork, render_rate
from ps_allreduce.record.exchanges import ExchangeMode
from ps_allreduce.record.link_rates import rate_question
from ps_allreduce.record.records import RunRecord

#: The folder of its records; it is no sweep.
NAME = "first-look"

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
        self.console.print(f"A first look at {point.title} chooses the rate of the links.")
        look = choose_rate(self._bits(point), lambda rate: self._look(point, network, rate))
        bits_per_s, model = look.bits_per_s + _carried(network), point.workload.model.name
        self.choices.decide(rate_question(model), float, lambda: bits_per_s)
        told = f"Links of {render_rate(bits_per_s)} ({model}): {_seen(look)}"
        if look.busy > MOST_BUSY:
            told += f" {_ways_out(point)}"
        self.console.print(told)

    def _judge(self, point: Experiment, network: EmulatedNetwork, bits_per_s: float) -> None:
        self.console.print(
            f"A first look at {point.title} tells whether links of {render_rate(bits_per_s)} are "
            "the limit."
        )
        look = self._look(point, network, bits_per_s - _carried(network))
        model = point.workload.model.name
        self.choices.decide(_judged_question(model), float, lambda: bits_per_s)
        if look.busy > MOST_BUSY:
            better = render_rate(look.better_bits_per_s + _carried(network))
            self.console.print(
                f"Links of {render_rate(bits_per_s)} ({model}): {_seen(look)} "
                f"Links of about {better} would decide instead. {_ways_out(point)}"
            )

    def _bits(self, point: Experiment) -> float:
        variables = self.place.launcher.describe(point.workload)
        trained = sum(spec.num_bytes for spec in variables if spec.trainable)
        alone = point.network and replace(point.network, traffic=())
        return nominal_network_s(replace(point, network=alone), trained, 1.0)

    def _look(self, point: Experiment, network: EmulatedNetwork, bits_per_s: float) -> Look:
        """Run the point on links on which background traffic leaves so much."""
        links = replace(network, bits_per_s=bits_per_s + _carried(network))
        record = self._run(replace(point, network=links, measurement=BRIEF))
        if record.metrics is None or record.machine_busy is None:
            raise LaunchError(f"the first look at {point.title} came to nothing: {record.reason}")
        return Look(
            bits_per_s=bits_per_s,
            bits=self._bits(point),
            step_s=record.metrics.step_time_p50_s,
            busy=_own_share(record, record.machine_busy),
        )

    def _run(self, point: Experiment) -> RunRecord:
        folder = self.request.launcher.results / NAME
        place = replace(self.place, sweep_dir=folder, listener=RunListener())
        place.launcher.check(point)
        place.launcher.prepare(point.workload)
        with open_session(place, NAME, self.request.sweep.chosen_profile) as session:
            return run_uninterrupted(session, point)


def _busiest(points: Iterable[Experiment]) -> Experiment | None:
    """The point with the most workers, all-reduce if there is one: it keeps processors busiest."""

    def busiest(point: Experiment) -> tuple[int, bool]:
        return point.num_workers, point.strategy.uses_collective

    return max((p for p in points if p.strategy.communicates()), key=busiest, default=None)


def _carried(network: EmulatedNetwork) -> float:
    """What background traffic takes of the link that carries most of it, in bits per second."""
    return max(max(network.traffic_at(host)) for host in range(network.num_hosts))


def _own_share(record: RunRecord, busy: float) -> float:
    """Without what is known that other programs and the hypervisor used: slower links help neither.

    Args:
        busy: share of the machine's processor time that was used by whomever.
    """
    return max(0.0, busy - (record.foreign_load or 0.0) - (record.stolen_load or 0.0))


def _seen(look: Look) -> str:
    return (
        f"in a first look, steps took {look.step_s * 1e3:.0f} ms and kept processors "
        f"{look.busy:.0%} busy and links {look.network_share:.0%}."
    )


def _ways_out(point: Experiment) -> str:
    """What helps where processors are the limit."""
    told = f"Above {MOST_BUSY:.0%}, processors may decide and not the network"
    if point.workload.emulated is None:
        return f"{told}; --emulate 0.02,0.04 takes computation off them."
    return f"{told}; fewer --hosts or a slower accelerator help."
