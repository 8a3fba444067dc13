"""Has every host what a run needs?  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from launchers.doctor.check_findings import (
    Finding,
    HostCheck,
    Sharing,
    SiteFacts,
    failure,
    ok,
    some,
    warning,
)
from launchers.site import describe_mixture
from ps_allreduce.inspection.questions import TemporaryFolder
from ps_allreduce.kernel_files import quota_text
from ps_allreduce.record.hosts import HostFacts

GIB = 2**30

#: A fork server with TensorFlow holds 0.5 GiB, a small worker 1, one that trains VGG16 four.
LITTLE_MEMORY = 4 * GIB

TOO_LITTLE_MEMORY = 1 * GIB

BUSY = 0.1

FEW_FILES = 1024

TOO_FEW_FILES = 256

LITTLE_SPACE = 1 * GIB

TOO_LITTLE_SPACE = GIB // 8

#: File systems that hosts share; others are their own.
SHARED_FILE_SYSTEMS = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "smbfs", "afs", "9p"),
    *("panfs", "orangefs", "pvfs2", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "wekafs", "gfs2"),
)

SLOW_SHARING_S = 2.0


def alike(facts: SiteFacts) -> Iterator[Finding]:
    """The hosts are of one kind."""
    by_host = {host: check.facts for host, check in facts.checked.items()}
    every = [*by_host.values()]
    if every and (len(every) < 2 or facts.one_machine):
        yield ok("one machine")
    elif mixture := describe_mixture(by_host, facts.ps_hosts):
        remedy = f"{facts.advice.alike}, or accept it: --mixed-hosts"
        yield warning(mixture, remedy) if facts.mixed_hosts else failure(mixture, remedy)
    elif every:
        yield ok("; ".join(_kind_texts(facts, by_host)))


def _kind_texts(facts: SiteFacts, by_host: Mapping[str, HostFacts]) -> Iterator[str]:
    """What the hosts of each kind are like, for hosts of one kind and those named for servers."""
    named = {"of one kind": False, "those for servers": True}
    for name, for_servers in named.items():
        group = [each for host, each in by_host.items() if (host in facts.ps_hosts) is for_servers]
        if group:
            quota = quota_text(group[0].processor_quota)
            yield f"{name}: {len(group[0].cores)} cores{quota}, {group[0].cpu_model}"


def memory(facts: SiteFacts) -> Iterator[Finding]:
    """Enough of it is free."""
    shares = len(facts.hosts) if facts.one_machine else 1
    return _least(
        {
            host: min(state.free_bytes, state.memory_limit_bytes or state.free_bytes) / shares
            for host, state in facts.states.items()
        },
        warn_below=LITTLE_MEMORY,
        fail_below=TOO_LITTLE_MEMORY,
        describe=lambda amount: f"{amount / GIB:.1f} GiB free",
        remedy=facts.advice.memory,
    )


def load(facts: SiteFacts) -> Iterator[Finding]:
    """Nobody else computes on the hosts."""
    busy = {host: state.busy_share for host, state in facts.states.items()}
    if not busy:
        return
    most = f"{max(busy.values()):.0%} of the cores in use before anything began"
    if loaded := [host for host, share in busy.items() if share > BUSY]:
        who = "this machine" if facts.one_machine else some(loaded)
        remedy = "see what else runs there (top), and end it or wait: it takes part in every figure"
        yield warning(f"{who}: up to {most}", remedy)
    else:
        yield ok(f"at most {most}")


def open_files(facts: SiteFacts) -> Iterator[Finding]:
    """A process may have enough connections."""
    return _least(
        {host: state.open_files for host, state in facts.states.items()},
        warn_below=FEW_FILES,
        fail_below=TOO_FEW_FILES,
        describe=lambda number: f"{number:.0f} files and connections per process",
        remedy="raise the limit (ulimit -n 4096) in the shell that starts the suite, or have it "
        "raised in /etc/security/limits.conf",
    )


def temporary(facts: SiteFacts) -> Iterator[Finding]:
    """The folder for a run's files can be written, is the host's own, and has room."""
    folders = {host: state.temporary for host, state in facts.states.items()}
    for host, folder in folders.items():
        if folder.problem:
            yield failure(
                f"{host}: {folder.path} cannot be written ({folder.problem})",
                "set TMPDIR to a folder on the host's own disk that exists on every host",
                leave_out=[host],
            )
    yield from _odd_places(folders, facts.advice.own_disk)
    places = dict.fromkeys(f"{folder.path} ({folder.file_system})" for folder in folders.values())
    yield from _least(
        {host: folder.free_bytes for host, folder in folders.items() if not folder.problem},
        warn_below=LITTLE_SPACE,
        fail_below=TOO_LITTLE_SPACE,
        describe=lambda amount: f"{amount / GIB:.1f} GiB free in {some(places)}",
        remedy="clean up there, or set TMPDIR to a folder with more room",
    )


def _odd_places(folders: Mapping[str, TemporaryFolder], own_disk: str) -> Iterator[Finding]:
    elsewhere = [host for host, folder in folders.items() if folder.asked not in ("", folder.path)]
    if elsewhere:
        folder = folders[elsewhere[0]]
        yield warning(
            f"TMPDIR is {folder.asked}, which cannot be used on {some(elsewhere)}; {folder.path} "
            "serves instead",
            "set TMPDIR to a folder that exists on every host, or unset it",
        )
    shared = [h for h, folder in folders.items() if folder.file_system in SHARED_FILE_SYSTEMS]
    if shared:
        folder = folders[shared[0]]
        yield warning(
            f"{folder.path} is on a shared file system ({folder.file_system}) on {some(shared)}",
            f"set TMPDIR to the host's own disk ({own_disk})",
        )


def gpus(facts: SiteFacts) -> Iterator[Finding]:
    """CUDA shows GPUs to workers, and none to parameter servers."""
    counted = {h: check for h, check in facts.checked.items() if check.gpus_of_worker is not None}
    granted = {host: len(check.facts.gpus) for host, check in counted.items()}
    hidden = [
        f"{host} has {granted[host]} and shows {_shown(check)}"
        for host, check in counted.items()
        if check.gpus_of_worker != granted[host]
    ]
    if hidden:
        yield failure(some(hidden), facts.advice.gpus)
    leaking = [f"a server sees GPUs on {h}" for h, check in counted.items() if check.gpus_of_server]
    if leaking:
        remedy = "look at what sets CUDA_VISIBLE_DEVICES anew: the container, start-up files"
        yield failure(some(leaking), remedy)
    unused = [h for h, n in granted.items() if n and "tensorflow-cpu" in counted[h].facts.versions]
    if unused:
        remedy = "make setup TF=cuda, in a VENV of its own, if the GPUs are to be measured"
        yield warning(f"{some(unused)} has GPUs but a TensorFlow for processors only", remedy)
    if counted and not hidden + leaking + unused:
        yield ok(_render_gpus(granted))


def _shown(check: HostCheck) -> str:
    because = f" ({check.gpu_problem})" if check.gpu_problem else ""
    return f"{check.gpus_of_worker}{because}"


def _render_gpus(granted: Mapping[str, int]) -> str:
    if not any(granted.values()):
        return "none; tasks compute on processors"
    numbers = some(f"{number} on {host}" for host, number in granted.items())
    return f"{numbers}: workers see them, servers do not"


def results(facts: SiteFacts) -> Iterator[Finding]:
    """The results folder can be written, and hosts see each other's files there."""
    sharing = facts.sharing
    if sharing is None:
        return
    remedy = "name a folder on a file system that all hosts share, with room in it: RESULTS="
    if sharing.refused:
        yield failure(f"{facts.results} cannot be written here ({sharing.refused})", remedy)
    elif not facts.shares_files:
        yield ok(f"{facts.results} can be written here; every host has files of its own")
    elif problems := [*_unwritable(sharing), *_unseen(sharing, facts.checked)]:
        yield failure(f"{facts.results}: {some(problems)}", remedy)
    elif len(facts.hosts) == 1:
        yield ok(f"{facts.results} can be written")
    else:
        yield _shared_within(facts.results, sharing)


def _shared_within(results: str, sharing: Sharing) -> Finding:
    slowest = max((d for by in sharing.delays_s.values() for d in by.values()), default=0.0)
    text = f"{results} is written by all hosts, and seen by the others within {slowest:.2f} s"
    if slowest <= SLOW_SHARING_S:
        return ok(text)
    remedy = "harmless for a run; but input files must be there that long before the first one"
    return warning(text, remedy)


def _unwritable(sharing: Sharing) -> list[str]:
    """Hosts that cannot write, by why they cannot."""
    reasons: dict[str, list[str]] = {}
    for host, why in sharing.unwritable.items():
        reasons.setdefault(why, []).append(host)
    return [f"{some(hosts)} cannot write there ({why})" for why, hosts in reasons.items()]


def _unseen(sharing: Sharing, hosts: Iterable[str]) -> list[str]:
    """Writers whose files a reader does not see; the launcher is a reader as well."""
    written = [host for host in hosts if host not in sharing.unwritable]
    unseen = {
        reader: [w for w in written if w != reader and w not in delays]
        for reader, delays in sharing.delays_s.items()
    }
    unseen["this machine"] = list(sharing.unseen_here)
    return [f"{r} does not see the file of {some(w)}" for r, w in unseen.items() if w]


def _least(
    amounts: Mapping[str, float],
    *,
    warn_below: float,
    fail_below: float,
    describe: Callable[[float], str],
    remedy: str,
) -> Iterator[Finding]:
    """One finding about those that have too little of something, or about the least there is."""
    if not amounts:
        return
    short = [host for host, amount in amounts.items() if amount < warn_below]
    least = min(amounts.values())
    text = f"{some(short)}: only {describe(least)}"
    if not short:
        yield ok(f"{describe(least)} at least")
    else:
        yield failure(text, remedy) if least < fail_below else warning(text, remedy)
