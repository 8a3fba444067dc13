"""Fixtures of all tests, and the rule about what may be skipped.

A test that needs something real (TensorFlow, more cores) asks for it by a fixture, which skips
with the reason where it is missing.  Under PS_ALLREDUCE_REQUIRE_ALL=1, which only CI sets, it
fails instead.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ps_allreduce.point.strategies import AnyStrategy

# A busy machine is slow at making examples; that is no defect.  So many are enough for every run:
# over many runs they are others.
settings.register_profile(
    "suite", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

# Thousands of collected tests are no garbage, nor are modules; Python's own 700 new objects would
# have it walk over all of them again and again.
gc.set_threshold(50_000)

# Programs that are tested here are interrupted and hung up; what a shell ignores for these tests
# (`nohup make test &` ignores both) they would inherit.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        _usual = signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, _usual)

REQUIRE_ALL = "PS_ALLREDUCE_REQUIRE_ALL"

REAL = Path(__file__).with_name("real")


def skip_or_fail(reason: str) -> None:
    """Skip with a reason, or fail where nothing real may be skipped."""
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{reason} ({REQUIRE_ALL}=1: nothing may be skipped)")
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """See that real tests are where `make test` looks for them."""
    for item in items:
        is_real = any(item.get_closest_marker(name) for name in ("tensorflow", "slow", "timed"))
        if is_real and REAL not in item.path.parents:
            raise pytest.UsageError(f"{item.nodeid} is a real test: move it to tests/real")


def need_module_of(strategy: type[AnyStrategy]) -> None:
    """What a strategy needs besides TensorFlow is installed."""
    if strategy.module is not None and importlib.util.find_spec(strategy.module) is None:
        skip_or_fail(f"{strategy.label} is not installed: make setup {strategy.module.upper()}=1")


@pytest.fixture
def two_cores() -> None:
    """Two workers need two cores."""
    if (available := len(os.sched_getaffinity(0))) < 2:
        skip_or_fail(f"needs 2 cores, this machine offers {available}")


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the input of all real runs."""
    return tmp_path_factory.mktemp("data")
