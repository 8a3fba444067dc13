"""Options that belong together as one value, and those that every launcher can be told.

A group is a frozen dataclass and one `click` option for each of those of its fields that a command
has a use for, by the field's name.  Options follow from the declarations of settings: decides which
type of option a field has.  A setting of hosts that belongs to other launchers is refused; its help
begins with the launchers that understand it.  Help shows the usual options, and all if asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import click

from launchers.cli.types import (
    COUNTS,
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
    Parsed,
    named,
    one_of,
    parse_decimal,
    size_text,
)
from launchers.settings import (
    AUTO,
    COMMON_SETTINGS,
    LauncherSettings,
    option_of,
)
from launchers.sites.kinds import SITES, site_kind
from ps_allreduce.declared import DECLARED, Declared
from ps_allreduce.terminal import echo

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

#: How values are written that their type does not tell.
UNITS: Mapping[str, Any] = {
    "rate": RATE,
    "delay": DELAY,
    "size": SIZE,
    "share": SHARE,
    "minutes": MINUTES,
    "interface": INTERFACE,
    "traffic": TRAFFIC,
    "words": WORDS,
    "counts": COUNTS,
    "s": Parsed("s", parse_decimal),
    "ms": Parsed("ms", parse_decimal),
    "text": str,
}

#: Those whose text holds all values of a tuple.
WHOLE_TUPLES = ("words", "counts")

#: A command with no more options shows all of them.
FEW = 26

#: Of a context: all options are to be shown.
ALL = "launchers.cli.options.all"


class RareOption(click.Option):
    """An option that only the help of all options shows."""


class BriefCommand(click.Command):
    """A command whose help shows its usual options; --help-all shows all of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if len(self.params) > FEW:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all,
                    help="Show all options and exit.",
                )
            )
        self.is_brief = len(self.params) > FEW

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usual options, and how many others there are; or all."""
        brief = self.is_brief and ALL not in ctx.meta
        params = self.get_params(ctx)
        shown = [each for each in params if not (brief and isinstance(each, RareOption))]
        with formatter.section("Options"):
            formatter.write_dl(list(filter(None, (each.get_help_record(ctx) for each in shown))))
        if left := len(params) - len(shown):
            formatter.write_paragraph()
            formatter.write_text(f"{left} further options: --help-all shows them.")


def _show_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[ALL] = True
        echo(ctx.get_help())
        ctx.exit()


class BriefCommands(click.Group):
    """A group of such commands."""

    command_class = BriefCommand


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


def together(*decorators: Decorator[Any]) -> Decorator[Any]:
    """Several groups or options as one decorator, in the order in which help shows them."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def declared_options(
    cls: type[Any],
    *names: str,
    begin: Callable[[str], str] = lambda _: "",
    default: Callable[[str], object] = lambda _: None,
    units: Mapping[str, Any] | None = None,
) -> list[Decorator[Any]]:
    """The options of those fields of a dataclass that are declared as settings, in their order.

    Args:
        names: of some of them; none for all.
        begin: what the help of a setting begins with.
        default: what holds where None stands for it, and the setting does not tell.
        units: how values are written besides `UNITS`.
    """
    hints, known = get_type_hints(cls), {**UNITS, **(units or {})}
    return [
        _declared(each, hints[each.name], begin(each.name), default(each.name), known)
        for each in fields(cls)
        if DECLARED in each.metadata and (not names or each.name in names)
    ]


def _declared(
    setting: Field[Any], hint: Any, begin: str, default: object, units: Mapping[str, Any]
) -> Decorator[Any]:
    """The option of a setting, whose type follows from its unit, else from that of the field."""
    own: Declared = setting.metadata[DECLARED]
    instead = default if own.instead is None else own.instead
    shown = size_text(instead) if own.unit == "size" and isinstance(instead, int) else instead
    ends = "" if shown in (None, "", False) else f"  [default: {shown}]"
    words = (own.option or option_of(setting.name), setting.name)
    shared: dict[str, Any] = {
        "cls": click.Option if own.usual else RareOption,
        "help": f"{begin}{own.text}{ends}",
    }
    kind, *_ = [each for each in get_args(hint) or (hint,) if each not in (NoneType, ...)]
    if kind is bool:
        # Unstated is None where that stands for another default.
        shared["callback"] = lambda _, __, stated: stated or setting.default
        return click.option(*words, is_flag=True, **shared)
    several = get_origin(hint) is tuple and own.unit not in WHOLE_TUPLES
    return click.option(
        *words,
        type=units.get(own.unit) or _type_of(kind),
        multiple=several,
        default=None if several else getattr(setting.default, "value", setting.default),
        show_default=setting.default not in (None, ()),
        **shared,
    )


def _type_of(kind: Any) -> Any:
    """The type of an option whose values are of that kind."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return one_of(kind)
    return {int: WHOLE, Path: PATH}.get(kind, kind)


def _owners(name: str) -> str:
    """The launchers that understand a setting, if not all do."""
    if name in COMMON_SETTINGS:
        return ""
    return ", ".join(kind.name for kind in SITES.values() if name in kind.understands) + ": "


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
    options = declared_options(LauncherSettings, begin=_owners)
    return together(option_group("launcher", LauncherSettings, choice, *options), _refuse_others)


#: Gives a command the parameter `launcher: LauncherSettings`.
LAUNCHER = _launcher(SITES, LauncherSettings().launcher)

#: The same; where nothing is stated, the command decides.
LAUNCHER_OR_AUTO = _launcher((AUTO, *SITES), AUTO)
