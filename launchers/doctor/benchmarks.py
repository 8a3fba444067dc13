"""How fast the hosts compute, and how fast their links are.

Decides what is measured, and that a host or link that seems slow is measured again: where others
compute as well, one slow moment says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launchers.doctor.checks.speed import slow_links, slower_than_others
from launchers.doctor.questions import ask_hosts
from launchers.fork_servers.host_servers import HostServers, measure_links
from ps_allreduce.errors import LaunchError
from ps_allreduce.inspection.questions import MultiplyMatrices
from ps_allreduce.record.records import LinkRecord

#: Large enough for the library to use all cores, small enough for many products in a second.
SIZE = 1024

SECONDS = 1.0

#: How often a host or link that seems slow is measured, the first time included; the best counts.
ATTEMPTS = 3

#: A loaded machine may take long over what should take a second.
DEADLINE_S = 60.0

#: Two multiplications and additions per element and term.
OPERATIONS = 2 * SIZE**3


def measure_computing(servers: HostServers, hosts: Sequence[str]) -> dict[str, float]:
    """Floating-point operations per second of every host, while all of them compute."""
    best: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        rates = _multiply(servers, hosts)
        best |= {host: max(rate, best.get(host, 0.0)) for host, rate in rates.items()}
        if not slower_than_others(best):
            break
    return best


def _multiply(servers: HostServers, hosts: Sequence[str]) -> dict[str, float]:
    requests = {
        host: MultiplyMatrices(
            size=SIZE, seconds=SECONDS, log=servers.clients[host].job_log("multiply")
        )
        for host in hosts
    }
    answers = ask_hosts(servers, requests, DEADLINE_S).of("multiplied")
    return {host: OPERATIONS * 1e9 / event.counts["ns"] for host, event in answers.items()}


Pair = tuple[str, str]

BestLinks = dict[Pair, LinkRecord]


def measure_all_links(
    servers: HostServers,
    pairs: Sequence[Pair],
    address_of: Callable[[str], str],
    tell: Callable[[str], None],
) -> tuple[tuple[LinkRecord, ...], str]:
    """Measure the links of all pairs, and those that are slow again.

    Args:
        pairs: those that can reach each other.
        tell: told before every round.

    Returns:
        What was measured, and why that came to an end; empty if it did not.
    """
    best: BestLinks = {}
    try:
        rounds = _rounds(servers, pairs)
        for number, links in enumerate(rounds, start=1):
            tell(f"links, round {number} of {len(rounds)}")
            _measure(servers, links, address_of, best)
        for _ in range(ATTEMPTS - 1):
            suspects = {(link.source, link.target) for link in slow_links(list(best.values()))}
            for links in rounds:
                if again := [link for link in links if link in suspects]:
                    tell(f"links, {len(suspects)} slow ones again")
                    _measure(servers, again, address_of, best)
    except LaunchError as error:
        return tuple(best.values()), str(error).splitlines()[0]
    return tuple(best.values()), ""


def num_rounds(num_hosts: int) -> int:
    """How many rounds all pairs of so many hosts take."""
    return len(rounds_of_pairs([str(number) for number in range(num_hosts)]))


def _rounds(servers: HostServers, pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The links of the pairs, from and to; a run uses both directions at once."""
    wanted = {*pairs, *((b, a) for a, b in pairs)}
    rounds = [
        [link for a, b in together for link in ((a, b), (b, a)) if link in wanted]
        for together in rounds_of_pairs(list(servers.clients))
    ]
    return [links for links in rounds if links]


def rounds_of_pairs(hosts: Sequence[str]) -> list[list[Pair]]:
    """Every pair once, in as few rounds as possible, in each of which a host is in one pair.

    Source: the circle method of round-robin tournaments: one host stays, the others go round.
    """
    places: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    half = len(places) // 2
    rounds = []
    for _ in range(len(places) - 1):
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        rounds.append([(a, b) for a, b in facing if a is not None and b is not None])
        places = [places[0], places[-1], *places[1:-1]]
    return [pairs for pairs in rounds if pairs]


def _measure(
    servers: HostServers, links: Sequence[Pair], address_of: Callable[[str], str], best: BestLinks
) -> None:
    for link in measure_links(servers, links, address_of):
        key = (link.source, link.target)
        if key not in best or link.bits_per_s > best[key].bits_per_s:
            best[key] = link
