from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from analysis.__main__ import main
from analysis.report.circumstances import above_one_lines
from analysis.report.pages.case_pages import legend, scaling_lines
from analysis.report.pages.first_page import key_numbers
from analysis.report.table import render_table, report_table, short_legend, text_table
from analysis.report.verdict import verdict
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import Spread
from ps_allreduce.point.strategies import (
    AllReduce,
    AsynchronousServers,
    Single,
    StockAllReduce,
    StockServers,
    SynchronousServers,
)
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.choices import (
    EXCHANGES,
    ExchangeChoice,
    ExchangeMode,
)
from ps_allreduce.record.files import write_json
from ps_allreduce.record.records import RunRecord
from ps_allreduce.serialization import to_json
from tests.analysis.builders import (
    RATES,
    case_of,
    invoke,
    on_own_hosts,
    placement_used,
    provenance,
    reported,
    run,
    runs,
    save,
    save_all,
    tasks_on,
    times,
)
from tests.fakes import make_experiment, make_host
from tests.goldens.made_sweeps import write

DOUBLE: dict[int, float | None] = {0: 200.0, 1: 204.0, 2: 196.0}
VOID = {"meta", "img", "br", "link", "input", "hr", "path", "use"}


def compare_sweep() -> list[RunRecord]:
    return [
        *runs(make_experiment(Single), RATES),
        *runs(make_experiment(SynchronousServers, 2), RATES),
        *runs(make_experiment(AllReduce, 2), DOUBLE),
    ]


def test_a_sweep_whose_steps_nobody_sees_into_has_a_page_too(tmp_path: Path) -> None:
    shipped = [make_experiment(kind, 2) for kind in (StockServers, StockAllReduce)]
    reported(tmp_path, *(runs(own, RATES) for own in shipped))
    text = " ".join(parse(tmp_path).text)
    assert "own two sides do not train alike" in text
    assert "stock_ps" in text
    assert text_table(case_of(*(runs(own, RATES) for own in shipped)))["compute_s"].unique() == "-"


class Balance(HTMLParser):
    """Collects tags that are not closed in order, visible text, and what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.sources: list[str] = []
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        self.names += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "title" not in self.open and data.strip():
            self.text.append(" ".join(data.split()))


def parse(folder: Path) -> Balance:
    page = Balance()
    page.feed((folder / "report.html").read_text())
    assert page.open == []
    return page


def test_the_page_says_how_gradients_travel_if_that_was_chosen(tmp_path: Path) -> None:
    choice = ExchangeChoice(
        model="SmallCNN",
        strategy="allreduce",
        mode=ExchangeMode.WHOLE,
        num_workers=2,
        cores=2,
        bits_per_s=None,
        network_s=0.001,
        processor_s=0.02,
        saved_s=0.01,
    )
    choices = {EXCHANGES: to_json((choice, replace(choice, model="VGG16", cores=3)))}
    write_json(tmp_path / "sweep.json", {"order": [], "choices": choices})
    page = reported(tmp_path, compare_sweep())
    assert "Gradients travel in one pack (auto: no links that limit, 2 cores, 2 workers)." in page


@pytest.mark.usefixtures("rendered")
def test_the_report_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    text = reported(tmp_path, compare_sweep())
    page = parse(tmp_path)
    assert all(source.startswith("#") for source in page.sources)
    # Every link leads somewhere in the page, and no two parts of it have one name.
    assert {source[1:] for source in page.sources} <= set(page.names)
    assert len(page.names) == len(set(page.names))
    assert "http" not in text
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) == {"#"}


def test_the_report_holds_what_a_reviewer_asks_for(tmp_path: Path) -> None:
    astray = placement_used(300, 100, deviations=("variable 0 was planned on ps:0",))
    old = provenance(fingerprint="bbbbbbbb", program="older")
    own = make_experiment(SynchronousServers, 2, placement=Policy.PARTITIONED)
    save_all(
        tmp_path,
        [
            *compare_sweep(),
            run(own, 90.0, 0, placement=astray, warnings=("load average 3.0 before the run",)),
            run(own, None, 1, reason="<script>alert(1)</script> & more \udcff"),
            run(own, 1.0, 2, provenance=old, started_at="2025-01-01T00:00:00+00:00"),
        ],
    )
    invoke("report", str(tmp_path), exit_code=1)
    text = " ".join(parse(tmp_path).text)
    for expected in (
        "variable 0 was planned on ps:0",
        "Load average 3.0 before the run (1 run of ps_sync, SmallCNN, 2 workers, ",
        "<script>alert(1)</script> & more \\udcff",
        f"runs/{own.experiment_id}/1-1.log",
        "bbbbbbbb: 1 run, the last begun 2025-01-01 00:00:00 UTC; program: older (analysed: "
        "0c0ffee0)",
        "git checkout 0123abc",
        ".venv/bin/python -m experiments compare",
        "tensorflow 2.21.0",
        "OMP_NUM_THREADS=default",
        "processor time that others used while measuring not known",
        "geometric",
    ):
        assert expected in text
    assert "<script>" not in (tmp_path / "report.html").read_text()


def test_bounds_tell_which_slow_link_is_not_in_them(tmp_path: Path) -> None:
    own = on_own_hosts(3, bits_per_s=800.0)
    first, *others = own["links"]
    own |= {"gradient_bytes": 25, "links": (replace(first, bits_per_s=300.0), *others)}
    text = reported(tmp_path, runs(make_experiment(AllReduce, 3), RATES, **own))
    assert "Bounds are without n0 to n1, slower than other links of the same hosts." in text


def test_a_fraction_of_the_bound_counts_the_launches_that_have_one() -> None:
    where = on_own_hosts(2, bits_per_s=1e5)
    first, *others = runs(make_experiment(AllReduce, 2), RATES, **where)
    case = case_of([replace(first, links=()), *others])
    assert report_table(case, "bounds")["n"].tolist() == [str(len(others))]


@pytest.mark.parametrize(("staleness", "told"), [(None, True), (4, False)])
def test_the_best_division_of_steps_is_told_of_where_steps_may_differ(
    staleness: int | None, told: bool, tmp_path: Path
) -> None:
    own = make_experiment(AsynchronousServers, 2, staleness=staleness)
    places = {f"{kind}:{number}": f"n{number}" for kind in ("worker", "ps") for number in (0, 1)}
    where = on_own_hosts(2, 1e5) | {"tasks": tasks_on(places)}
    page = reported(tmp_path, runs(own, RATES, **where))
    assert "Bounds by the links" in page
    assert ("divided so that it is the least" in page) is told


@pytest.mark.parametrize(
    ("commit", "line"),
    [
        ("0123abc", "git checkout 0123abc\n"),
        ("0123abc with changes, source 9f", "git checkout 0123abc  # with changes, source 9f\n"),
        ("unknown, source 9f", "# the commit is not known: source 9f\n"),
    ],
)
def test_the_commands_that_repeat_a_sweep_begin_with_its_commit(
    commit: str, line: str, tmp_path: Path
) -> None:
    # Not with the Python of whoever made the runs, which others do not have.
    command = "/home/ann/env/bin/python -m experiments compare"
    made_with = replace(provenance(commit=commit), command=command)
    page = reported(tmp_path, runs(make_experiment(Single), {0: 1.0}, provenance=made_with))
    assert f"<pre>{line}make setup\n.venv/bin/python -m experiments compare\n" in page


def test_missing_raw_files_and_a_busy_machine_are_warnings(tmp_path: Path) -> None:
    own = make_experiment(Single)
    save(tmp_path, run(own, 1.0, 0, provenance=provenance(load_average=4.5)), raw=False)
    text = reported(tmp_path, [run(own, 1.0, 1)])
    assert f"Raw timings are missing beside 1 record (runs/{own.experiment_id}/0-1.json);" in text
    assert "and the report explains no difference of their points." in text
    assert "1 of 2 runs began with a load average above 2 per processor" in text
    reported(tmp_path, [run(own, 1.0, 9, hosts=(make_host(foreign_load=0.2),))])
    told = "processor time that others used while measuring 20% (1 of 3 runs)"
    assert told in " ".join(parse(tmp_path).text)
    for turn in range(2, 7):
        save(tmp_path, run(own, 1 + turn / 9, turn), raw=False)
    assert re.search(r"beside 6 records \([^)]*/4-1\.json and 2 more\);", reported(tmp_path))


def test_all_runs_failed_is_still_a_report(tmp_path: Path) -> None:
    save_all(tmp_path, runs(make_experiment(AllReduce, 2), {0: None, 1: None}))
    output = invoke("report", str(tmp_path), exit_code=1)
    assert "No verdict" in output
    title, headline, *_ = parse(tmp_path).text
    assert not title.endswith("?"), "nothing answers it"
    assert headline.startswith("No verdict")


def test_a_retried_point_is_not_a_failed_one(tmp_path: Path) -> None:
    own = make_experiment(Single)
    save_all(tmp_path, [run(own, None, 0, attempt=1), run(own, 5.0, 0, attempt=2)])
    output = invoke("report", str(tmp_path))
    assert re.search(r"1/1, 1 +.*failed", output, re.DOTALL)
    assert "1 of 2 attempts ended well" in (tmp_path / "report.html").read_text()


def test_all_sweeps_below_a_folder_are_reported_also_where_one_cannot_be_read(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        save_all(tmp_path / name, runs(make_experiment(Single), {0: 1.0}))
    (tmp_path / "empty" / "runs").mkdir(parents=True)
    output = invoke("report", str(tmp_path), exit_code=2)
    assert "holds no records yet" in output
    assert all((tmp_path / name / "report.html").exists() for name in ("one", "two"))


def test_a_damaged_record_is_told_and_ends_with_one(tmp_path: Path) -> None:
    save_all(tmp_path, compare_sweep())
    path = save(tmp_path, run(make_experiment(Single), 1.0, 9))
    path.write_text("{")
    output = invoke("summary", str(tmp_path), exit_code=1)
    assert f"Not read: {path}: not a readable record (Expecting" in output
    assert len((tmp_path / "summary.csv").read_text().splitlines()) == 1 + len(compare_sweep())
    invoke("report", str(tmp_path), exit_code=1)
    assert "1 file could not be read and is left out" in " ".join(parse(tmp_path).text)


def test_planned_runs_that_cannot_be_read_are_not_called_unmade(tmp_path: Path) -> None:
    write(tmp_path, runs(make_experiment(Single), times(1.0)))
    (tmp_path / "runs" / make_experiment(Single).experiment_id / "0-1.json").write_text("{")
    invoke("report", str(tmp_path), exit_code=1)
    told = " ".join(parse(tmp_path).text)
    assert "1 planned run is not made yet, or not readable, with this machine" in told


def test_launches_behind_the_plan_that_cannot_be_read_are_missed(tmp_path: Path) -> None:
    """A sweep that goes on while there is time plans fewer launches than it makes."""
    own = make_experiment(Single)
    write(tmp_path, runs(own, times(1.0, 5)))
    for turn in (3, 4):
        (tmp_path / "runs" / own.experiment_id / f"{turn}-1.json").write_text("{")
    output = " ".join(invoke("report", str(tmp_path), exit_code=1).split())
    assert " 3/5 " in output
    assert "2 planned runs are not made yet, or not readable, with this machine" in output


def test_the_reason_that_is_told_is_of_a_launch_that_is_lost(tmp_path: Path) -> None:
    own = make_experiment(Single)
    again = [run(own, None, 1, reason="no luck"), run(own, 1.0, 1, attempt=2)]
    save_all(tmp_path, [run(own, None, 0, reason="no room"), *again])
    told = " ".join(invoke("report", str(tmp_path), exit_code=1).split())
    said = told.partition("Exit status 1: ")[2]
    assert said.startswith("of 1 launch no attempt ended well")
    assert said.endswith(": no room")


@pytest.mark.parametrize(
    ("raised", "status", "told"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device", "/x/y"), 2, "/x/y: No space left on device."),
        (OSError(28, "No space left on device"), 2, "Error: No space left on device."),
    ],
)
def test_what_ends_a_command_early_is_a_status_and_a_sentence(
    raised: BaseException,
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def find_sweeps(_: Path) -> list[Path]:
        raise raised

    monkeypatch.setattr("analysis.__main__.find_sweeps", find_sweeps)
    assert main(["summary", "x"]) == status
    assert told in capsys.readouterr().err


def test_help_has_a_short_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["-h"]), main(["report", "-h"])) == (0, 0)
    assert "FOLDER" in capsys.readouterr().out


def test_the_table_shows_figures_and_statuses() -> None:
    case = case_of(
        [
            *compare_sweep(),
            run(make_experiment(AllReduce, 2), None, 3),
            *runs(make_experiment(AsynchronousServers, 2), {0: None}),
        ]
    )
    rows = text_table(case).set_index("setting")
    shown = rows.loc["all-reduce", ["speedup", "ok", "compute_s", "step_mean_s"]]
    assert list(shown) == ["2.00", "3/4, 1 failed", "12.00", "21.00"]
    assert rows["rate"]["single"].startswith("99.99 [9")
    assert rows["rate"]["ps_async, round_robin"] == "-"
    console = Console(width=140, file=io.StringIO(), record=True)
    console.print(render_table(case))
    assert "3/4, 1" in console.export_text()
    assert short_legend(case) == (
        "w: workers, ok: launches that are ok, of those planned, comp: compute, comm: exposed "
        "communication. "
        "Weak scaling: each worker keeps its batch, so the global batch is 16 to 32."
    )
    more = case_of(compare_sweep(), [run(make_experiment(AllReduce, 2), 200.0, 3)])
    told = "Where that leaves launches out, it rests on 3 pairs (speed-up on single)."
    assert told in scaling_lines(more)[1]
    assert told in short_legend(more)
    assert "same turn" not in " ".join(scaling_lines(case))


def test_a_ratio_says_where_launches_beside_it_are_left_out() -> None:
    case = case_of(compare_sweep())
    more = case_of(compare_sweep(), [run(make_experiment(AllReduce, 2), 200.0, 3)])
    told = ["of common turns" in str([n.meaning for n in key_numbers(c)]) for c in (case, more)]
    assert told == [False, True]


def test_of_many_warnings_five_are_open_and_the_rest_is_folded(tmp_path: Path) -> None:
    told = [f"{name} was slow" for name in ("disk", "clock", "link", "host", "input", "memory")]
    page = reported(tmp_path, [run(make_experiment(Single), 1.0, warnings=tuple(told))])
    opened, folded = page.split("<summary>All warnings: 2 more</summary>")
    assert opened.count("was slow (1 run of single, ") == 4
    assert folded.partition("</details>")[0].count("was slow (1 run of single, ") == 2


def test_of_warnings_with_other_figures_the_largest_is_told(tmp_path: Path) -> None:
    """However they follow each other."""
    told = [f"others took {share}% of the time of n0" for share in (10, 42, 5)]
    own = make_experiment(Single)
    records = [run(own, 1.0, turn, warnings=(text,)) for turn, text in enumerate(told)]
    page = reported(tmp_path, records)
    assert "Others took 42% of the time of n0 (3 runs of " in page
    slow = [(3, 6.4), (0, 9.2)]
    told = [f"worker:{worker} took {ms} ms" for worker, ms in slow]
    records = [run(own, 1.0, turn, warnings=(text,)) for turn, text in enumerate(told)]
    assert "Worker:0 took 9.2 ms (2 runs of " in reported(tmp_path / "named", records)


def test_of_warnings_with_other_figures_several_may_have_the_same(tmp_path: Path) -> None:
    told = [f"others took {share}% of the time of n0" for share in (42, 42, 5)]
    own = make_experiment(Single)
    page = reported(tmp_path, [run(own, 1.0, n, warnings=(text,)) for n, text in enumerate(told)])
    assert "; figures of one)" in page
    assert "the others with" not in page


def test_what_has_nothing_to_say_is_left_out(tmp_path: Path) -> None:
    page = reported(tmp_path, compare_sweep())
    assert "Blocks left out" not in page
    assert "What did not end well" not in page


def test_what_a_launch_is_stands_there_once(tmp_path: Path) -> None:
    large = Workload(model=ImageModel(name="ResNet50"))
    other = runs(make_experiment(AllReduce, 2, workload=large), RATES)
    page = reported(tmp_path, compare_sweep(), other)
    assert page.count('<dl class="numbers">') == 2
    assert page.count("A launch is a fresh start of all processes; 1.20x is 1.20 times") == 1


def test_busy_processors_are_told_once(tmp_path: Path) -> None:
    own = {
        "launcher": "emulated",
        "network": EmulatedNetwork(num_hosts=2, bits_per_s=1e8),
        "spread": Spread(),
    }
    told = ("this machine's processors were 95% busy: it may have been the limit",)
    records = runs(make_experiment(AllReduce, 2, **own), RATES, machine_busy=0.95, warnings=told)
    page = reported(tmp_path, records)
    assert "In 3 of 3 runs, shared processors were 90% busy or more" in page
    assert "s processors were 95% busy: it may" not in page


def test_the_method_is_that_of_what_the_pages_show(tmp_path: Path) -> None:
    def method(name: str, *groups: list[RunRecord]) -> str:
        return reported(tmp_path / name, *groups).partition('<section id="method"')[2]

    alone = method("alone", runs(make_experiment(Single), RATES))
    assert "Speed-up on single: the rate over that of a single worker" in alone
    assert not [word for word in ("Berger", "Holm", "Bound of", "One rule") if word in alone]
    main = method("main", compare_sweep())
    assert "The main comparison is planned" in main
    assert "no rival" not in main, "each side has one setting"
    where = on_own_hosts(3, bits_per_s=800.0) | {"gradient_bytes": 25}
    assert "Bound of a step" in method("links", runs(make_experiment(AllReduce, 3), RATES, **where))


def test_keys_are_of_what_stands_above_them() -> None:
    case = case_of(compare_sweep())
    assert " n launches" not in legend(case), "no column is called n"
    assert "other attempts" not in legend(case), "there are none"
    failed = case_of(compare_sweep(), [run(make_experiment(AllReduce, 2), None, 3)])
    assert "and what became of other attempts" in legend(failed)


def test_a_key_figure_of_what_is_faster_lies_beyond_the_margin_as_its_sentence_does() -> None:
    fast = runs(make_experiment(AllReduce, 2), {0: 103.1, 1: 103.12, 2: 103.08})
    slow = runs(make_experiment(SynchronousServers, 2), {0: 100.0, 1: 100.0, 2: 100.0})
    case = case_of(fast, slow)
    assert "1.031x" in verdict(case).headline
    assert [each.value.partition(" ")[0] for each in key_numbers(case)][-1] == "1.031"


def test_an_efficiency_above_one_is_a_warning_on_the_first_page(tmp_path: Path) -> None:
    fast = runs(make_experiment(AllReduce, 2), times(3.0))
    page = reported(tmp_path / "fast", runs(make_experiment(Single), times(1.0)), fast)
    told = "<li>Efficiency above 1: all-reduce at 2 workers 1.50 [1.50, 1.50]."
    assert told in page.split("<nav")[0]
    crowded = runs(make_experiment(AllReduce, 2), times(3.0), oversubscribed=True)
    page = reported(tmp_path / "crowded", runs(make_experiment(Single), times(1.0)), crowded)
    assert "Efficiency above 1" not in page
    assert ">not claimed *</td>" in page


def test_more_than_links_can_carry_is_a_warning_and_no_share_is_cut_off() -> None:
    own = make_experiment(AllReduce, 2), make_experiment(SynchronousServers, 2)
    where = on_own_hosts(2, 1e6) | {"gradient_bytes": 44_000}
    case = case_of(*(runs(each, times(1.0), **where) for each in own))
    (told,) = above_one_lines(case)
    assert told.startswith("Fraction of the bound above 1: all-reduce at 2 workers 1.11 [1.06, ")
    assert verdict(case).network == (
        "Busiest link in use 108 to 112% with all-reduce, not known of ps_sync, round_robin "
        "(at the rates measured before the runs; slowest: 1 Mbit/s)."
    )


def test_shares_that_are_the_same_stand_there_once() -> None:
    alike, different = (
        case_of(runs(make_experiment(AllReduce, 2), RATES, total_cores=cores)) for cores in (2, 3)
    )
    both = ["images/s per worker core", "images/s per core of all tasks"]
    for case, shown in ((alike, both[:1]), (different, both)):
        headings = [str(heading) for heading in report_table(case, "results")]
        assert [heading for heading in headings if "core" in heading] == shown


def test_figures_of_an_older_report_make_room_for_new_ones_and_others_stay(tmp_path: Path) -> None:
    reported(tmp_path, compare_sweep())
    alone = {path.name for path in tmp_path.glob("throughput*")}
    assert alone == {f"throughput.{ending}" for ending in ("csv", "pdf", "png", "svg")}
    (tmp_path / "throughput-mine.png").touch()
    other = Workload(model=ImageModel(name="ResNet50"))
    reported(tmp_path, runs(make_experiment(AllReduce, 2, workload=other), RATES))
    both = {path.name for path in tmp_path.glob("throughput*")}
    assert alone.isdisjoint(both)
    assert {"throughput-mine.png", "throughput-SmallCNN.png"} <= both
