"""Which hosts may have GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launchers.sites.emulated.site import EmulatedSite
from launchers.sites.local import LocalSite
from ps_allreduce.errors import UserError
from ps_allreduce.point.experiment import Device, Resources
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import Strategy
from tests.fakes import make_experiment

NETWORK = EmulatedNetwork(num_hosts=2, bits_per_s=1e9)

EMULATED = make_experiment(
    Strategy.ALLREDUCE, launcher="emulated", spread=Spread(), network=NETWORK
)

ON_GPU = Resources(device=Device.GPU)


def test_emulated_hosts_have_none() -> None:
    site = EmulatedSite(NETWORK)
    site.check(EMULATED)
    with pytest.raises(UserError, match="emulated hosts have no GPUs; use the device cpu"):
        site.check(replace(EMULATED, resources=ON_GPU))


def test_this_machine_may_have_some() -> None:
    LocalSite().check(make_experiment(Strategy.ALLREDUCE, resources=ON_GPU))
