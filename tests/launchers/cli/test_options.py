"""What is typed about hosts becomes one value; every mistake is one sentence.

Text is parsed where it is typed, and what another launcher understands is refused.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

import click
import pytest

from launchers import make_launcher
from launchers.__main__ import main
from launchers.cli.options import LAUNCHER, declared_options, option_group
from launchers.cli.run import run_command_line, shortened
from launchers.cli.types import named, one_of
from launchers.settings import COMMON_SETTINGS, LauncherSettings, option_of
from launchers.sites.kinds import SITES, network_of, site_kind
from ps_allreduce.declared import setting
from ps_allreduce.errors import UserError
from ps_allreduce.point.network import EmulatedNetwork
from tests.goldens import golden

#: How every option that not all launchers understand is typed.
TYPED = {
    "hosts": ("--hosts", "4"),
    "ps_hosts": ("--ps-hosts", "2"),
    "bandwidth": ("--bandwidth", "1gbit"),
    "delay": ("--delay", "2ms"),
    "slow_host": ("--slow-host", "0"),
    "slow_bandwidth": ("--slow-bandwidth", "100mbit"),
    "racks": ("--racks", "2"),
    "uplink": ("--uplink", "2.5gbit"),
    "traffic": ("--traffic", "0-1:100mbit"),
    "congestion": ("--congestion", "reno"),
    "port_buffer": ("--port-buffer", "128kB"),
    "loss": ("--loss", "0.001"),
    "partition": ("--partition", "gpu"),
    "account": ("--account", "p1"),
    "time_limit": ("--time", "1:30:00"),
    "constraint": ("--constraint", "a100&ib"),
    "gpus_per_node": ("--gpus-per-node", "4"),
    "sbatch": ("--sbatch", "--qos=normal"),
    "ps_sbatch": ("--ps-sbatch", "--partition=small"),
    "setup": ("--setup", "module load X"),
    "container": ("--container", "apptainer exec 'my image.sif'"),
    "shared_nodes": ("--shared-nodes",),
    "copy_environment": ("--copy-environment",),
    "host_file": ("--host-file", "hosts"),
}


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def typed(*words: str) -> LauncherSettings:
    """What a command gets that has these options."""
    received: list[LauncherSettings] = []

    @click.group()
    def cli() -> None:
        """A command line."""

    @cli.command()
    @LAUNCHER
    def command(launcher: LauncherSettings) -> None:
        received.append(launcher)

    status = run_command_line(cli, ["command", *words], "suite")
    assert status == 2 - 2 * len(received)
    return received[0] if received else LauncherSettings(launcher="refused")


def test_a_suite_that_was_started_with_nohup_hears_no_hanging_up() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        typed()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_what_the_machine_lacks_is_told_in_a_sentence(
    number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/scratch")

    @click.group()
    def cli() -> None:
        """A command line."""

    @cli.command()
    def command() -> None:
        raise OSError(number, os.strerror(number), "/tmp/x")

    assert run_command_line(cli, ["command"], "suite") == 1
    full = " (temporary files are in /scratch)" if number == errno.ENOSPC else ""
    told = f"Error: this host refuses the launcher something: {os.strerror(number)}{full}.\n"
    assert capsys.readouterr().err == told


def test_what_was_typed_is_repeated_as_a_terminal_can_bear_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("--launcher", "\x1b]0;a\x07" + "x" * 100_000)
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "characters) is not one of local, emulated" in told
    assert len(told) < 1000
    assert shortened(f"no folder {'y' * 5000}") == (
        f"no folder {'y' * 60}...{'y' * 20} (5000 characters)"
    )


def options(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in TYPED[name]]


def test_where_nothing_is_typed_everything_is_at_its_default() -> None:
    assert typed() == LauncherSettings()
    assert typed().stated == ()
    assert typed().data_dir == Path("results/data").resolve()


def test_every_option_that_not_all_launchers_understand_is_tried() -> None:
    every = {field.name for field in fields(LauncherSettings)}
    assert set(TYPED) == every - COMMON_SETTINGS
    assert frozenset().union(*(kind.understands for kind in SITES.values())) == set(TYPED)


@pytest.mark.parametrize("launcher", SITES)
def test_what_a_launcher_understands_is_received(launcher: str) -> None:
    names = [name for name in TYPED if name in site_kind(launcher).understands]
    settings = typed("--launcher", launcher, *options(names), "--mixed-hosts", "--interface", "ib0")
    assert set(settings.stated) - {"launcher"} == {*names, "mixed_hosts", "interface"}


@pytest.mark.parametrize("launcher", SITES)
def test_what_another_launcher_understands_is_refused_by_its_option(
    launcher: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in set(TYPED) - site_kind(launcher).understands:
        assert typed("--launcher", launcher, *TYPED[name]).launcher == "refused"
        told = f"the launcher {launcher} has no use for {option_of(name)}; leave it out."
        assert told in capsys.readouterr().err


@dataclass(frozen=True, slots=True, kw_only=True)
class OfEachType:
    """One setting of each type."""

    whole: int = setting("A number.", 3)
    share: float | None = setting("A share.", unit="share", instead="none")
    counts: tuple[int, ...] | None = setting("Numbers.", unit="counts")
    words: tuple[str, ...] = setting("Texts.", ())
    on: bool = setting("A switch.", False)
    colour: Colour = setting("A colour.", Colour.RED)
    internal: str = "not to be stated"


def test_options_follow_from_declarations() -> None:
    received: list[OfEachType] = []

    @click.command()
    @option_group("own", OfEachType, *declared_options(OfEachType))
    def command(own: OfEachType) -> None:
        received.append(own)

    command.main([], standalone_mode=False)
    words = ["--whole", "4", "--share", "0.5", "--counts", "2,1", "--words", "a", "--words", "b"]
    command.main([*words, "--on", "--colour", "blue"], standalone_mode=False)
    assert received[0] == OfEachType()
    assert received[1] == OfEachType(
        whole=4, share=0.5, counts=(1, 2), words=("a", "b"), on=True, colour=Colour.BLUE
    )
    told = " ".join(click.Context(command).get_help().split())
    for part in ("--whole <n> A number. [default: 3]", "A share. [default: none]", "[red|blue]"):
        assert part in told
    assert "internal" not in told
    assert len(declared_options(OfEachType, "whole", "on")) == 2


def test_values_are_read_where_they_are_typed() -> None:
    names = ["time_limit", "container", "sbatch", "hosts"]
    settings = typed("--launcher", "slurm", *options(names))
    assert (settings.time_limit, settings.hosts) == (90, 4)
    assert settings.container == ("apptainer", "exec", "my image.sif")
    assert settings.sbatch == ("--qos=normal",)
    assert network_of(settings) is None


def test_an_emulated_network_is_what_was_typed() -> None:
    names = ["hosts", "bandwidth", "delay", "slow_host", "slow_bandwidth", "racks", "uplink"]
    assert network_of(typed("--launcher", "emulated", *options(names))) == EmulatedNetwork(
        num_hosts=4,
        bits_per_s=1e9,
        delay_s=2e-3,
        slow_host=0,
        slow_bits_per_s=1e8,
        racks=2,
        uplink_bits_per_s=2.5e9,
    )
    unlimited = EmulatedNetwork(num_hosts=4, bits_per_s=None)
    assert network_of(typed("--launcher", "emulated", "--hosts", "4")) == unlimited


def test_an_unknown_launcher_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("--launcher", "slrum").launcher == "refused"
    assert "'slrum' is not one of local, emulated, slurm, ssh." in capsys.readouterr().err
    with pytest.raises(UserError, match=r"unknown launcher 'slrum'; choose one of local"):
        make_launcher(LauncherSettings(launcher="slrum"))


def test_help_shows_choices_units_and_who_understands_an_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed_help = click.Context(LAUNCHER_COMMAND).get_help()
    for part in (
        "[local|emulated|slurm|ssh]",
        "<gbit, mbit, kbit, bit or unlimited>",
        "slurm, ssh: prefix of commands",
    ):
        assert part in typed_help


@click.command()
@LAUNCHER
def LAUNCHER_COMMAND(launcher: LauncherSettings) -> None:
    """A command."""


def test_names_are_chosen_from() -> None:
    assert named(["b", "a"]).convert("a", None, None) == "a"
    for given in ("blue", Colour.BLUE):
        assert one_of(Colour).convert(given, None, None) is Colour.BLUE
    with pytest.raises(click.BadParameter, match=r"'green' is not one of red, blue\."):
        one_of(Colour).convert("green", None, None)


#: The list of the present job is the default, and names can be pasted one to a line.
PLANS = {
    "colocated": ["--nodelist=n[9-11]", "--num-workers=3", "--num-ps=2", "--layout=colocated"],
    "dedicated": ["--nodelist=n[8-12]", "--num-workers=2", "--num-ps=2", "--layout=dedicated"],
    "all-reduce": ["--nodelist=n9\nn10\n", "--num-workers=2"],
    "the present job": ["--num-workers=2"],
}


def test_plans_hold_every_task_its_host_and_its_config(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    told = []
    for title, words in PLANS.items():
        assert main(["plan", *words]) == 0
        told.append(f"# {title}\n{capsys.readouterr().out}")
    golden.check({"sentences/plans.txt": "\n".join(told)})
