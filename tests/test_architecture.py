"""The dependency direction of docs/architecture.md, and what else holds for every module.

experiments -> launchers -> core of ps_allreduce <- analysis; sweeps ask the analysis how long they
go on, and the studies of the suite itself for a judgement; the measured program (backends,
workloads, runner) is started, not imported.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from ps_allreduce import tf_texts as texts
from ps_allreduce.point.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = ("ps_allreduce", "launchers", "experiments", "analysis")

MAY_IMPORT = {
    "ps_allreduce": ("ps_allreduce",),
    "launchers": ("launchers", "ps_allreduce"),
    "experiments": ("experiments", "launchers", "ps_allreduce", "analysis.planning"),
    "analysis": ("analysis", "ps_allreduce"),
}

#: What two rooms of experiments ask the analysis besides: for a judgement, a prediction, a figure.
ASKED = {
    "experiments/suite/": ("analysis.data", "analysis.stats", "analysis.wording"),
    "experiments/tuning/": (
        *("analysis.data.prices", "analysis.figures", "analysis.predict", "analysis.stats"),
        "analysis.wording",
    ),
}

MEASURED_PROGRAM = (
    "ps_allreduce.backends",
    "ps_allreduce.exchange",
    "ps_allreduce.workloads",
    "ps_allreduce.runner",
    "ps_allreduce.fork_server",
    "ps_allreduce.inspection",
)

#: The words that both ends of the line speak, and the judgement of a run: no TensorFlow in them.
SHARED = (
    "ps_allreduce.fork_server.messages",
    "ps_allreduce.inspection.model_facts",
    "ps_allreduce.inspection.questions",
    "ps_allreduce.runner.validity",
)

#: Values of an experiment that exported trainings need as well: they are said once, where exports
#: take them along.
EXPORTED_VALUES = ("ps_allreduce.exchange.buckets", "ps_allreduce.exchange.stacking")

TENSORFLOW_ONLY_IN = (
    "ps_allreduce/backends/",
    "ps_allreduce/exchange/",
    "ps_allreduce/workloads/",
    "ps_allreduce/runner/task.py",
    "ps_allreduce/runner/forked_jobs.py",
)

#: What TensorFlow and Keras do not publish, whatever it is imported or called as.
UNPUBLISHED_ONLY_IN = "ps_allreduce/exchange/private_api.py"

#: The only way to a terminal.  What is told without the packages is told by the next two, and the
#: log of a task, which nobody reads as it is, by the last.
TO_TERMINALS = "ps_allreduce/terminal.py"
BARE = ("ps_allreduce/environment.py", "ps_allreduce/process.py")
TO_LOGS = "ps_allreduce/fork_server/child.py"

#: Exported trainings take these along as they are, so they import nothing else of the suite.
EXCHANGE = "ps_allreduce/exchange/"
TAKEN = "experiments/export/taken/"

#: Training as TensorFlow's tutorials write it.
SHIPPED = "ps_allreduce/backends/stock/"

UNPICKLERS = ("pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib")

SOURCES = [
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if not path.is_relative_to(ROOT / TAKEN)
]

DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
]

#: The domain: it is imported by everything and imports nothing but itself.
CORE = [r for r in SOURCES if re.fullmatch(r"ps_allreduce/((point|record)/.+|[^/]+)", r)]


@cache
def nodes(relative: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse((ROOT / relative).read_text(encoding="utf-8"))))


@cache
def imported(relative: str) -> frozenset[str]:
    """Dotted names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in nodes(relative):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= relative.startswith(EXCHANGE), f"{relative}:{node.lineno}"
            package = f"{EXCHANGE.replace('/', '.')}" if node.level else ""
            names.update(f"{package}{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def is_of(name: str, modules: Iterable[str]) -> bool:
    """A name is one of the modules, or something inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def imports(relatives: Iterable[str], forbidden: Callable[[str, str], bool]) -> list[str]:
    """Every import that a rule, asked with the module and the name, forbids."""
    return [
        f"{relative} imports {name}"
        for relative in relatives
        for name in sorted(imported(relative))
        if forbidden(relative, name)
    ]


def places(unwanted: Callable[[str, ast.AST], bool]) -> list[str]:
    """Everywhere in the sources where a rule, asked with the module and the node, is broken."""
    return [
        f"{relative}:{getattr(node, 'lineno', '?')}: {ast.unparse(node)}"
        for relative in SOURCES
        for node in nodes(relative)
        if unwanted(relative, node)
    ]


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 40
    assert len(CORE) >= 10
    assert links((ROOT / "README.md").read_text(encoding="utf-8"))
    assert {relative.split("/")[0] for relative in SOURCES} == set(PACKAGES)


def test_imports_point_downwards() -> None:
    def is_upwards(relative: str, name: str) -> bool:
        asked = next((rooms for room, rooms in ASKED.items() if relative.startswith(room)), ())
        allowed = (*MAY_IMPORT[relative.split("/")[0]], *asked)
        return is_of(name, PACKAGES) and not is_of(name, allowed)

    assert imports(SOURCES, is_upwards) == []


#: What the rooms of a package may import of their neighbours.  The fork server loads the jobs of
#: `runner` when it has something to fork.
NEIGHBOURS = {
    "ps_allreduce": {
        "point": ("exchange",),
        "record": (
            "exchange",
            "point",
        ),
        "exchange": (),
        "inspection": ("point", "record"),
        "workloads": ("exchange", "point", "record"),
        "backends": ("exchange", "point", "record", "workloads"),
        "fork_server": ("inspection", "point", "record", "runner"),
        "runner": (
            *("backends", "exchange", "fork_server", "inspection", "point", "record"),
            "workloads",
        ),
    },
    "launchers": {
        "fork_servers": (),
        "run": ("fork_servers",),
        "sites": ("fork_servers", "run"),
        "cli": ("sites",),
        "doctor": ("cli", "fork_servers", "run"),
        "hosts": ("cli", "sites"),
    },
    "experiments": {
        "sweep": (),
        "studies": ("data_sets", "sweep"),
        "models": ("studies",),
        "export": ("sweep",),
        "cli": ("data_sets", "models", "studies", "sweep"),
        "data_sets": ("sweep",),
        "suite": ("cli", "models", "studies", "sweep"),
        "tuning": ("cli", "models", "studies", "sweep"),
    },
    "analysis": {
        "derive": (),
        "data": ("derive",),
        "stats": ("data", "derive"),
        "planning": ("data", "stats"),
        "predict": ("data", "derive"),
        "timeline": ("data",),
        "figures": ("data", "stats", "timeline"),
        "studies": ("data", "figures", "stats"),
        "report": ("data", "derive", "figures", "predict", "stats", "studies", "timeline"),
    },
}


def test_every_room_is_known() -> None:
    rooms = {
        package: {r.split("/")[1] for r in SOURCES if re.match(f"{package}/.+/", r)}
        for package in PACKAGES
    }
    assert rooms == {package: set(known) for package, known in NEIGHBOURS.items()}


def test_rooms_import_their_neighbours_in_one_direction() -> None:
    def is_backwards(relative: str, name: str) -> bool:
        package, room, *_ = relative.split("/")
        known = NEIGHBOURS[package]
        parts = name.split(".")
        other = parts[1] if parts[0] == package and len(parts) > 1 else ""
        return other in known and other != room and other not in known[room]

    inside = [r for r in SOURCES if r.count("/") > 1]
    assert imports(inside, is_backwards) == []


def test_only_commands_import_what_the_suite_measures_of_itself() -> None:
    own = ("experiments/suite/", "experiments/suite_commands.py")
    others = [relative for relative in SOURCES if not relative.startswith(own)]
    assert imports(others, lambda _, name: is_of(name, ["experiments.suite"])) == []


def test_nobody_imports_the_measured_program() -> None:
    def is_inside(relative: str, name: str) -> bool:
        shared: tuple[str, ...] = EXPORTED_VALUES
        if relative.startswith(("launchers/", "experiments/")):
            shared += SHARED
        return is_of(name, MEASURED_PROGRAM) and not is_of(name, shared)

    outside = [r for r in SOURCES if r in CORE or not r.startswith("ps_allreduce/")]
    assert imports(outside, is_inside) == []


def test_the_core_and_what_launchers_share_with_the_measured_program_need_numpy_at_most() -> None:
    # `_typeshed` holds types of the standard library; it is there for type checks alone.
    known = {*sys.stdlib_module_names, "_typeshed", "numpy", "ps_allreduce"}

    def is_impure(_: str, name: str) -> bool:
        inside = is_of(name, MEASURED_PROGRAM) and not is_of(name, (*SHARED, *EXPORTED_VALUES))
        return inside or name.split(".")[0] not in known

    shared = [f"{module.replace('.', '/')}.py" for module in SHARED]
    own = [relative for relative in CORE if relative not in (TO_TERMINALS, BARE[0])]
    assert imports([*own, *shared], is_impure) == []


def test_text_gets_to_a_terminal_in_one_way() -> None:
    ways = {"print", "click.echo", "click.secho", "Console"}
    allowed = (TO_TERMINALS, *BARE, TO_LOGS)

    def is_another(relative: str, node: ast.AST) -> bool:
        is_way = isinstance(node, ast.Call) and ast.unparse(node.func) in ways
        return is_way and relative not in allowed

    assert places(is_another) == []


def test_tensorflow_is_imported_by_the_measured_program_only() -> None:
    outside = [r for r in SOURCES if not r.startswith(TENSORFLOW_ONLY_IN)]
    assert imports(outside, lambda _, name: is_of(name, ("tensorflow", "keras", "tf_keras"))) == []


def test_what_exported_trainings_take_along_imports_nothing_else_of_the_suite() -> None:
    exchange = [r for r in SOURCES if r.startswith(EXCHANGE)]
    assert len(exchange) > 10
    known = {*sys.stdlib_module_names, "numpy", "tensorflow", "keras"}

    def is_foreign(_: str, name: str) -> bool:
        return name.split(".")[0] not in known and not is_of(name, ("ps_allreduce.exchange",))

    assert imports(exchange, is_foreign) == []
    taken = [path.relative_to(ROOT).as_posix() for path in (ROOT / TAKEN).glob("*.py")]
    assert imports(taken, lambda _, name: name.split(".")[0] not in known) == []


def test_what_tensorflow_does_not_publish_is_used_in_one_module() -> None:
    others = [relative for relative in SOURCES if relative != UNPUBLISHED_ONLY_IN]
    hidden_modules = ("tensorflow.python", "tensorflow.core", "keras.src")
    assert imports(others, lambda _, name: is_of(name, hidden_modules)) == []

    def is_private(relative: str, node: ast.AST) -> bool:
        if relative == UNPUBLISHED_ONLY_IN or not isinstance(node, ast.Attribute):
            return False
        is_own = ast.unparse(node.value) in ("self", "cls", "super()", "os")
        hidden = re.fullmatch(r"_[a-z]\w*", node.attr) is not None and not is_own
        return hidden or node.attr in ("backing_device", "ASYNC_STATEFUL_OPS")

    assert places(is_private) == []


def test_training_as_shipped_uses_nothing_of_the_suites_exchange() -> None:
    shipped = [relative for relative in SOURCES if relative.startswith(SHIPPED)]
    assert len(shipped) > 2
    assert imports(shipped, lambda _, name: is_of(name, ("ps_allreduce.exchange",))) == []


def test_what_tensorflow_says_and_reads_unpublished_is_stated_in_one_module() -> None:
    stated = {*texts.TASK_ENVIRONMENT, *texts.PORT_TAKEN, texts.NODE, texts.AFTERTHOUGHT}

    def is_stated(relative: str, node: ast.AST) -> bool:
        elsewhere = relative != "ps_allreduce/tf_texts.py"
        return elsewhere and isinstance(node, ast.Constant) and node.value in stated

    assert places(is_stated) == []


def test_neither_launching_nor_serving_forks_loads_tensorflow_unasked() -> None:
    code = (
        "import sys, experiments.__main__, launchers, ps_allreduce.fork_server.server\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('tensorflow', 'keras')])"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_processes_are_started_in_one_module() -> None:
    others = [relative for relative in SOURCES if relative != "launchers/processes.py"]
    starters = ("subprocess", "multiprocessing", "pty", "concurrent.futures.ProcessPoolExecutor")
    assert imports(others, lambda _, name: is_of(name, starters)) == []


def test_only_the_fork_server_forks() -> None:
    starts = re.compile("fork|forkpty|exec.+|spawn.+|posix_spawn.*|system|popen")

    def is_start(_: str, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.value.id == "os" and starts.fullmatch(node.attr) is not None
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            return any(starts.fullmatch(alias.name) for alias in node.names)
        return False

    modules = [place.split(":")[0] for place in places(is_start)]
    assert modules == [f"ps_allreduce/fork_server/{name}.py" for name in ("guard", "server")]


def test_nothing_goes_through_a_shell() -> None:
    assert places(lambda _, node: isinstance(node, ast.keyword) and node.arg == "shell") == []


def test_nothing_is_unpickled() -> None:
    assert imports(SOURCES, lambda _, name: is_of(name, UNPICKLERS)) == []

    def allows(_: str, node: ast.AST) -> bool:
        if not isinstance(node, ast.keyword) or node.arg != "allow_pickle":
            return False
        return not isinstance(node.value, ast.Constant) or node.value.value is not False

    assert places(allows) == []


def test_what_depends_on_the_strategy_asks_its_traits() -> None:
    def compares(relative: str, node: ast.AST) -> bool:
        if not isinstance(node, ast.Compare | ast.MatchValue):
            return False
        named = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
        return relative != "ps_allreduce/backends/__init__.py" and not named.isdisjoint(STRATEGIES)

    assert places(compares) == []


def is_of_sentences(relative: str) -> bool:
    own = ("analysis/report/", "analysis/studies/", "analysis/planning/choice")
    return relative.startswith((*own, "experiments/tuning/outcome"))


def test_no_sentence_is_made_of_two_rates() -> None:
    values = {"rates", "ratio", "mean_rate", "mean_gain", "gains", "estimate", "rate"}
    values |= {"means", "examples_per_sec", "speed_up", "relative"}

    def names_of(node: ast.AST) -> set[str]:
        """In what is compared; how many values there are is another question."""
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "len":
            return set()
        own = {getattr(node, "id", None) or getattr(node, "attr", None) or ""}
        return own.union(*map(names_of, ast.iter_child_nodes(node)))

    def compares(relative: str, node: ast.AST) -> bool:
        if not is_of_sentences(relative):
            return False
        is_call = isinstance(node, ast.Call) and ast.unparse(node.func) in ("min", "max")
        ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
        is_order = isinstance(node, ast.Compare) and any(isinstance(o, ordered) for o in node.ops)
        return (is_call or is_order) and not values.isdisjoint(names_of(node))

    assert places(compares) == []
    deciding = ("analysis.stats.statistics.compare", "analysis.stats.rivals.mean_gain")
    # Speed-ups beside published ones have intervals, and are no claims.
    studies = "analysis/studies/"
    own = [r for r in SOURCES if is_of_sentences(r) and not r.startswith(studies)]
    assert len(own) > 10
    assert imports(own, lambda _, name: name in deciding) == []


def test_no_two_classes_share_a_name() -> None:
    classes = (n for relative in SOURCES for n in nodes(relative) if isinstance(n, ast.ClassDef))
    counts = Counter(node.name for node in classes)
    assert [name for name, count in counts.items() if count > 1] == []


def test_sources_are_ascii() -> None:
    assert [r for r in SOURCES if not (ROOT / r).read_bytes().isascii()] == []


def links(text: str) -> list[str]:
    """Relative targets of a Markdown document, without code."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", prose)
    found = [first or second for first, second in targets]
    return [target for target in found if not re.match(r"[a-z]+:|#", target)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    folder = (ROOT / document).parent
    targets = links((ROOT / document).read_text(encoding="utf-8"))
    assert [t for t in targets if not (folder / t.split("#")[0]).exists()] == []
