"""What is said of a case, and the doubts about it: a golden holds the sentences of each situation.

Some rates look strange, as launches with a little noise must have a mean that can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from analysis.data.cases import Case, make_cases
from analysis.report.verdict import Verdict, verdict
from ps_allreduce.point.accelerators import Distribution, Jitter
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Device, LayoutKind, Resources, Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    AsynchronousServers,
    Horovod,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.wire import Collective, Wire, WireType
from ps_allreduce.point.workload import EmulatedCompute, Workload
from ps_allreduce.record.hosts import HostRecord, Interface
from ps_allreduce.record.records import RunRecord, Status
from ps_allreduce.record.variables import MADE_DENSE, SparseGradient
from tests.analysis.builders import (
    RATES,
    case_of,
    on_own_hosts,
    provenance,
    run,
    runs,
    table_of,
    tasks_on,
    times,
    with_wire,
)
from tests.fakes import OWN, make_experiment, make_facts, make_host
from tests.goldens import golden

Points = Mapping[Experiment, Mapping[int, float | None]]

RING = make_experiment(AllReduce, 2)
SYNC = make_experiment(SynchronousServers, 2)
EVEN = make_experiment(SynchronousServers, 2, placement=Policy.PARTITIONED)
ASYNC = make_experiment(AsynchronousServers, 2)
STOCK_RING, STOCK_PS = make_experiment(StockAllReduce, 2), make_experiment(StockServers, 2)
RING_4, SYNC_4 = make_experiment(AllReduce, 4), make_experiment(SynchronousServers, 4)

FAILED: dict[int, float | None] = {3: None, 4: None, 5: None}
NOISY: dict[int, float | None] = {0: 110.0, 1: 100.0, 2: 120.0}


def of(points: Points) -> Case:
    return case_of(*(runs(own, rates) for own, rates in points.items()))


def sides() -> dict[str, Case]:
    return {
        "all-reduce is faster than the best of two settings": of(
            {RING: times(1.8), SYNC: times(0.5), EVEN: times(1.0)}
        ),
        "the highest mean shows no difference": of(
            {RING: times(1.0), SYNC: {0: 250.0, 1: 100.0, 2: 150.0}, EVEN: times(1.2)}
        ),
        "a setting with too few launches": of(
            {RING: times(1.0), SYNC: times(0.5), EVEN: times(0.9, 1)}
        ),
        "no setting of a side is decided to be its best": of(
            {RING: times(1.0, 2), SYNC: times(0.5, 2), EVEN: times(0.51, 2)}
        ),
        "the faster side comes first": of({RING: times(1.0), SYNC: times(2.0)}),
        "undecided": of({RING: {0: 100.0, 1: 120.0, 2: 90.0}, SYNC: {0: 101.0, 1: 95.0, 2: 110.0}}),
        "undecided, and how many launches would decide": of({RING: NOISY, SYNC: times(1.0)}),
        "an interval that excludes 1 by less than a hundredth": of(
            {RING: {0: 104.25, 1: 109.14, 2: 107.66}, SYNC: times(1.0)}
        ),
        "equal": of({RING: times(1.01), SYNC: times(1.0)}),
        "two launches": of({RING: times(1.8, 2), SYNC: times(1.0, 2)}),
        "one launch": of({RING: times(1.8, 1), SYNC: times(1.0, 1), EVEN: times(0.9, 1)}),
        "one setting of one side": of({RING: times(1.0)}),
        "one side is missing": of(
            {RING: times(1.0), with_wire(RING_4, Wire(in_flight=1)): times(1.0)}
        ),
        "both sides are missing": of({make_experiment(Single): times(1.0)}),
        "sides never meet": of({RING: times(1.0), SYNC_4: times(1.0)}),
        "a side without a good run": of({RING: times(1.0), SYNC: {0: None, 1: None, 2: None}}),
        "the largest number of workers with enough launches decides": of(
            {RING: times(2.0), SYNC: times(1.0), RING_4: times(9.0, 1), SYNC_4: times(1.0, 1)}
        ),
        "asynchronous training": of({RING: times(1.0), SYNC: times(0.5), ASYNC: times(3.0)}),
        "attempts of all statuses": case_of(
            runs(RING, times(1.0)),
            runs(RING, {3: None, 4: None}, reason="slow", status=Status.TIMED_OUT),
            runs(RING, {5: None}, reason="loss is not finite", status=Status.INVALID),
        ),
        "other cores in all": case_of(
            runs(RING, times(1.0)), runs(SYNC, times(0.5), total_cores=3)
        ),
        "cores that differ from launch to launch": case_of(
            runs(RING, times(1.0)),
            [run(SYNC, rate, n, total_cores=3 + n % 2) for n, rate in times(0.5).items()],
        ),
    }


def as_shipped() -> dict[str, Case]:
    return {
        "plain TensorFlow beside both sides": of(
            {RING: times(1.0), SYNC: times(0.5), STOCK_RING: times(6.0), STOCK_PS: times(2.0)}
        ),
        "plain TensorFlow alone": of({STOCK_RING: times(6.0), STOCK_PS: times(2.0)}),
        "the suite is faster, whichever of two settings is its best": of(
            {
                RING: times(1.5),
                with_wire(RING, Wire(in_flight=1)): {0: 160.0, 1: 130.0, 2: 158.0},
                STOCK_RING: times(1.0),
            }
        ),
        "the suite is faster": of({RING: times(1.5), STOCK_RING: times(1.0), STOCK_PS: times(9.0)}),
        "plain TensorFlow is faster": of(
            {ASYNC: times(1.0), STOCK_PS: times(1.05), STOCK_RING: times(0.1)}
        ),
        "plain TensorFlow is equal": of({RING: times(1.01), STOCK_RING: times(1.0)}),
        "plain TensorFlow is equal, and its mean higher": of(
            {RING: times(1.0), STOCK_RING: times(1.01)}
        ),
        "plain TensorFlow with another format of gradients": of(
            {with_wire(RING, Wire(gradients=WireType.FLOAT16)): times(2.0), STOCK_RING: times(1.0)}
        ),
        "plain TensorFlow is faster than another format of gradients": of(
            {with_wire(RING, Wire(gradients=WireType.FLOAT16)): times(1.0), STOCK_RING: times(2.0)}
        ),
        "plain TensorFlow in doubt": of({RING: times(1.5), STOCK_RING: times(1.0) | FAILED}),
        "each kind of training against its own": of(
            {
                own: times(factor)
                for own, factor in zip(
                    (RING, SYNC, ASYNC, STOCK_RING, STOCK_PS), (2, 1, 4, 1, 2), strict=True
                )
            }
        ),
    }


GPU = Resources(device=Device.GPU)
G_RING, G_HOROVOD, G_SYNC, G_ASYNC = (
    make_experiment(kind, 2, resources=GPU)
    for kind in (AllReduce, Horovod, SynchronousServers, AsynchronousServers)
)
NCCL, AUTO = (
    make_experiment(AllReduce, 2, resources=GPU, collective=each)
    for each in (Collective.NCCL, Collective.AUTO)
)
HALF = Wire(gradients=WireType.FLOAT16)
HALF_RING, HALF_SYNC, HALF_ASYNC = (with_wire(own, HALF) for own in (G_RING, G_SYNC, G_ASYNC))
HALF_ALONE = with_wire(G_RING, Wire(gradients=WireType.FLOAT16, group_bytes=0))


def transports() -> dict[str, Case]:
    return {
        "another transport beside the same one": of(
            {G_RING: times(1.5), NCCL: times(9.0), G_SYNC: times(1.0)}
        ),
        "16 bits on both sides": of(
            {
                G_RING: times(1.5),
                HALF_RING: times(9.0),
                G_SYNC: times(1.0),
                HALF_SYNC: times(4.0),
            }
        ),
        "16 bits in other buckets": of(
            {
                HALF_ALONE: times(9.0),
                with_wire(G_RING, Wire(in_flight=2)): times(1.5),
                G_SYNC: times(1.0),
                HALF_SYNC: times(4.0),
            }
        ),
        "16 bits only": of({HALF_ALONE: times(9.0), HALF_SYNC: times(4.0)}),
        "16 bits on one side": of({G_RING: times(1.5), HALF_RING: times(9.0), G_SYNC: times(1.0)}),
        "asynchronous training on two transports": of(
            dict.fromkeys([G_RING, HALF_RING, G_ASYNC, HALF_ASYNC], times(1.0))
        ),
        "Horovod is the best all-reduce": of(
            {G_RING: times(1.5), G_HOROVOD: times(3.0), G_SYNC: times(1.0)}
        ),
        "Horovod is not the best all-reduce": of(
            {G_RING: times(3.0), G_HOROVOD: times(1.5), G_SYNC: times(1.0)}
        ),
        "no all-reduce is decided to be the best": of(
            {G_RING: times(3.0), G_HOROVOD: times(2.98), G_SYNC: times(1.0)}
        ),
        "Horovod alone": of({G_HOROVOD: times(3.0), G_SYNC: times(1.0)}),
        "only NCCL": of({NCCL: times(9.0), G_SYNC: times(1.0), G_ASYNC: times(1.0)}),
        "only what TensorFlow chooses": of({AUTO: times(9.0), G_SYNC: times(1.0)}),
        "a side failed on the shared transport": of(
            {G_RING: {0: None, 1: None}, NCCL: times(9.0), G_SYNC: times(1.0)}
        ),
    }


#: Two tables of embeddings, of which a step of 64 examples looks up a row each.
TABLES = tuple(
    SparseGradient(variable=f"{name}/embeddings", num_rows=50_000, row_bytes=128, looked_up=64)
    for name in ("users", "items")
)

#: As such a model was seen to train, in rows a second.
TOWERS: dict[type[AnyStrategy], float] = {
    AllReduce: 1747.0,
    SynchronousServers: 1775.0,
    AsynchronousServers: 1775.0,
    StockAllReduce: 23326.0,
    StockServers: 3346.0,
}


def two_towers(
    rates: Mapping[type[AnyStrategy], float] = TOWERS, **changes: Any
) -> list[RunRecord]:
    settings = {"sparse": TABLES, "gradient_bytes": 12_800_000, **on_own_hosts(2, 1e10)} | changes
    records = []
    for strategy, rate in rates.items():
        own = make_experiment(strategy, 2, spread=Spread())
        told = settings if not own.num_ps else {**settings, "placement": None}
        records += runs(own, times(rate / 100), **told)
    return records


def of_model(*notes: str, **changes: Any) -> list[RunRecord]:
    """Both sides of a user's own model."""
    workload = Workload(model=replace(OWN, notes=notes), data=OwnDataset())
    own = [make_experiment(each, workload=workload) for each in (AllReduce, SynchronousServers)]
    return [record for each in own for record in runs(each, RATES, **changes)]


LION = "trained with SGD, not your Lion"
CONSTRAINTS = [f"without your constraint of dense/{name}" for name in ("kernel", "bias", "scale")]


def looked_up(number: int | None) -> tuple[SparseGradient, ...]:
    return (SparseGradient(variable="a", num_rows=10, row_bytes=8, looked_up=number),)


def models() -> dict[str, Case]:
    return {
        "sparse gradients": case_of(two_towers()),
        "sparse gradients and a disturbance": case_of(
            two_towers(hosts=tuple(make_host(f"n{index}", foreign_load=0.09) for index in range(2)))
        ),
        "plain TensorFlow is faster, and the suite faster still": case_of(
            two_towers(
                {AllReduce: 1000.0, SynchronousServers: 3000.0, StockAllReduce: 2000.0}, sparse=()
            )
        ),
        "sparse gradients of an older record": case_of(
            of_model(f"the gradient of a {MADE_DENSE}", LION, sparse=())
        ),
        "sparse gradients of a graph that does not tell": case_of(
            of_model(f"the gradient of a {MADE_DENSE}", sparse=looked_up(None))
        ),
        "more look-ups than rows": case_of(
            of_model(f"the gradient of a {MADE_DENSE}", sparse=looked_up(64))
        ),
        "what is not done as a model asks": case_of(of_model(LION)),
        "much that is not done as a model asks": case_of(of_model(LION, *CONSTRAINTS)),
        "all is done as a model asks": case_of(of_model()),
    }


EMULATED: dict[str, Any] = {
    "launcher": "emulated",
    "network": EmulatedNetwork(num_hosts=2, bits_per_s=1e9),
    "spread": Spread(),
}
HOSTS = (make_host("n0"), make_host("n1"))
ON_SLURM: dict[str, Any] = {"launcher": "slurm", "spread": Spread()}
COMPUTE = EmulatedCompute(forward_s=0.01, backward_s=0.02)
JITTER = Jitter(distribution=Distribution.GAMMA, variation=0.1)


def emulated(busy: float | None, compute: EmulatedCompute | None = None, **changes: Any) -> Case:
    """A single worker and a ring on emulated hosts, of a machine that is so busy."""
    load = Workload(emulated=compute)
    single, ring = (
        make_experiment(each, count, workload=load, **EMULATED)
        for each, count in ((Single, 1), (AllReduce, 2))
    )
    return case_of(
        runs(single, RATES), runs(ring, RATES, hosts=HOSTS, machine_busy=busy, **changes)
    )


def on_hosts(*hosts: HostRecord, **changes: Any) -> list[RunRecord]:
    return runs(make_experiment(AllReduce, 2, **ON_SLURM), RATES, hosts=hosts, **changes)


def of_job(job_id: str, first: int, rate: float) -> list[RunRecord]:
    own = make_experiment(Single, **ON_SLURM)
    return runs(own, {first: rate, first + 1: rate}, job_id=job_id)


RACKS = EmulatedNetwork(num_hosts=3, bits_per_s=1e9, racks=2, uplink_bits_per_s=0.4e9)


def of_links(slow: float, where: Mapping[str, Any] = ON_SLURM) -> Case:
    """Three hosts with links of 1 Gbit/s, but for one of them."""
    own = on_own_hosts(3, 1e9)
    links = (replace(own["links"][0], bits_per_s=slow), *own["links"][1:])
    ring, sync = (make_experiment(each, 3, **where) for each in (AllReduce, SynchronousServers))
    return case_of(
        runs(ring, times(2.0), **own | {"links": links}),
        runs(sync, times(1.0), **own | {"links": links}),
    )


OTHER = make_host("n1", facts=make_facts("n1", cpu_model="Another one"))
FAST = tuple(
    make_host(name, interface=Interface(name="ib0", address="10.1.0.9", prefix_length=24))
    for name in ("n0", "n1")
)
DISTURBED = make_host("n0", load_average=99.0, foreign_load=0.04, stolen_load=0.0)
LOADED = replace(DISTURBED, foreign_load=0.31, stolen_load=0.2)
FOUR = tuple(make_host(f"n{index}") for index in range(4))
AWAY_RING, AWAY_SYNC = (
    make_experiment(each, 2, **ON_SLURM) for each in (AllReduce, SynchronousServers)
)
SERVED = make_experiment(SynchronousServers, 1, num_ps=1, layout=LayoutKind.PS_HOSTS, **ON_SLURM)


@cache
def circumstances() -> dict[str, Case]:
    return {
        "loopback": of({RING: times(1.0)}),
        "hosts": case_of(on_hosts(*HOSTS)),
        "emulated compute": of(
            {make_experiment(AllReduce, 2, workload=Workload(emulated=COMPUTE)): times(1.0)}
        ),
        "emulated hosts": emulated(0.5),
        "emulated hosts of a busy machine": emulated(0.9, oversubscribed=True),
        "emulated hosts of a machine of which it is not known": emulated(None, oversubscribed=True),
        "emulated hosts of a machine that was idle a third of the time": emulated(
            0.65, oversubscribed=True
        ),
        "emulated accelerators of a busy machine": emulated(0.95, COMPUTE),
        "emulated workers that differ": emulated(
            0.5, replace(COMPUTE, factors=(1.0, 1.5, 1.0, 0.8), jitter=JITTER)
        ),
        "hosts of two kinds": case_of(on_hosts(make_host("n0"), OTHER)),
        "a base on hosts of one of two kinds": case_of(
            runs(make_experiment(Single, **ON_SLURM), RATES, hosts=(OTHER,)),
            on_hosts(make_host("n0"), OTHER),
        ),
        "hosts of another kind for servers": case_of(
            runs(
                SERVED,
                RATES,
                hosts=(make_host("n0"), OTHER),
                tasks=tasks_on({"ps:0": "n1", "worker:0": "n0"}),
            )
        ),
        "other interfaces in other runs": case_of(on_hosts(*HOSTS)[:2], on_hosts(*FAST)[2:]),
        "one busy host, and a busy machine of the launcher": case_of(
            on_hosts(
                make_host("n0", load_average=0.5),
                make_host("n1", load_average=8.5),
                provenance=provenance(load_average=99.0),
            )
        ),
        "no load is told of hosts": case_of(
            on_hosts(*HOSTS, provenance=provenance(load_average=99.0))
        ),
        "a little foreign load": case_of(on_hosts(DISTURBED)),
        "foreign load": case_of(on_hosts(DISTURBED)[:2], on_hosts(DISTURBED, LOADED)[2:]),
        "one launch beside other programs": case_of(
            [run(own, 100.0, 0, hosts=(LOADED,)) for own in (RING, SYNC)]
        ),
        "jobs that are apart": case_of(
            of_job("7", 0, 100.0),
            of_job("8", 1000, 110.0),
            runs(AWAY_RING, {1000: 200.0}, job_id="9"),
        ),
        "one job": case_of(of_job("7", 0, 100.0)),
        "a slow link between hosts that are not": of_links(0.4e9),
        "a slow link that runs sent more over": of_links(5e3),
        "a slow link between racks": of_links(0.4e9, EMULATED | {"network": RACKS}),
        "hosts that are paid for": case_of(
            runs(AWAY_RING, RATES, hosts=HOSTS), runs(AWAY_SYNC, RATES, hosts=FOUR)
        ),
        "launches that differ in their hosts": case_of(
            [run(AWAY_RING, rate, n, hosts=FOUR[: 2 + n % 2]) for n, rate in RATES.items()],
            runs(AWAY_SYNC, RATES, hosts=FOUR),
        ),
    }


def traced(**columns: float | None) -> Case:
    """Three launches of a single worker and three of a ring, of which columns say something."""
    single, ring = make_experiment(Single, **EMULATED), make_experiment(AllReduce, 2, **EMULATED)
    own = [*runs(single, RATES), *runs(ring, RATES, hosts=HOSTS, machine_busy=0.5)]
    table, records = table_of(own)
    of_ring = (table["num_workers"] == 2).to_numpy()
    for name, value in columns.items():
        table.loc[of_ring, name] = value
    (case,) = make_cases(table, records)
    return case


def sent(segments: int, again: int, probes: int, drops: int | None = None) -> Case:
    """Drops of ports, where these can be asked."""
    return traced(
        segments_sent=segments,
        segments_sent_again=again,
        loss_probes=probes,
        port_drops=drops,
        port_loss=None if drops is None else drops / segments,
    )


def losses() -> dict[str, Case]:
    """Of the same point: as it was, with another congestion control, with ports large enough."""
    return {
        "lossy, bbr": sent(55_000, 265, 25),
        "lossy, cubic": sent(55_000, 90, 25),
        "clean, cubic, 2 MB": sent(55_000, 25, 24),
        "clean, piz-daint, 2 MB": sent(1_400_000, 91, 78),
        "probes only": sent(55_000, 60, 60),
        "next to the limit": sent(100_000, 12, 0),
        "sent again, and no port dropped any": sent(55_000, 90, 25, drops=0),
        "probes, and what ports dropped": sent(55_000, 60, 60, drops=60),
        "one of few segments": sent(900, 2, 0, drops=2),
        "next to no stall": traced(mean_step_s=0.1, stalled_s=0.0029),
        "stalls without a known loss": traced(mean_step_s=0.1, stalled_s=0.031),
        "stalls with a known loss": traced(
            mean_step_s=0.1, stalled_s=0.031, port_drops=50, port_loss=0.05
        ),
        "two humps": traced(hump_s=0.305, second_hump_s=0.102),
    }


def lines_of(told: Verdict) -> Iterator[str]:
    yield told.headline
    sentences: Mapping[str, Iterable[str]] = {
        "otherwise": told.otherwise,
        "stock": told.stock,
        "reason": [told.reason],
        "network": [told.network],
        "warning": told.warnings,
        "detail": told.details,
    }
    yield from (f"{kind}: {text}" for kind, texts in sentences.items() for text in texts if text)


@pytest.mark.parametrize("group", [sides, as_shipped, transports, models, circumstances, losses])
def test_what_is_said_of_a_case(group: Callable[[], dict[str, Case]]) -> None:
    told = {title: [*lines_of(verdict(case))] for title, case in group().items()}
    for lines in told.values():
        said = [part for line in lines for part in re.split(r"\. |: (?=[A-Z])", line.rstrip("."))]
        claims = [part.casefold() for part in said if len(part) > 20]
        assert len(claims) == len({*claims}), "a page says nothing twice"
        assert not re.search(r"\b(are|have|were) 1\b", " ".join(lines))
    blocks = ["\n".join([f"# {title}", *lines, ""]) for title, lines in told.items()]
    golden.check({f"sentences/verdict/{group.__name__}.txt": "\n".join(blocks)})
