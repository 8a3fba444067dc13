"""What was typed about hosts and networks, as settings of a launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launchers.options import NETWORK_OPTIONS, network_from, settings_from
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork


def given(**typed: Any) -> dict[str, Any]:
    """The options of a command line on which nothing else was typed."""
    nothing: dict[str, Any] = {
        "launcher": "emulated",
        "results": Path("results"),
        "allow_login_node": False,
        "mixed_hosts": False,
        "host_file": None,
        "container": None,
        "shared_nodes": False,
        "copy_environment": False,
    }
    return nothing | dict.fromkeys(NETWORK_OPTIONS) | typed


def test_where_nothing_is_typed_there_is_no_network() -> None:
    assert network_from(given()) is None


def test_hosts_alone_are_a_network_without_limits() -> None:
    assert network_from(given(hosts=3)) == EmulatedNetwork(num_hosts=3, bits_per_s=None)


def test_everything_that_is_typed_is_part_of_the_network() -> None:
    typed = given(
        hosts=4,
        bandwidth="1gbit",
        delay="2ms",
        slow_host=0,
        slow_bandwidth="100mbit",
        racks=2,
        uplink="2.5gbit",
    )
    assert network_from(typed) == EmulatedNetwork(
        num_hosts=4,
        bits_per_s=1e9,
        delay_s=2e-3,
        slow_host=0,
        slow_bits_per_s=1e8,
        racks=2,
        uplink_bits_per_s=2.5e9,
    )


@pytest.mark.parametrize("name", [name for name in NETWORK_OPTIONS if name != "hosts"])
def test_links_need_hosts(name: str) -> None:
    option = f"--{name.replace('_', '-')}"
    with pytest.raises(UserError, match=f"{option} needs --hosts"):
        network_from(given(**{name: 0}))


def test_the_hosts_of_a_slurm_job_are_no_emulated_network() -> None:
    assert network_from(given(launcher="slurm", hosts=4)) is None


def test_settings_hold_what_was_typed() -> None:
    settings = settings_from(
        given(
            launcher="slurm",
            mixed_hosts=True,
            shared_nodes=True,
            container="apptainer exec 'my image.sif'",
            host_file=Path("hosts"),
        )
    )
    assert settings.data_dir == Path("results/data").resolve()
    assert settings.container == ("apptainer", "exec", "my image.sif")
    assert (settings.mixed_hosts, settings.shared_nodes) == (True, True)
    assert (settings.host_file, settings.allow_login_node) == (Path("hosts"), False)
    assert settings_from(given()).container == ()
