"""Published numbers beside those of made-up launches of the sweeps that repeat them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.data.cases import Case
from analysis.studies.beside import CURVE, P2, PIZ_DAINT
from analysis.studies.claix_shown import CLAIX, PATCHES
from analysis.studies.embeddings_shown import EMBEDDINGS, crossing
from analysis.studies.incast_shown import INCAST
from analysis.studies.network_shown import NETWORK, device_name
from analysis.studies.osu_shown import OSU
from analysis.studies.pcad_shown import PCAD
from analysis.studies.shown import Shown, ShownStudy
from analysis.studies.storage_shown import STORAGE
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.inputs.data import Data, RecordFiles, Synthetic
from ps_allreduce.point.inputs.data_set import ExampleForm, Pipeline
from ps_allreduce.point.inputs.image_files import ImageFiles
from ps_allreduce.point.measurement import Evaluation, EvaluationMode, Measurement
from ps_allreduce.point.models.recommenders import RecommenderModel
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.models.weights import ScaledModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.optimizers import Sgd
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AnyStrategy,
    Horovod,
    Hybrid,
    Single,
    StockAllReduce,
    SynchronousServers,
)
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.wire import Wire
from ps_allreduce.point.workload import EmulatedCompute, Scaling, Workload
from ps_allreduce.record.evaluation_timings import EvaluationTimes
from ps_allreduce.record.records import RunRecord
from ps_allreduce.record.variables import RowsAsked
from tests.analysis.builders import (
    case_of,
    cases_of,
    changed,
    invoke,
    on_own_hosts,
    reported,
    runs,
    save_all,
    times,
)
from tests.fakes import make_experiment
from tests.goldens import golden


def emulated(
    model: str, batch: int, step_s: float, divisor: int = 1, accumulation: int = 1
) -> Workload:
    return Workload(
        model=ScaledModel(base=model, divisor=divisor),
        batch_per_worker=batch,
        emulated=EmulatedCompute(forward_s=step_s / 3, backward_s=step_s * 2 / 3),
        accumulation=accumulation,
    )


def on_hosts(point: Experiment, bits_per_s: float, per_host: int = 1) -> Experiment:
    return replace(
        point,
        launcher="emulated",
        spread=Spread(workers_per_host=per_host),
        network=EmulatedNetwork(num_hosts=8, bits_per_s=bits_per_s),
    )


def p2_cases() -> tuple[Case, ...]:
    """Hosts of one and of eight workers, beside their own instances."""
    points = {
        (per_host, workers): on_hosts(
            make_experiment(Single, 1)
            if workers == 1
            else make_experiment(SynchronousServers, workers, num_ps=1 + (per_host == 1)),
            1e8,
            per_host,
        )
        for per_host, workers in itertools.product((1, 8), (1, 8))
    }
    factors = {1: 1.0, 8: 4.0}
    return cases_of(*[runs(p, times(factors[n])) for (_, n), p in points.items()])


def network_cases() -> tuple[Case, ...]:
    fast = make_experiment(AllReduce, 4, workload=emulated("ResNet50", 64, 64 / 412, 32))
    mixed = make_experiment(AllReduce, 4, workload=emulated("ResNet50", 64, 64 / 1270, 32))
    other = make_experiment(AllReduce, 4, workload=emulated("VGG16", 64, 0.2, 32))
    points = [
        on_hosts(fast, 10e9 / 32),
        on_hosts(fast, 1e9 / 32),
        on_hosts(mixed, 1e9 / 32),
        on_hosts(other, 1e9 / 32),
    ]
    return cases_of(*[runs(point, times(1.0)) for point in points])


def behind_ports(strategy: type[AnyStrategy], buffer: int, control: str) -> Experiment:
    network = EmulatedNetwork(
        num_hosts=4, bits_per_s=2e8, congestion=control, port_buffer_bytes=buffer
    )
    return replace(on_hosts(make_experiment(strategy, 4), 2e8), network=network)


def incast_cases() -> tuple[Case, ...]:
    """Every port beside the deepest with the same senders and control."""
    factors = {
        behind_ports(AllReduce, 1 << 15, "cubic"): 0.9,
        behind_ports(AllReduce, 1 << 22, "cubic"): 1.0,
        behind_ports(SynchronousServers, 1 << 15, "cubic"): 0.25,
        behind_ports(SynchronousServers, 1 << 22, "cubic"): 0.5,
        behind_ports(SynchronousServers, 1 << 15, "reno"): 0.2,
    }
    return cases_of(*[runs(p, times(f)) for p, f in factors.items()])


def test_nothing_is_told_over_the_deepest_port_where_there_is_one() -> None:
    cases = cases_of(runs(behind_ports(AllReduce, 1 << 22, "cubic"), times(1.0)))
    assert not [said for said in INCAST.show(cases).sentences if "deepest:" in said]


def test_epochs_without_that_of_a_single_worker_are_no_lack_of_evaluations() -> None:
    four = on_hosts(make_experiment(AllReduce, 4, workload=emulated("ResNet50", 64, 0.6, 32)), 1e8)
    shown = CLAIX.show(cases_of(epoch(four, 400, 300, EvaluationMode.SEQUENTIAL)))
    assert "No single worker was evaluated" in shown.sentences[0]


def towers(rows: int) -> Iterator[list[RunRecord]]:
    """A gather takes 300 rows a worker, whole tables all of them; both take the link's time."""
    load = Workload(
        model=RecommenderModel(name=f"TwoTower-{rows}x32"), optimizer=Sgd(learning_rate=1.0)
    )
    asked = RowsAsked(row_bytes=128, asked=900.0, unique=300.0, longest=320.0, union=700.0)
    for embeddings, found, rate in (("sparse", asked, 1000.0), ("dense", None, 1e6 / rows)):
        own = make_experiment(
            AllReduce,
            4,
            workload=load,
            wire=Wire(),
            embeddings=Embeddings(embeddings),
            spread=Spread(),
        )
        whole = 128 * (300 if found else 2 * rows)
        settings = {"gradient_bytes": whole, "rows_asked": found, "num_messages": 1}
        yield runs(own, times(rate), **settings, **on_own_hosts(4, 1e8))
    mixed = make_experiment(Hybrid, 4, workload=load, spread=Spread())
    yield runs(mixed, times(2000.0))


def embeddings_cases() -> tuple[Case, ...]:
    return cases_of(*[group for rows in (200, 800, 2000) for group in towers(rows)])


def test_rows_and_whole_tables_cross_where_bytes_say_it() -> None:
    shown = EMBEDDINGS.show(embeddings_cases())
    # 3 x 320 x 136 bytes against 1.5 x 128 x 2 x rows: equal at 340 rows of each table.
    told = "mean rates cross those of whole tables at 0.15 of the rows, by bytes at 0.44 (-66%)."
    assert shown.sentences[0] == f"all-reduce, rows (4 workers): {told}"


def test_lines_cross_on_logarithmic_scales() -> None:
    line = pd.DataFrame({"share": [0.1, 1.0], "ratio": [2.0, 0.5]})
    assert crossing(line, "ratio") == pytest.approx(0.1**0.5)
    assert crossing(line.assign(ratio=[0.5, 0.2]), "ratio") is None


def test_a_real_device_has_its_own_name() -> None:
    assert device_name(make_experiment(AllReduce, 2)) == "cpu, float32"


def pcad_cases(most_hosts: int = 3) -> tuple[Case, ...]:
    """Epochs that take longer with more hosts if every batch is exchanged, and less if not."""
    groups = []
    for model, loop, batch, hosts in itertools.product(
        ("ResNet50", "EfficientNetB0"), ("sync", "ctl"), (32, 64, 100), range(1, most_hosts + 1)
    ):
        load = emulated(model, batch, 0.1, accumulation=1 if loop == "sync" else 4)
        strategy = StockAllReduce if loop == "sync" else AllReduce
        rate = batch / 32 * (hosts if loop == "ctl" else hosts**-0.5)
        point = on_hosts(make_experiment(strategy, hosts, workload=load), 1e9)
        groups.append(runs(point, times(rate)))
    return cases_of(*groups)


def lacking(*batches: int) -> Sequence[Case]:
    """Without some batches of one model, in one loop, on the most hosts."""

    def is_lacking(own: Experiment) -> bool:
        sync = own.strategy.as_shipped and own.num_workers == 3
        load = own.workload
        return sync and "ResNet50" in load.model.name and load.batch_per_worker in batches

    return [
        replace(case, points=tuple(p for p in case.points if not is_lacking(p.experiment)))
        for case in pcad_cases()
    ]


def records(place: str | None = "/data/a") -> RecordFiles:
    return RecordFiles(
        path="/data/a",
        num_files=4,
        num_bytes=400,
        checksum="ab" * 8,
        form=ExampleForm(num_outputs=2, image_size=64),
        place=place,
    )


LOOSE = ImageFiles(
    path="/data/b", num_files=4, num_bytes=400, num_classes=2, checksum="cd" * 8, place="/data/b"
)


def reading(data: Data, pipeline: Pipeline | None = None) -> Experiment:
    own = pipeline or Pipeline(read_size=64 if isinstance(data, ImageFiles) else None)
    load = replace(emulated("ResNet50", 64, 64 / 412, 32), data=data, pipeline=own)
    return on_hosts(make_experiment(AllReduce, 2, workload=load), 1e9)


def storage_cases() -> tuple[Case, ...]:
    bad = Pipeline(parallel_reads=1, parallel_maps=1, prefetch=0)
    factors = {
        reading(Synthetic()): 1.0,
        reading(records()): 0.9,
        reading(records(), bad): 0.5,
        reading(LOOSE): 0.8,
    }
    return cases_of(*[runs(p, times(f)) for p, f in factors.items()])


def with_real_images() -> tuple[Case, ...]:
    def served(data: Data) -> Experiment:
        load = replace(emulated("InceptionV3", 64, 1.0, 32), data=data)
        point = make_experiment(
            SynchronousServers, 2, num_ps=2, placement=Policy.PARTITIONED, workload=load
        )
        return on_hosts(point, 1e8)

    return cases_of(runs(served(Synthetic()), times(1.0)), runs(served(records(None)), times(0.75)))


def epoch(
    point: Experiment, rate: float, evaluated: float, mode: EvaluationMode
) -> list[RunRecord]:
    evaluation = Evaluation(batches=4 * point.num_workers, mode=mode)
    assert isinstance(point.measurement, Measurement)
    own = replace(point, measurement=replace(point.measurement, evaluation=evaluation))
    figures = EvaluationTimes(
        seconds=1.0,
        examples_per_sec=evaluated,
        input_wait_s=0.0,
        loss=1.0,
        batches_per_worker=evaluation.shares(point.num_workers),
    )
    return runs(own, times(rate / 100), evaluation=figures)


def claix_cases() -> tuple[Case, ...]:
    """One worker trains 100/s and evaluates 300/s, four train 400/s, and evaluate 300 or 1200/s."""
    load = emulated("ResNet50", 64, 0.6, 32)
    alone = on_hosts(make_experiment(Single, 1, workload=load), 1e8)
    four = on_hosts(make_experiment(AllReduce, 4, workload=load), 1e8)
    fused = changed(on_hosts(make_experiment(Horovod, 4, workload=load), 1e8), fusion_bytes=10)
    sequential, distributed = EvaluationMode
    return cases_of(
        epoch(alone, 100, 300, sequential),
        epoch(four, 400, 300, sequential),
        epoch(four, 400, 1200, distributed),
        epoch(fused, 390, 1200, distributed),
    )


def osu_cases() -> tuple[Case, ...]:
    real = Workload(model=ImageModel(image_size=32), batch_per_worker=32)
    halves = replace(real, batch_per_worker=16)
    one = on_hosts(make_experiment(Single, 1, workload=real), 1e9)
    two = on_hosts(make_experiment(AllReduce, 2, workload=halves), 1e9, per_host=2)
    groups = [runs(one, times(1.0)), runs(two, times(1.5))]
    weak = emulated("ResNet50", 128, 0.35, 128)
    for load, hosts in itertools.product((weak, replace(weak, scaling=Scaling.STRONG)), (1, 8)):
        strategy = Single if hosts == 1 else AllReduce
        point = on_hosts(make_experiment(strategy, hosts, workload=load), 1e9)
        rate = {1: 1.0, 8: 7.0 if load is weak else 5.0}[hosts]
        groups.append(runs(point, times(rate)))
    return cases_of(*groups)


def served(workers: int, num_ps: int, policy: Policy) -> Experiment:
    return make_experiment(SynchronousServers, workers, num_ps=num_ps, placement=policy)


MEASURED: Mapping[Experiment, float] = {
    make_experiment(Single, 1): 1.0,
    served(2, 1, Policy.ROUND_ROBIN): 1.8,
    served(4, 3, Policy.ROUND_ROBIN): 2.0,
    served(4, 4, Policy.PARTITIONED): 3.6,
}


RECORDS = [
    replace(record, sweep="piz-daint")
    for point, factor in MEASURED.items()
    for record in runs(point, times(factor))
]


def failed() -> tuple[Case, ...]:
    return cases_of(runs(on_hosts(make_experiment(AllReduce, 2), 1e9), {0: None}))


#: What a sweep has measured, by the study that it repeats.
SWEEPS: Mapping[ShownStudy, Mapping[str, Callable[[], Sequence[Case]]]] = {
    P2: {"hosts of one and of eight workers": p2_cases, "no launch": failed},
    PIZ_DAINT: {
        "servers": lambda: [case_of(RECORDS)],
        "real images": with_real_images,
        "no launch": failed,
    },
    NETWORK: {
        "devices and links": network_cases,
        "real devices, links that were not measured": lambda: [
            case_of(runs(make_experiment(AllReduce, 2), times(1.0)))
        ],
        "no launch": failed,
    },
    INCAST: {"ports": incast_cases, "no launch": failed},
    PCAD: {
        "times of an epoch": pcad_cases,
        "a cell is missing": lambda: lacking(32),
        "all cells of a row are missing": lambda: lacking(32, 64, 100),
        "too few settings for a model": lambda: pcad_cases(most_hosts=1),
        "no launch": failed,
    },
    STORAGE: {"ways to read": storage_cases, "no launch": failed},
    CLAIX: {"two evaluations": claix_cases, "no launch": failed},
    OSU: {"processes of a host, and hosts": osu_cases, "no launch": failed},
    EMBEDDINGS: {"rows and whole tables": embeddings_cases, "no launch": failed},
}


def lines_of(shown: Shown) -> Iterator[str]:
    yield from shown.sentences
    for table in shown.tables:
        yield from ("", f"{table.title}: {table.caption}", " | ".join(map(str, table.rows.columns)))
        yield from (" | ".join(map(str, row)) for row in table.rows.to_numpy())
    for figure in shown.figures:
        curves = figure.data.iloc[:, 0].unique()
        yield from ("", f"Figure {figure.name}, {figure.title}: {figure.caption}")
        yield f"{len(figure.data)} points of {', '.join(map(str, curves))}"


@pytest.mark.parametrize("study", SWEEPS, ids=lambda study: study.name)
def test_what_is_shown_beside_published_numbers(study: ShownStudy) -> None:
    blocks = [
        "\n".join([f"# {title}", *lines_of(study.show(cases())), ""])
        for title, cases in SWEEPS[study].items()
    ]
    golden.check({f"sentences/published/{study.name}.txt": "\n".join(blocks)})


def test_a_speed_up_is_over_a_host_with_as_many_processes_and_the_same_strategy() -> None:
    load = emulated("ResNet50", 64, 0.35, 128)
    several: tuple[type[AnyStrategy], ...] = (AllReduce, SynchronousServers)
    groups = [runs(on_hosts(make_experiment(Single, 1, workload=load), 1e9), times(1.0))]
    for factor, strategy in enumerate(several, 2):
        for hosts in (1, 2):
            point = make_experiment(strategy, 4 * hosts, workload=load)
            groups.append(runs(on_hosts(point, 1e9, per_host=4), times(float(factor * hosts))))
    shown = OSU.show(cases_of(*groups))
    (table,) = shown.tables
    assert [text.split()[0] for text in table.rows["efficiency"]] == ["1.00", "1.00"]


def test_no_efficiency_of_hosts_is_claimed_where_the_processors_may_have_been_the_limit() -> None:
    load = emulated("ResNet50", 128, 0.35, 128)
    one, four = (
        on_hosts(make_experiment(kind, n, workload=load), 1e9)
        for kind, n in ((Single, 1), (AllReduce, 4))
    )
    shown = OSU.show(cases_of(runs(one, times(1.0)), runs(four, times(3.9), machine_busy=0.97)))
    assert [*shown.tables[0].rows["efficiency"]] == ["not claimed *"]
    assert "] * (" in shown.sentences[0]


def test_a_sequential_evaluation_bounds_the_speed_up_of_an_epoch() -> None:
    # 60 % at 100/s and 20 % at 300/s; four workers train four times as fast.
    training, evaluating = PATCHES * 0.6 / 100, PATCHES * 0.2 / 300
    bound = (training + evaluating) / evaluating
    shown = CLAIX.show(claix_cases())
    assert f"A sequential evaluation bounds it by {bound:.2f}." in shown.sentences[0]
    (axes,) = shown.figures[0].figure.axes
    heights = [np.unique(np.asarray(line.get_ydata())) for line in axes.get_lines()]
    assert any(each == pytest.approx([bound], rel=0.01) for each in heights)


def test_published_speed_ups_of_more_hosts_lie_inside_the_axes() -> None:
    load = emulated("ResNet50", 128, 0.35, 128)
    one, four = (
        make_experiment(kind, n, workload=load) for kind, n in ((Single, 1), (AllReduce, 4))
    )
    launches = [runs(on_hosts(one, 1e9), times(1.0)), runs(on_hosts(four, 1e9), times(3.9))]
    (axes,) = OSU.show(cases_of(*launches)).figures[0].figure.axes
    places = [np.asarray(line.get_xydata()) for line in axes.get_lines()]
    assert max(each[:, 1].max() for each in places if len(each)) < axes.get_ylim()[1]
    # A curve alone stands on its number of hosts, or it would seem above the ideal line.
    assert any(each[:, 0] == pytest.approx([1, 4]) for each in places if len(each) == 2)


def test_the_numbers_are_those_that_the_original_tells() -> None:
    """Its slides: 80.46 % of 64, 52.11 % of 128, synthetic images."""
    rows = CURVE.rows().set_index("workers")
    assert rows.loc[64, "efficiency"] == pytest.approx(0.8046, abs=5e-5)
    assert rows.loc[128, "efficiency"] == pytest.approx(0.5211, abs=5e-5)


def test_the_report_of_the_study_begins_with_its_page_and_picture(tmp_path: Path) -> None:
    page = reported(tmp_path, RECORDS)
    assert page.index('id="published"') < page.index('id="results"')
    assert "The original: Bugliarello" in page
    assert PIZ_DAINT.small_form[0] in page
    assert page.count("published.svg") == 1
    for kind in ("png", "svg", "pdf", "csv"):
        assert (tmp_path / f"published.{kind}").exists()


def test_what_holds_in_the_small_form_only_stands_in_its_report_only(tmp_path: Path) -> None:
    large = [replace(record, profile="standard") for record in RECORDS]
    page = reported(tmp_path, large)
    assert PIZ_DAINT.differences[0] in page
    assert PIZ_DAINT.small_form[0] not in page


def test_the_report_answers_the_question_of_the_study(tmp_path: Path) -> None:
    """It has no all-reduce, so it has no verdict between two sides."""
    save_all(tmp_path, RECORDS)
    told = " ".join(invoke("report", str(tmp_path)).split())
    page = " ".join((tmp_path / "report.html").read_text().split())
    answer = "Efficiency with 4 workers: here, round robin 0.50 ["
    assert answer in told
    assert f"<strong>{answer}" in page
    assert page.count(answer) == 1
    assert "No verdict" not in told + page
    # The table beside the published numbers stands on the screen as well.
    assert "There is the original, here this sweep: " in told
