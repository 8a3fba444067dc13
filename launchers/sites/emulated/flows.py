"""What plain TCP reaches on an emulated network where one host sends to one, and where all do.

Decides who sends, and for how long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from launchers.fork_servers.asking import measure_links
from launchers.sites.emulated.site import EmulatedSite

#: TCP's windows open in the first moments; what a port then still loses, it loses again and again.
SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """Streams of some hosts to one.

    Attributes:
        bits_per_s: payload of all of them together.
        dropped: packets that the port towards the one lost.
    """

    senders: int
    bits_per_s: float
    dropped: int


def measure_flows(site: EmulatedSite, seconds: float = SECONDS) -> Iterator[Flows]:
    """One host sends to the first one, then all others do.

    Raises:
        UserError: this machine cannot or does not allow such a network.
        HostFault: a host is lost.
    """
    with site, site.servers(dict.fromkeys(site.hosts, 1), None) as servers:
        target, *others = site.hosts
        for number in sorted({1, len(others)}):
            before = site.dropped()[target]
            pairs = [(source, target) for source in others[:number]]
            links = measure_links(servers, pairs, site.preset_address, seconds)
            yield Flows(
                senders=number,
                bits_per_s=sum(link.bits_per_s for link in links),
                dropped=site.dropped()[target] - before,
            )
