"""A setting that the chosen launcher has no use for is refused, not passed over."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from launchers import LAUNCHERS, make_launcher
from launchers.settings import OPTION_OF, LauncherSettings
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork

TYPED: dict[str, Any] = {
    "network": EmulatedNetwork(num_hosts=2, bits_per_s=None),
    "host_file": Path("hosts"),
    "container": ("apptainer", "exec", "image.sif"),
    "shared_nodes": True,
    "copy_environment": True,
}


def settings(**given: Any) -> LauncherSettings:
    return LauncherSettings(data_dir=Path("data"), **given)


def refused(asked: LauncherSettings, launcher: str, own: Collection[str]) -> str:
    """Why a launcher does not take the settings; empty if it does."""
    try:
        asked.refuse_others(launcher, own)
    except UserError as error:
        return str(error)
    return ""


def test_every_setting_of_some_launchers_is_tried() -> None:
    assert set(TYPED) == set(OPTION_OF)


@pytest.mark.parametrize("name", TYPED)
def test_a_setting_of_another_launcher_is_refused_by_its_option(name: str) -> None:
    told = f"the launcher local has no use for {OPTION_OF[name]}; leave it out."
    assert refused(settings(**{name: TYPED[name]}), "local", set(TYPED) - {name}) == told


@pytest.mark.parametrize("name", TYPED)
def test_a_setting_of_its_own_is_accepted(name: str) -> None:
    assert refused(settings(**{name: TYPED[name]}), "x", {name}) == ""


def test_what_every_launcher_knows_is_no_matter() -> None:
    assert refused(settings(allow_login_node=True, mixed_hosts=True), "local", ()) == ""


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_refuses_what_is_not_its_own(name: str) -> None:
    with pytest.raises(UserError, match=f"the launcher {name} has no use for"):
        make_launcher(name, settings(**TYPED))


def test_an_emulated_network_is_described() -> None:
    with pytest.raises(UserError, match="the launcher emulated needs --hosts"):
        make_launcher("emulated", settings())
