"""A report in Chromium: on a phone, on a desk and in the dark, from made-up records.

Also its sliders, which have to say what Python says.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from random import Random
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from analysis.predict.advice import known_tellers
from analysis.predict.predictions import Teller
from analysis.predict.sliders import BANDWIDTHS, STOPS, Sliders, sliders
from analysis.report.pages.ahead_page import CALIBRATE
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from tests.analysis.builders import invoke, save_all
from tests.analysis.predict.simulated import sweep
from tests.conftest import skip_or_fail
from tests.goldens import made_sweeps

pytestmark = pytest.mark.slow

PHONE, DESK = 390, 1400

#: A4 without margins of a centimetre, at 96 dots per inch.
SHEET = (718, 1047)

#: Elements that reach beyond the right edge, but for those that may be scrolled by themselves.
_TOO_WIDE = """
return [...document.querySelectorAll('body *')]
  .filter(e => !e.closest('.wide') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40));
"""

#: Texts whose contrast with what is behind them is below 4.5 (WCAG 2, 1.4.3).
_TOO_PALE = """
const parts = c => (c.match(/[0-9.]+/g) || []).map(Number);
const light = c => parts(c).slice(0, 3).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const solid = c => c.startsWith('rgb') && (parts(c).length < 4 || parts(c)[3] > 0);
const behind = e => { for (; e; e = e.parentElement) {
  const c = getComputedStyle(e).backgroundColor; if (solid(c)) return c; }
  return 'rgb(255, 255, 255)'; };
const own = e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
return [...document.querySelectorAll('body *')].filter(own).map(e => {
  const style = getComputedStyle(e), svg = e.closest('svg');
  const ends = [light(svg ? style.fill : style.color), light(behind(e))].sort((a, b) => b - a);
  return [e.textContent.trim().slice(0, 40), (ends[0] + 0.05) / (ends[1] + 0.05)];
}).filter(each => each[1] < 4.5);
"""

#: Pictures without words, and tables without headings.
_WORDLESS = """
return [...document.querySelectorAll('svg')].filter(e => !e.getAttribute('aria-label'))
  .concat([...document.querySelectorAll('table')].filter(e => !e.querySelector('th')))
  .concat([...document.querySelectorAll('section')].filter(e => !e.querySelector('h2')))
  .map(e => e.outerHTML.slice(0, 80));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report about points like those of `make compare`, with a failed run.

    The sweep calibrates, so the report has sliders.
    """
    folder = tmp_path_factory.mktemp("page")
    lost = made_sweeps.failed(made_sweeps.point(SynchronousServers, 4, num_ps=4), 3)
    made = [*made_sweeps.sweep(made_sweeps.COMPARED), lost]
    save_all(folder, [replace(each, sweep=CALIBRATE) for each in made])
    invoke("report", str(folder), exit_code=1)
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Debian's Chromium without a screen."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        skip_or_fail("chromium and chromedriver are not installed (Debian: chromium-driver)")
    options = Options()
    options.binary_location = str(programs[0])
    # As root there is no sandbox, and containers have little shared memory.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(programs[1])) as chromium:
        yield chromium


def open_page(browser: webdriver.Chrome, page: str, width: int, scheme: str = "light") -> Any:
    """The page on a screen of that width; returns what runs a script in it."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(page)
    return browser.execute_script


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_is_cut_and_the_console_is_quiet(
    browser: webdriver.Chrome, page: str, width: int
) -> None:
    run = open_page(browser, page, width)
    run("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert run("return document.documentElement.scrollWidth") <= width
    assert run(_TOO_WIDE) == []
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(
    browser: webdriver.Chrome, page: str, scheme: str
) -> None:
    run = open_page(browser, page, DESK, scheme)
    shade = run("return getComputedStyle(document.body).backgroundColor")
    assert (shade == "rgb(255, 255, 255)") is (scheme == "light")
    assert run("return document.querySelectorAll('svg text').length") > 20
    assert run(_TOO_PALE) == []


def test_pictures_and_tables_can_be_heard(browser: webdriver.Chrome, page: str) -> None:
    run = open_page(browser, page, DESK)
    assert run("return document.querySelectorAll('svg').length") >= 3
    assert run(_WORDLESS) == []


def test_the_first_page_of_a_print_holds_the_verdict_and_the_picture(
    browser: webdriver.Chrome, page: str
) -> None:
    run = open_page(browser, page, SHEET[0])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert run("return document.querySelector('figure').getBoundingClientRect().bottom") < SHEET[1]


def on_real_cores(teller: Teller) -> Teller:
    own = teller.largest
    computed: dict[str, Any] = {"forward_s": 0.05, "backward_s": 0.1, "spread": 0.04}
    clusters = [replace(each, **computed, lone_cores=3.0, crowding=1.2) for each in teller.clusters]
    return replace(
        teller,
        largest=replace(own, workload=replace(own.workload, emulated=None)),
        clusters=tuple(clusters),
        cpu_s_per_byte=2e-9,
    )


def shown(*, is_emulated: bool) -> Sliders:
    """Of launches that follow the formulas; or of workers that compute, on cores they share."""
    tellers = known_tellers(list(sweep((SynchronousServers, AllReduce), (1, 2, 4))))
    if not is_emulated:
        tellers = tuple(map(on_real_cores, tellers))
    made = sliders(tellers)
    assert made is not None
    return made


@pytest.mark.parametrize("is_emulated", [False, True])
def test_the_script_says_what_python_says(
    browser: webdriver.Chrome, page: str, is_emulated: bool
) -> None:
    own, random = shown(is_emulated=is_emulated), Random(1)
    points = []
    for _ in range(1000):
        number, workers = random.randrange(len(own.settings)), random.choice(STOPS)
        held = [each for each in own.settings[number].held if each <= workers] or [0]
        bits_per_s, batch = random.choice(BANDWIDTHS), random.choice([1, 8, 64])
        points.append((number, workers, random.choice(held), bits_per_s, batch))
    run = open_page(browser, page, DESK)
    told = run(
        "const [data, points] = arguments, told = closedForm(data);"
        "return points.map(([setting, ...rest]) => told(data.settings[setting], ...rest));",
        own.to_page(),
        points,
    )
    for (number, *rest), found in zip(points, told, strict=True):
        wanted = asdict(own.settings[number].ahead(*rest))
        numbers = {name: wanted[name] for name in found if isinstance(wanted[name], float)}
        assert {name: found[name] for name in numbers} == pytest.approx(numbers, rel=1e-9)
        # Far out there is no rate, and here as there a word for what limits.
        others = wanted.keys() - numbers.keys()
        assert {name: found.get(name) for name in others} == {name: wanted[name] for name in others}


def test_sliders_move_the_table_and_pictures_stay_without_a_script(
    browser: webdriver.Chrome, page: str
) -> None:
    run = open_page(browser, page, DESK)
    table = "return document.querySelector('.sliders tbody').innerText"
    first = run(table)
    assert "fastest" in first
    move = (
        "const each = document.querySelector('#workers'); each.value = each.max;"
        "each.dispatchEvent(new Event('input', {bubbles: true}));"
    )
    run(move)
    assert run(table).count("bound only") == len(first.strip().splitlines())
    assert run("return document.querySelectorAll('#ahead figure svg').length") == 3
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page)
        assert not browser.find_element("css selector", ".sliders").is_displayed()
        assert len(browser.find_elements("css selector", "#ahead figure svg")) == 3
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
