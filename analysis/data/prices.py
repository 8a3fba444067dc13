"""What hosts cost, as the reader of a report states it.

Decides what a point costs per hour: its hosts with workers at one price, all others at another one.
Prices are no part of a record: they change after a measurement, and differ from reader to reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.layout import hosts_of_workers, hosts_without_workers

#: No host is dearer, in any currency.
MOST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a host for an hour, in any one currency.

    Attributes:
        host: of a host with workers.
        ps_host: of a host without any, which holds servers or the chief.
    """

    host: float
    ps_host: float

    def __post_init__(self) -> None:
        _check_price("--host-price", self.host)
        _check_price("--ps-host-price", self.ps_host)

    def per_hour(self, experiment: Experiment) -> float:
        """What all hosts of an experiment cost for an hour."""
        workers, others = hosts_of_workers(experiment), hosts_without_workers(experiment)
        return workers * self.host + others * self.ps_host


def _check_price(option: str, price: float) -> None:
    if not 0 < price <= MOST:
        raise UserError(f"{option} is a price above 0, of one host for an hour; got {price:g}.")


def stated_prices(host: float | None, ps_host: float | None) -> Prices | None:
    """Prices from what was stated; hosts of servers cost what others do unless it is said.

    Raises:
        UserError: only the price of hosts of servers is stated, or one makes no sense.
    """
    if host is None and ps_host is None:
        return None
    if host is None:
        raise UserError("--ps-host-price needs --host-price beside it, the price of other hosts.")
    return Prices(host=host, ps_host=host if ps_host is None else ps_host)
