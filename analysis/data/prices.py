"""What hosts cost, as the reader of a report states it.

Decides what a point costs per hour: hosts that were named for servers have a price of their own.
Prices are no part of a record: they change after a measurement, and differ from reader to reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import num_hosts, num_ps_hosts

#: No host is dearer, in any currency.
MOST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a host for an hour, in any one currency.

    Attributes:
        host: of any host that was not named for servers.
        ps_host: of one that was (`--ps-hosts`).
    """

    host: float
    ps_host: float

    def __post_init__(self) -> None:
        _check_price("--host-price", self.host)
        _check_price("--ps-host-price", self.ps_host)

    def per_hour(self, experiment: Experiment) -> float:
        """What all hosts of an experiment cost for an hour."""
        for_servers = num_ps_hosts(experiment)
        return (num_hosts(experiment) - for_servers) * self.host + for_servers * self.ps_host


def _check_price(option: str, price: float) -> None:
    if not 0 < price <= MOST:
        raise UserError(f"{option} is a price above 0, of one host for an hour; got {price:g}.")


def stated_prices(host: float | None, ps_host: float | None) -> Prices | None:
    """Prices from what was stated; those named for servers cost what others do unless it is said.

    Raises:
        UserError: only the price of hosts of servers is stated, or one makes no sense.
    """
    if host is None and ps_host is None:
        return None
    if host is None:
        raise UserError("--ps-host-price needs --host-price beside it, the price of other hosts.")
    return Prices(host=host, ps_host=host if ps_host is None else ps_host)
