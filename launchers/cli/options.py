"""Options that belong together as one value, and those that every launcher can be told.

A group is a frozen dataclass and one `click` option for each of those of its fields that a command
has a use for, by the field's name.  Decides how settings of hosts are typed, and that one which
belongs to other launchers is refused.  Help begins with the launchers that understand an option.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

import click

from launchers.cli.types import (
    DELAY,
    INTERFACE,
    MINUTES,
    PATH,
    RATE,
    SHARE,
    SIZE,
    TRAFFIC,
    WHOLE,
    WORDS,
    named,
    size_text,
)
from launchers.settings import AUTO, LauncherSettings, option_of
from launchers.sites.kinds import SITES, site_kind
from ps_allreduce.point.network import CONGESTION, PORT_BUFFER_BYTES

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]


def option_group(parameter: str, cls: type[Any], *options: Decorator[Any]) -> Decorator[Any]:
    """Give a command the parameter `parameter`, a `cls` made of what these options hold.

    Fields of `cls` for which there is no option keep their default.
    """
    names = tuple(field.name for field in fields(cls))

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_value(**typed: Any) -> Any:
            values = {name: typed.pop(name) for name in names if name in typed}
            return command(**typed, **{parameter: cls(**values)})

        for option in reversed(options):
            with_value = option(with_value)
        return with_value

    return decorate


def stated_option(option: str, kind: Any, text: str, default: object = None) -> Decorator[Any]:
    """An option that is None unless it is stated; help shows the default that holds then."""
    shown = "" if default is None else f"  [default: {default}]"
    return click.option(option, type=kind, help=text + shown)


def given_option(option: str, kind: Any, text: str, default: object) -> Decorator[Any]:
    """An option that has its default where it is not stated."""
    return click.option(option, type=kind, help=text, default=default, show_default=True)


def together(*decorators: Decorator[Any]) -> Decorator[Any]:
    """Several groups or options as one decorator, in the order in which help shows them."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _option(name: str, help_text: str, **settings: Any) -> Decorator[Any]:
    """The option of a setting that some launchers understand."""
    owners = ", ".join(kind.name for kind in SITES.values() if name in kind.understands)
    return click.option(option_of(name), name, help=f"{owners}: {help_text}", **settings)


_OPTIONS = (
    click.option(
        "--results",
        type=PATH,
        default=LauncherSettings().results,
        show_default=True,
        help="Results folder.",
    ),
    click.option("--allow-login-node", is_flag=True, help="Train on a cluster's login node."),
    click.option("--interface", type=INTERFACE, help="Network whose addresses the tasks use."),
    click.option("--mixed-hosts", is_flag=True, help="Run on hosts of different kinds."),
    _option("hosts", "number of hosts.", type=WHOLE),
    _option(
        "ps_hosts",
        "so many further hosts, maybe of another kind, hold the servers and no worker.",
        type=WHOLE,
    ),
    _option("bandwidth", "of every link and direction; sweeps choose one.", type=RATE),
    _option("delay", "from host to host, one way.", type=DELAY),
    _option("slow_host", "a host with a slower link, counted from 0.", type=WHOLE),
    _option("slow_bandwidth", "of that host's link.", type=RATE),
    _option("racks", "number of switches, 1 or 2.", type=WHOLE),
    _option("uplink", "rate of the link between two racks.", type=RATE),
    _option(
        "traffic",
        "background traffic on every link (200mbit), or from host to host (0-1:200mbit); as often "
        "as needed.",
        type=TRAFFIC,
        multiple=True,
    ),
    _option("congestion", f"TCP's congestion control; {CONGESTION} if not given."),
    _option(
        "port_buffer",
        f"of every port of a switch; {size_text(PORT_BUFFER_BYTES)} if not given.",
        type=SIZE,
    ),
    _option("loss", "share of packets that every port of a switch loses at random.", type=SHARE),
    _option("partition", "as sbatch takes it."),
    _option("account", "as sbatch takes it."),
    _option("time_limit", "limit of the job; estimated if not given.", type=MINUTES),
    _option("constraint", "as sbatch takes it."),
    _option("gpus_per_node", "as sbatch takes it."),
    _option("sbatch", "any further option of sbatch, as often as needed.", multiple=True),
    _option(
        "ps_sbatch",
        "any option of sbatch for the hosts of --ps-hosts, for instance --ps-sbatch=--partition=x; "
        "as often as needed.",
        multiple=True,
    ),
    _option("setup", "line of the batch script, for instance module load X.", multiple=True),
    _option("container", "words before commands (apptainer exec x.sif).", type=WORDS, default=()),
    _option("shared_nodes", "do not ask for whole nodes.", is_flag=True),
    _option(
        "copy_environment",
        "copy Python's packages to every node's own disk first.",
        is_flag=True,
    ),
    _option(
        "host_file",
        "a host per line, with its address in the network of the hosts where that differs.",
        type=PATH,
    ),
)


def _refuse_others(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def checked(*, launcher: LauncherSettings, **others: Any) -> Any:
        if launcher.launcher != AUTO:
            site_kind(launcher.launcher).refuse_others(launcher)
        return command(launcher=launcher, **others)

    return checked


def _launcher(names: Iterable[str], default: str) -> Decorator[Any]:
    choice = click.option(
        "--launcher",
        type=named(names),
        default=default,
        show_default=True,
        help="How tasks are started.",
    )
    return together(option_group("launcher", LauncherSettings, choice, *_OPTIONS), _refuse_others)


#: Gives a command the parameter `launcher: LauncherSettings`.
LAUNCHER = _launcher(SITES, LauncherSettings().launcher)

#: The same; where nothing is stated, the command decides.
LAUNCHER_OR_AUTO = _launcher((AUTO, *SITES), AUTO)
