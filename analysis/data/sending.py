"""Results as one file that can be sent: without names of hosts, addresses, people or paths.

Decides what is hidden, and what stands in its place; what is left of a record can be read and
analysed like any other.  Logs stay at home: nobody can tell what stands in them.  So do copies of
input data and of a user's own model.  Received files are unpacked here as well.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ps_allreduce.errors import UserError
from ps_allreduce.record.files import (
    RunFiles,
    iter_record_paths,
    read_json,
    read_run,
    write_atomically,
)
from ps_allreduce.record.records import RunRecord
from ps_allreduce.serialization import to_json

SUFFIX = ".zip"

#: The suite's own words, which may be those that a host is called by.
_OWN_WORDS = frozenset({"task", "status", "sweep", "profile", "experiment_id"})

#: Experiments; their identity follows from what stands in them, but for the places of files.
_EXPERIMENTS = frozenset({"experiment", "points"})
_PLACES = frozenset({"path", "name"})

#: Free text, in which addresses and folders may stand that no record names.
_FREE = frozenset({"reason", "warnings", "command"})

#: Addresses in the place of real ones: of the network for benchmarks (RFC 2544), which no host has.
_ADDRESSES = "198.18.{}.{}"

_LOOPBACK = "127."

_IPV4 = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")

#: A path from the root, down to the last part, which may tell what was run.
_PATH = re.compile(r"(?<![\w/])(?:/[^\s/'\":,;]+)+/(?=[^\s/'\":,;]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """What stands in the place of what is not to be told.

    Attributes:
        names: stand-ins by name.
    """

    names: Mapping[str, str]

    def text(self, text: str) -> str:
        """A text without names."""
        if not self.names:
            return text
        longest_first = sorted(self.names, key=len, reverse=True)
        known = "|".join(map(re.escape, longest_first))
        whole = rf"(?<![A-Za-z0-9])(?:{known})(?![A-Za-z0-9])"
        return re.sub(whole, lambda found: self.names[found.group()], text)

    def free_text(self, text: str) -> str:
        """A text without names, addresses and folders, whosever they are."""
        return _PATH.sub("", _IPV4.sub(self._address, self.text(text)))

    def value(self, value: Any, key: str = "") -> Any:
        """A JSON value without names, as it stands below a key of a record or of `sweep.json`."""
        if key in _OWN_WORDS:
            return value
        if key in _EXPERIMENTS:
            return _without_folders(value)
        if isinstance(value, str):
            return self.free_text(value) if key in _FREE else self.text(value)
        if isinstance(value, list):
            return [self.value(each, key) for each in value]
        if isinstance(value, dict):
            return {name: self.value(each, name) for name, each in value.items()}
        return value

    def _address(self, found: re.Match[str]) -> str:
        number = found.group()
        is_known = number in self.names.values() or number.startswith(_LOOPBACK)
        return number if is_known else "0.0.0.0"


def _without_folders(value: Any, key: str = "") -> Any:
    """An experiment without the folders in which its files are."""
    if isinstance(value, str):
        return _PATH.sub("", value) if key in _PLACES else value
    if isinstance(value, dict):
        return {name: _without_folders(each, name) for name, each in value.items()}
    return value


def hidden_in(records: Iterable[RunRecord], people: Iterable[str]) -> Hidden:
    """Stand-ins for all that records name, numbered in the order in which it comes.

    Args:
        people: names of users.
    """
    kinds: dict[str, dict[str, None]] = {"host": {}, "machine": {}, "switch": {}, "gpu": {}}
    addresses: dict[str, None] = {}
    for record in records:
        for host in record.hosts:
            facts = host.facts
            kinds["host"] |= dict.fromkeys((host.name, facts.name, facts.scheduler_name))
            kinds["machine"][facts.machine] = None
            kinds["switch"] |= dict.fromkeys(facts.switch.split("."))
            kinds["gpu"] |= dict.fromkeys(gpu.identity for gpu in facts.gpus)
            addresses |= dict.fromkeys((host.address, *(each.address for each in facts.interfaces)))
        kinds["host"] |= dict.fromkeys((record.provenance.host, *(t.host for t in record.tasks)))
    names = dict.fromkeys(people, "user")
    addresses = {name: None for name in addresses if not name.startswith(_LOOPBACK)}
    names |= {name: _ADDRESSES.format(*divmod(n + 1, 256)) for n, name in enumerate(addresses)}
    for kind, found in reversed(kinds.items()):
        names |= {name: f"{kind}{number}" for number, name in enumerate(found, start=1)}
    return Hidden(names={name: instead for name, instead in names.items() if name})


def pack(folder: Path, target: Path, texts: Mapping[str, str], people: Iterable[str]) -> None:
    """Write records, raw timings and what was asked for of all sweeps below a folder.

    Args:
        texts: further files, by their names in the file that is written; hidden alike.

    Raises:
        UserError: a record cannot be read, no permission, or no space left.
    """
    paths = [
        path for runs in sorted(folder.rglob("runs")) for path in iter_record_paths(runs.parent)
    ]
    records = {path: _read(path) for path in paths}
    hidden = hidden_in(records.values(), people)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in texts.items():
            packed.writestr(name, hidden.free_text(text))
        for path, record in records.items():
            packed.writestr(str(path.relative_to(folder)), _json(hidden.value(to_json(record))))
            if (raw := RunFiles(path).raw).exists():
                packed.write(raw, str(raw.relative_to(folder)), zipfile.ZIP_STORED)
        for path in sorted({path.parents[2] / "sweep.json" for path in paths}):
            if path.exists():
                packed.writestr(str(path.relative_to(folder)), _json(hidden.value(read_json(path))))
    write_atomically(target, content.getvalue())


def unpack(path: Path) -> Path:
    """Unpack a received file beside itself; return the folder.

    Raises:
        UserError: it is no such file, or the folder is there already.
    """
    folder = path.with_suffix("")
    if folder.exists():
        raise UserError(
            f"{folder} is there already: report on that folder, or move it away to unpack {path}."
        )
    try:
        with zipfile.ZipFile(path) as packed:
            packed.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be unpacked: {error}.") from error
    return folder


def _read(path: Path) -> RunRecord:
    record = read_run(path)
    if isinstance(record, RunRecord):
        return record
    raise UserError(str(record))


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
