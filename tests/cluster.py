"""A cluster whose hosts are fork servers on this machine, and tasks that only pretend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from launchers.fork_servers.host_servers import HostServers
from launchers.processes import FORK_SERVER
from launchers.run.conclude import LaunchedRun
from launchers.run.launcher import HostsLauncher
from launchers.site import Site
from launchers.sites.local import LocalForkServer, LocalSite
from ps_allreduce.errors import HostFault, UserError
from ps_allreduce.point.experiment import Experiment
from tests.pretend import driver_result, leave_results

ADDRESSES = {"n10": "127.0.0.10", "n1": "127.0.0.1", "n9": "127.0.0.9"}

Words = tuple[str, ...]


@dataclass
class Cluster(Site):
    """A site whose hosts are fork servers on this machine.

    Attributes:
        words: the fork server of every host.
        broken: why no server comes up, if so.
        over: the scheduler has ended the job.
        said: what the scheduler says about it.
        asked: the hosts and cores of every run or job.
    """

    words: Mapping[str, Words]
    one_machine: bool = False
    shares_files: bool = True
    broken: str = ""
    over: bool = False
    said: str = ""
    job_id: str | None = "7"
    addresses: Mapping[str, str | None] = field(default_factory=lambda: ADDRESSES)
    asked: list[dict[str, int]] = field(default_factory=list)
    running: dict[str, LocalForkServer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hosts = tuple(self.words)

    def __enter__(self) -> Self:
        self.running = {host: LocalForkServer(words, host) for host, words in self.words.items()}
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.running.values():
            server.close()

    def check(self, experiment: Experiment) -> None:
        if experiment.num_workers > 99:
            raise UserError("too large for this site.")

    def cores(self) -> Mapping[str, Sequence[int]]:
        return dict.fromkeys(self.hosts, (0, 1))

    @contextmanager
    def servers(
        self, cores: Mapping[str, int], experiment: Experiment | None
    ) -> Iterator[HostServers]:
        self.asked.append(dict(cores))
        if self.broken:
            raise HostFault(self.broken)
        for host in cores:
            self.running[host].start()
        yield HostServers({host: self.running[host].client() for host in cores})

    def preset_address(self, host: str) -> str | None:
        return self.addresses[host]

    def time_left_s(self) -> float | None:
        return 60.0

    def is_over(self) -> bool:
        return self.over

    def post_mortem(self) -> str:
        return self.said


class LocalLauncher(HostsLauncher):
    """Runs experiments on this machine."""

    def __init__(self, data_dir: Path, *, fork_server: Sequence[str] = FORK_SERVER) -> None:
        super().__init__(LocalSite(fork_server), data_dir)


def launch_tasks(
    launcher: HostsLauncher,
    folder: Path,
    code: str,
    experiment: Experiment,
    progress: Callable[[str], None] = lambda _: None,
    weights: Path | None = None,
    deadline_s: float = 20.0,
    limit_s: float | None = None,
) -> LaunchedRun:
    """Have a run made on pretending servers, whose tasks execute some Python text."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "task.py").write_text(code)
    leave_results(folder, driver_result(0), driver_result(1))
    return launcher.launch(
        experiment, deadline_s=deadline_s, limit_s=limit_s, progress=progress, weights=weights
    )
