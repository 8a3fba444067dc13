"""What to change about the cause of a difference: advice, said once in a report.

Decides where advice may help.  It does not name what was measured beside the slower setting, with
the same strategy on as many workers: there the comparison says more.  Fewer bytes are advised only
where the slower setting sends more of them, and larger messages only where one does not hold all;
both only where every launch says the same of the busiest link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from analysis.data.cases import Point
from analysis.data.setting import exchange_of
from analysis.derive.fastest_step import left_out_links, made_flows_of, rates_of_links, slow_ones
from analysis.derive.network_causes import better_placement
from analysis.stats.causes import Explanation
from analysis.stats.decision import MARGIN
from analysis.stats.explained_parts import Cause, lost_shares
from analysis.stats.setting_pairs import changed_pairs
from analysis.wording import bytes_text, links_text, rate_text, rates_text
from ps_allreduce.bounds import link_bytes
from ps_allreduce.cluster import TaskType
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.inputs.data import Synthetic
from ps_allreduce.point.layout import is_apart
from ps_allreduce.point.placement import Policy
from ps_allreduce.point.resources import LayoutKind
from ps_allreduce.point.strategies import AllReduce, SynchronousServers
from ps_allreduce.point.wire import WireType
from ps_allreduce.record.records import RunRecord

#: A placement is worth advice if the hottest server's share falls to this share of it.
WORTH_MOVING = 0.98

#: A link is worth advice if the busiest one would save this share of the step without it.
WORTH_REPAIRING = 0.1

#: From this share of the step on, bytes and not messages are what the busiest link is short of.
BUSY_SHARE = 0.5


def advice_text(told: Explanation, cause: Cause) -> str:
    """What to change about a cause at the slower setting; nothing that was measured beside it."""
    if cause in _ADVICE:
        return _ADVICE[cause](told)
    return _SAID_ALIKE.get(cause, "")


def _is_open(told: Explanation, setting: str) -> bool:
    """The slower one's strategy has the setting, and was measured with one value of it."""
    values = _measured(told, setting)
    return len(values) == 1 and None not in values


def _measured(told: Explanation, setting: str) -> set[object]:
    """The values that the slower one's strategy was measured with, on as many workers."""
    own = told.slower
    return {
        point.asked[setting]
        for point in told.row.case.points
        if point.setting.strategy == own.setting.strategy and point.num_workers == own.num_workers
    }


def _placement_advice(told: Explanation) -> str:
    used = next((r.placement for r in told.slower.counting if r.placement is not None), None)
    if used is None:
        return ""
    loads = used.bytes_per_server
    hottest, (share, policy) = loads.index(max(loads)), better_placement(used)
    if share > WORTH_MOVING * max(loads) / sum(loads):
        return ""
    held = "the bytes beside rows of tables" if used.tables else "the bytes"
    part = f"{max(loads) / sum(loads):.0%} of"
    if part == "100% of" and min(loads):
        part = "nearly all"
    holds = (
        f"With {len(loads)} servers, ps:{hottest} holds {part} {held} "
        f"under {told.slower.asked['placement']}."
    )
    if policy in _measured(told, "placement"):
        return holds
    whose = "each" if share * len(loads) < 1.02 else "the hottest"
    return f"{holds} {policy} would give {whose} {share:.0%}."


def _rows_advice(told: Explanation) -> str:
    asked = next((r.rows_asked for r in told.slower.counting if r.rows_asked is not None), None)
    if asked is None or asked.hot_shard is None:
        return ""
    hottest = asked.per_server.index(max(asked.per_server))
    measured = _measured(told, "table_rows")
    rules = [rule for rule in (RowRule.MODULO, RowRule.HASH) if rule not in measured]
    place = f" Place rows by {' or '.join(rules)} (--table-rows)." if rules else ""
    return (
        f"ps:{hottest} is asked for {asked.hot_shard:.3g} times the mean rows of a server.{place}"
    )


def _link_advice(told: Explanation) -> str:
    records, network = told.slower.counting, told.slower.experiment.network
    if network is not None and (network.slow_host, network.uplink_bits_per_s) != (None, None):
        return "Links differ as asked of the emulated network."
    fast = max(rates_of_links([*records, *told.faster.counting]).values())
    slow = slow_ones(rates_of_links(records), fast)
    if not slow:
        return ""  # slow in few of the runs
    several = "s" * (len(slow) > 1)
    carried = (
        f"{rates_text(slow.values())} before the runs (medians), the fastest one {rate_text(fast)}"
    )
    named = f"The link{several} {links_text([*slow])} carried {carried}"
    if (told.slower.known("network_s") > told.slower.known("mean_step_s")).any():
        return f"{named}: measure again, as the counted bytes would take longer than a step."
    if not several:
        return f"{named}: repair it, or leave out one of its hosts."
    common = set.intersection(*({*link} for link in slow))
    or_else = f", or leave out {common.pop()}" if len(common) == 1 else ""
    return f"{named}: repair them{or_else}."


def _worker_advice(told: Explanation) -> str:
    """Emulated workers may be asked to differ, and hosts that share a machine are equally fast."""
    if told.row.case.conditions["emulated_factors"] is not None:
        return ""
    slowest = told.slower.common("slowest_worker")
    if slowest is None:
        return "It is not the same one in all launches, so look for what disturbs one of them."
    network, hosts = told.slower.experiment.network, told.slower.common("num_hosts") or 1
    longest = f"worker:{slowest} computes longest in every launch"
    if beside := _beside(told.slower.counting, f"{TaskType.WORKER}:{slowest}"):
        return f"{longest}; its host runs {' and '.join(beside)}, too."
    return f"{longest}{': leave its host out' * (network is None and hosts > 1)}."


def _beside(records: Sequence[RunRecord], worker: str) -> list[str]:
    """What runs on a worker's host besides it, where other hosts run fewer tasks."""
    tasks = records[0].tasks
    counts = Counter(task.host for task in tasks)
    host = next(task.host for task in tasks if task.task == worker)
    if counts[host] == min(counts.values()):
        return []
    return [task.task for task in tasks if task.host == host and task.task != worker]


def _slowed_advice(told: Explanation) -> str:
    """Cores of their own where tasks had fewer than they use; fewer threads where there are any."""
    ways = {
        "cores of their own": any(record.oversubscribed for record in told.slower.counting),
        "fewer threads": told.slower.threads > 1 and _is_open(told, "threads_per_worker"),
    }
    advised = ", or ".join(way for way, may in ways.items() if may)
    return f"Workers compute longer than one alone: give tasks {advised}." if advised else ""


def _input_advice(told: Explanation) -> str:
    """Made-up examples are neither read nor decoded."""
    if isinstance(told.slower.experiment.workload.data, Synthetic):
        return ""
    return "Workers wait for input: read ahead, decode less, or use more threads for it."


def _dispatch_advice(told: Explanation) -> str:
    """A bound of one step leaves no room for several in a call."""
    if _measured(told, "steps_per_dispatch") != {1} or told.slower.asked["staleness"] == 1:
        return ""
    return "Steps begin late: let a worker make several steps for each call (--steps-per-dispatch)."


def _fewer_workers_advice(told: Explanation) -> str:
    """Servers beside workers, where those of the slower setting have hosts of their own."""
    beside = LayoutKind.COLOCATED in _measured(told, "layout")
    if beside or not is_apart(told.slower.experiment):
        return ""
    return "Hosts of servers compute no gradients: try servers beside workers (--layout colocated)."


def _lost_advice(told: Explanation) -> str:
    """More memory for ports, less at once, or the other strategy where that was not measured."""
    network = told.slower.experiment.network
    if network is not None and network.loss:
        return f"The network loses {network.loss:.3%} of packets at random, as asked (--loss)."
    if network is not None and all(map(_fits_ports, told.slower.counting)):
        holds = bytes_text(network.port_buffer_bytes)
        return (
            f"Larger switch ports would not help: one holds {holds}, more than a step sends to a "
            "host."
        )
    ports = "give switch ports more memory"
    if network is not None:
        ports += f" than {bytes_text(network.port_buffer_bytes)} (--port-buffer)"
    other = AllReduce if told.slower.setting.traits.uses_servers else SynchronousServers
    ways = [ports, *_less_at_once(told)]
    if other.kind not in {point.setting.strategy for point in told.row.case.points}:
        ways.append(f"try {_OTHERS[other.kind]}")
    *others, last = ways
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"To lose fewer packets, {listed}."


def _fits_ports(record: RunRecord) -> bool:
    """No port of a switch gets more bytes in a step than it holds; False where that is unknown."""
    network = record.experiment.network
    received = [each for _, each in link_bytes(made_flows_of(record)).values()]
    if network is None or network.racks > 1 or network.traffic or not received:
        return False
    return max(received) <= network.port_buffer_bytes


_OTHERS = {AllReduce.kind: "all-reduce", SynchronousServers.kind: "parameter servers"}


def _less_at_once(told: Explanation) -> Iterator[str]:
    """What lets fewer messages meet at a port; nothing where all of it was measured."""
    is_open = _is_open(told, "in_flight") and told.slower.asked["in_flight"] != 1
    if told.slower.setting.traits.uses_servers:
        network, servers = told.slower.experiment.network, told.slower.experiment.num_ps
        free = network is None or servers < network.num_hosts  # a second one shares the host's port
        may_help = {
            "--placement partitioned": Policy.PARTITIONED not in _measured(told, "placement"),
            "more servers": free and _is_open(told, "num_ps"),
            "--in-flight": is_open,
        }
        if ways := [way for way, may in may_help.items() if may]:
            yield f"let less be sent to one server at once ({', '.join(ways)})"
    elif is_open:
        yield "let less be under way at once (--in-flight)"


def _exchange_advice(told: Explanation) -> str:
    point = told.slower
    if left_out_links(point.counting):
        return ""  # the page says beside it which link to repair
    if lost_shares(point.launches).any():
        return f"Lost packets may be a part of it. {_lost_advice(told)}"
    saved = point.launches["slow_link_s"] / point.launches["mean_step_s"]
    if saved.astype(float).mean() > WORTH_REPAIRING:
        return _link_advice(told)
    alike = told.faster.setting.strategy == point.setting.strategy
    if alike or not told.row.same_transport or any(changed_pairs(told.row.case)):
        return ""  # the faster one shows what to change, or a table what was tried
    return _bytes_advice(told)


def _bytes_advice(told: Explanation) -> str:
    """Fewer bytes or larger messages, where every launch says that these may help."""
    own = told.slower
    busy = (own.launches["network_s"] / own.launches["mean_step_s"]).dropna()
    if busy.empty and (own.launches["num_hosts"] > 1).any():
        return ""  # the page says beside it that links were not measured
    if busy.empty:
        return _ON_ONE_HOST if _may_send_larger(own) else ""
    if busy.max() > 1:
        return ""  # such rates were not those of the runs
    needed, less = (point.known("network_s").mean() for point in (own, told.faster))
    if needed > (1 + MARGIN) * less:
        whole = own.asked["gradients_on_wire"] == WireType.FLOAT32
        free = whole and not own.experiment.strategy.is_sparse  # rows travel in nothing else
        return _FEWER_BYTES if free and busy.min() >= BUSY_SHARE else ""
    return _LARGER_MESSAGES if _may_send_larger(own) and busy.max() < BUSY_SHARE else ""


#: The page says beside it that this has nothing to do with a network.
_ON_ONE_HOST = "Try fewer and larger messages."
_FEWER_BYTES = (
    "Bytes need half the step or more on the busiest link: send fewer (--gradients bfloat16)."
)
_LARGER_MESSAGES = (
    "Bytes need less than half the step on the busiest link: try larger messages and more of them "
    "under way (make tuning-sweep)."
)


def _may_send_larger(point: Point) -> bool:
    """More bytes go one way than one message holds; a ring is given so much for each worker."""
    asked, record = exchange_of(point.asked), point.counting[0]
    used = record.placement
    whole = max(used.bytes_per_server) if used else record.gradient_bytes or 0
    if (pack := _size(asked, "bytes_per_pack")) is not None:
        return 0 < pack < whole
    group = _size(asked, "group_bytes")
    each = point.num_workers if point.setting.traits.uses_collective else 1
    return group is not None and group * each < whole


def _size(asked: Mapping[str, Any], name: str) -> int | None:
    return None if asked.get(name) is None else int(asked[name])


_ADVICE: Mapping[Cause, Callable[[Explanation], str]] = {
    Cause.EXCHANGE: _exchange_advice,
    Cause.HOT_SERVER: _placement_advice,
    Cause.HOT_ROWS: _rows_advice,
    Cause.SLOW_LINK: _link_advice,
    Cause.LOST: _lost_advice,
    Cause.WORKER: _worker_advice,
    Cause.SLOWED: _slowed_advice,
    Cause.INPUT: _input_advice,
    Cause.DISPATCH: _dispatch_advice,
    Cause.FEWER_WORKERS: _fewer_workers_advice,
}

#: The same for every setting.
_SAID_ALIKE: Mapping[Cause, str] = {
    Cause.IN_TURN: (
        "Now one worker takes longer, now another: look for what disturbs one after the other."
    ),
    Cause.FOREIGN: "Other programs use the processors: end them, or use other hosts.",
}
