"""What must hold of a trace: the schema of the Trace Event Format, nesting, and whole flows.

The format: "Trace Event Format" (Google, Nat Duca and Dan Sinclair,
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), sections "JSON
Object Format", "Complete Events", "Instant Events", "Flow Events" and "Metadata Events".
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ps_allreduce.record.step_table import EventKind, EventTable

Event = Mapping[str, Any]

#: Keys of every event, and those of each phase beside them.
COMMON = {"ph", "name", "pid", "tid"}
KEYS = {
    "M": {"args"},
    "X": {"ts", "dur", "cat", "args"},
    "i": {"ts", "s", "cat", "args"},
    "s": {"ts", "cat", "id"},
    "t": {"ts", "cat", "id"},
    "f": {"ts", "cat", "id", "bp"},
}

METADATA = {
    "process_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


def check_trace(trace: Mapping[str, Any]) -> None:
    """See that viewers can read a trace, and that it says nothing twice.

    Raises:
        AssertionError: they cannot.
    """
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = trace["traceEvents"]
    for event in events:
        check_event(event)
    check_labels(events)
    check_nesting(events)
    check_flows(events)


def check_event(event: Event) -> None:
    """The keys of its phase, and values of their types."""
    assert set(event) == COMMON | KEYS[event["ph"]], event
    assert isinstance(event["name"], str)
    assert event["name"]
    for key in {"pid", "tid", "ts", "dur", "id"} & set(event):
        assert type(event[key]) is int, event
        assert event[key] >= 0, event
    assert isinstance(event.get("args", {}), dict)
    assert isinstance(event.get("cat", ""), str)
    assert event.get("s", "t") == "t"
    assert event.get("bp", "e") == "e"
    if event["ph"] == "M":
        key, kind = METADATA[event["name"]]
        assert type(event["args"][key]) is kind


def check_labels(events: Iterable[Event]) -> None:
    """Every process and thread has one name, and no two threads of a process share theirs."""
    names: dict[tuple[int, int], str] = {}
    processes: dict[int, set[str]] = defaultdict(set)
    for event in events:
        if event["name"] == "thread_name":
            assert (event["pid"], event["tid"]) not in names
            names[event["pid"], event["tid"]] = event["args"]["name"]
        if event["name"] == "process_name":
            processes[event["pid"]].add(event["args"]["name"])
    assert len(set(names.values())) == len(names)
    assert all(len(told) == 1 for told in processes.values())
    shown = {(event["pid"], event["tid"]) for event in events if event["ph"] != "M"}
    assert shown <= set(names)


def slices_by_thread(events: Iterable[Event]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Begin and end of all slices, by process and thread, as they are in the file."""
    threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return threads


def check_nesting(events: Iterable[Event]) -> None:
    """Of two slices of a thread one holds the other, or one ends before the other begins.

    Viewers put a slice below the one that is before it in the file where both begin together.
    """
    for slices in slices_by_thread(events).values():
        around: list[int] = []
        for begin, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


def check_flows(events: Iterable[Event]) -> None:
    """A flow begins and ends once, is seen once on its way at most, and binds to open slices.

    A flow binds to the innermost slice that is open at its time, or has just begun earlier in the
    file.  Perfetto draws it from the slice that begins first.
    """
    flows: dict[int, list[Event]] = defaultdict(list)
    slices = slices_by_thread(events)
    for event in events:
        if event["ph"] in "stf":
            flows[event["id"]].append(event)
    for parts in flows.values():
        assert "".join(each["ph"] for each in parts) in ("sf", "stf")
        assert len({(each["cat"], each["name"]) for each in parts}) == 1
        times = [each["ts"] for each in parts]
        assert times == sorted(times)
        begins = [innermost(slices[each["pid"], each["tid"]], each["ts"]) for each in parts]
        assert begins == sorted(begins)


def innermost(slices: Iterable[tuple[int, int]], when: int) -> int:
    """When the innermost slice of a thread begins that holds a time; one of no length may."""
    return max(begin for begin, end in slices if begin <= when < max(end, begin + 1))


def counts(trace: Mapping[str, Any], phases: str) -> list[int]:
    """How many events there are of each of these phases."""
    told = [event["ph"] for event in trace["traceEvents"]]
    return [told.count(phase) for phase in phases]


def wanted_flows(events: EventTable, *, acknowledged: bool) -> list[int]:
    """How many begins, passings and ends of flows a trace has: one for each event.

    A collective does not acknowledge: that a message was averaged and that it is back is one
    moment, which is noted twice.
    """
    kinds = (EventKind.GRADIENT_READY, EventKind.PUSHED, EventKind.PULLED)
    found = [int((events.kind == kind).sum()) for kind in kinds]
    return found if acknowledged else [found[0], 0, found[2]]
