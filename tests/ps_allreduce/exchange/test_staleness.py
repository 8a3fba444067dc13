"""No worker runs ahead, or computes with older values, than the bound says; none waits in vain."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from ps_allreduce.exchange import asynchronous

#: Seconds after which a thread that still waits is taken to wait.
SOON = 0.1


def clock_of(num_workers: int, bound: int) -> asynchronous.StalenessClock:
    """TensorFlow comes with its module, so who only collects tests does not import it."""
    from ps_allreduce.exchange import asynchronous

    return asynchronous.StalenessClock(num_workers, bound)


@given(
    num_workers=st.integers(1, 4),
    bound=st.integers(1, 5),
    steps=st.integers(0, 20),
    data=st.data(),
)
def test_no_step_begins_too_early_and_all_end(
    num_workers: int, bound: int, steps: int, data: st.DataObject
) -> None:
    dispatch = data.draw(st.integers(1, bound))
    pauses = data.draw(st.lists(st.sampled_from([0.0, 0.001]), min_size=4, max_size=4))
    clock = clock_of(num_workers, bound)
    # Of all workers; and what was of them in the values that each worker holds.
    ended, held = [0] * num_workers, [[0] * num_workers for _ in range(num_workers)]
    lock = Lock()

    def drive(worker: int) -> None:
        left = steps
        while left:
            count = min(dispatch, left)
            beginning = clock.begin(worker, count)
            with lock:
                # The last step of a dispatch begins when the ones before it have ended.
                assert min(ended) >= ended[worker] + count - 1 - bound
                if beginning.name == "WITH_NEW_VALUES":
                    held[worker] = ended.copy()
            for _ in range(count):
                assert min(held[worker]) >= held[worker][worker] - bound
                time.sleep(pauses[worker])
                with lock:
                    ended[worker] += 1
                    held[worker] = ended.copy()
            clock.end(worker, count)
            left -= count

    run_all(drive, num_workers)
    assert ended == [steps] * num_workers


def run_all(drive: Callable[[int], None], num_workers: int) -> None:
    with ThreadPoolExecutor(num_workers) as pool:
        for future in [pool.submit(drive, worker) for worker in range(num_workers)]:
            future.result(timeout=30)


@pytest.mark.parametrize("bound", [1, 3])
def test_the_bound_is_used_up(bound: int) -> None:
    clock, waits, begun = clock_of(2, bound), Event(), []

    def fast() -> None:
        for step in range(bound + 2):
            if step == bound + 1:
                waits.set()
            clock.begin(0, 1)
            begun.append(step)
            clock.end(0, 1)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(fast)
        assert waits.wait(timeout=30)
        time.sleep(SOON)
        assert begun == list(range(bound + 1))
        clock.begin(1, 1)
        clock.end(1, 1)
        done.result(timeout=30)
    assert begun == list(range(bound + 2))


def test_those_who_wait_for_a_failed_worker_are_let_go() -> None:
    clock = clock_of(2, 1)
    for _ in range(2):
        clock.begin(0, 1)
        clock.end(0, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(clock.begin, 0, 1)
        time.sleep(SOON)
        assert not waiting.done()
        clock.abandon()
        assert waiting.result(timeout=30).name == "NEVER"
    assert clock.begin(1, 1).name == "NEVER"
