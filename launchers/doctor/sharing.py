"""Do the hosts see each other's files in the results folder?

Decides how that is tried out, and that no trace is left of it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from launchers.doctor.questions import Answers, ask_hosts
from launchers.doctor.site_facts import Sharing
from launchers.fork_servers.host_servers import HostServers
from ps_allreduce.inspection.questions import ShareFile

#: NFS may remember for so long that a file is not there.  Source: nfs(5), acdirmin.
WITHIN_S = 35.0

ANSWER_S = 15.0

LOOK_S = 3.0

POLL_S = 0.05


def try_sharing(
    servers: HostServers, results: Path, offsets: Mapping[str, float], *, shared: bool
) -> Sharing:
    """Have every host write a file, and see that all others get to see it.

    Args:
        offsets: seconds by which the hosts' clocks are ahead of this one.
        shared: hosts are expected to share files; else only this process writes one.
    """
    try:
        with _folder_below(results) as folder:
            if not shared:
                return Sharing()
            answers = _ask(servers, folder)
            written = [host for host in answers.of("written") if _is_there(folder / host)]
            unseen = [host for host in answers.of("written") if host not in written]
    except OSError as error:
        return Sharing(refused=error.strerror or str(error))
    return Sharing(
        unwritable=answers.troubles | {h: e.text for h, e in answers.of("unwritable").items()},
        delays_s=_delays(answers, offsets),
        unseen_here=tuple(unseen),
    )


@contextmanager
def _folder_below(results: Path) -> Iterator[Path]:
    """A folder in the results folder; what had to be made for it is removed again.

    Raises:
        OSError: it cannot be made.
    """
    made = [path for path in (results, *results.parents) if not path.exists()]
    results.mkdir(parents=True, exist_ok=True)
    try:
        prefix = "ps-allreduce-doctor-"
        with tempfile.TemporaryDirectory(
            prefix=prefix, dir=results, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)
    finally:
        for path in made:
            with suppress(OSError):
                path.rmdir()


def _ask(servers: HostServers, folder: Path) -> Answers:
    hosts = [host for host, client in servers.clients.items() if not client.lost]
    requests = {
        host: ShareFile(
            folder=str(folder),
            own=host,
            others=tuple(other for other in hosts if other != host),
            within_s=WITHIN_S,
            log=servers.clients[host].job_log("share"),
        )
        for host in hosts
    }
    return ask_hosts(servers, requests, WITHIN_S + ANSWER_S)


def _is_there(path: Path) -> bool:
    deadline = time.monotonic() + LOOK_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return path.exists()


def _delays(answers: Answers, offsets: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """On one clock; what was seen at once took no time."""
    written = {
        host: event.counts["ns"] / 1e9 - offsets.get(host, 0.0)
        for host, event in answers.of("written").items()
    }
    return {
        reader: {
            writer: max(0.0, ns / 1e9 - offsets.get(reader, 0.0) - written[writer])
            for writer, ns in event.counts.items()
            if writer in written
        }
        for reader, event in answers.of("seen").items()
    }
