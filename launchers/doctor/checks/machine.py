"""Has every host what a run needs?  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from launchers.doctor.facts import Facts, Sharing
from launchers.doctor.findings import Finding, Findings, failure, ok, some, warning
from ps_allreduce.record.hosts import describe_difference, kinds

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


def alike(facts: Facts) -> Findings:
    """The hosts are of one kind."""
    if len(facts.checked) < 2 or facts.one_machine:
        return [ok("one machine")] if facts.checked else []
    seen = {host: one.facts for host, one in facts.checked.items()}
    found = kinds(list(seen.values()))
    first = next(iter(seen.values()))
    if len(found) == 1:
        return [ok(f"of one kind: {len(first.cores)} cores, {first.cpu_model}")]
    (one, *_), (two, *_) = list(found.values())[:2]
    by_name = {fact.name: fact for fact in seen.values()}
    text = (
        f"{len(found)} kinds: {one} and {two} differ in "
        f"{describe_difference(by_name[one], by_name[two])}"
    )
    remedy = "ask for hosts that are alike (--constraint, --exclude), or accept it: --mixed-hosts"
    return [warning(text, remedy) if facts.mixed_hosts else failure(text, remedy)]


def memory(facts: Facts) -> Findings:
    """Enough of it is free."""
    shares = len(facts.hosts) if facts.one_machine else 1
    free = {
        host: min(state.free_bytes, state.memory_limit_bytes or state.free_bytes) / shares
        for host, state in facts.states.items()
    }
    return _least(
        free,
        warn_below=LITTLE_MEMORY,
        fail_below=TOO_LITTLE_MEMORY,
        tell=lambda amount: f"{amount / GIB:.1f} GiB free",
        remedy="end what else runs there, ask the scheduler for more (--mem), or use fewer tasks "
        "per host",
    )


def load(facts: Facts) -> Findings:
    """Nobody else computes on the hosts."""
    busy = {host: state.busy_share for host, state in facts.states.items()}
    if not busy:
        return []
    most = f"{max(busy.values()):.0%} of the cores in use before anything began"
    found = {host: share for host, share in busy.items() if share > BUSY}
    if not found:
        return [ok(f"at most {most}")]
    remedy = "see what else runs there (top), and end it or wait: it takes part in every figure"
    who = "this machine" if facts.one_machine else some(found)
    return [warning(f"{who}: up to {most}", remedy)]


def open_files(facts: Facts) -> Findings:
    """A process may have enough connections."""
    return _least(
        {host: state.open_files for host, state in facts.states.items()},
        warn_below=FEW_FILES,
        fail_below=TOO_FEW_FILES,
        tell=lambda number: f"{number:.0f} files and connections per process",
        remedy="raise the limit (ulimit -n 4096) in the shell that starts the suite, or have it "
        "raised in /etc/security/limits.conf",
    )


def temporary(facts: Facts) -> Findings:
    """The folder for a run's files can be written, is the host's own, and has room."""
    folders = {host: state.temporary for host, state in facts.states.items()}
    if not folders:
        return []
    problems = [
        failure(
            f"{host}: {folder.path} cannot be written ({folder.problem})",
            "set TMPDIR to a folder on the host's own disk that exists on every host",
            leave_out=[host],
        )
        for host, folder in folders.items()
        if folder.problem
    ]
    return [
        *problems,
        *_not_where_asked(facts),
        *_on_shared_files(facts),
        *_least(
            {host: folder.free_bytes for host, folder in folders.items() if not folder.problem},
            warn_below=LITTLE_SPACE,
            fail_below=TOO_LITTLE_SPACE,
            tell=lambda amount: f"{amount / GIB:.1f} GiB free in {_places(facts)}",
            remedy="clean up there, or set TMPDIR to a folder with more room",
        ),
    ]


def _places(facts: Facts) -> str:
    folders = [state.temporary for state in facts.states.values()]
    return some(dict.fromkeys(f"{folder.path} ({folder.file_system})" for folder in folders))


def _not_where_asked(facts: Facts) -> Findings:
    others = {
        host: state.temporary
        for host, state in facts.states.items()
        if state.temporary.asked and state.temporary.asked != state.temporary.path
    }
    if not others:
        return []
    folder = next(iter(others.values()))
    return [
        warning(
            f"TMPDIR is {folder.asked}, which cannot be used on {some(others)}; {folder.path} "
            "serves instead",
            "set TMPDIR to a folder that exists on every host, or unset it",
        )
    ]


def _on_shared_files(facts: Facts) -> Findings:
    shared = [h for h, s in facts.states.items() if s.temporary.file_system in SHARED_FILE_SYSTEMS]
    if not shared:
        return []
    folder = facts.states[shared[0]].temporary
    return [
        warning(
            f"{folder.path} is on a shared file system ({folder.file_system}) on {some(shared)}",
            "set TMPDIR to the host's own disk (/tmp, /scratch/local, $SLURM_TMPDIR)",
        )
    ]


def gpus(facts: Facts) -> Findings:
    """CUDA shows GPUs to workers, and none to parameter servers."""
    asked = {h: one for h, one in facts.checked.items() if one.gpus_of_worker is not None}
    if not asked:
        return []
    granted = {host: len(one.facts.gpus) for host, one in asked.items()}
    missing = [
        f"{h} has {granted[h]} and shows {one.gpus_of_worker}{_because(one.gpu_problem)}"
        for h, one in asked.items()
        if one.gpus_of_worker != granted[h]
    ]
    leaking = [host for host, one in asked.items() if one.gpus_of_server]
    return [
        *_told(missing, "look at nvidia-smi there, and at what the scheduler granted (--gres)"),
        *_told(
            [f"a server sees GPUs on {host}" for host in leaking],
            "something there sets CUDA_VISIBLE_DEVICES anew: look at the container and start-up "
            "files",
        ),
        *_without_cuda(facts, granted),
    ] or [ok(_render_gpus(granted))]


def _because(problem: str) -> str:
    return f" ({problem})" if problem else ""


def _told(sentences: Iterable[str], remedy: str) -> list[Finding]:
    every = list(sentences)
    return [failure(some(every), remedy)] if every else []


def _without_cuda(facts: Facts, granted: Mapping[str, int]) -> Findings:
    unused = [
        host
        for host, number in granted.items()
        if number and "tensorflow-cpu" in facts.checked[host].facts.versions
    ]
    if not unused:
        return []
    remedy = "make setup TF=cuda, in a VENV of its own, if the GPUs are to be measured"
    return [warning(f"{some(unused)} has GPUs but a TensorFlow for processors only", remedy)]


def _render_gpus(granted: Mapping[str, int]) -> str:
    if not any(granted.values()):
        return "none; tasks compute on processors"
    numbers = some(f"{number} on {host}" for host, number in granted.items())
    return f"{numbers}: workers see them, servers do not"


def results(facts: Facts) -> Findings:
    """The results folder can be written, and hosts see each other's files there."""
    sharing = facts.sharing
    if sharing is None:
        return []
    remedy = "name a folder on a file system that all hosts share, with room in it: RESULTS="
    if sharing.refused:
        return [failure(f"{facts.results} cannot be written here ({sharing.refused})", remedy)]
    if not facts.shares_files:
        return [ok(f"{facts.results} can be written here; every host has files of its own")]
    unseen = _unseen(facts)
    told = [f"{some(who)} cannot write there ({why})" for why, who in _by_reason(sharing).items()]
    told += [f"{reader} does not see the file of {some(w)}" for reader, w in unseen.items()]
    if told:
        return [failure(f"{facts.results}: {some(told)}", remedy)]
    if len(facts.hosts) == 1:
        return [ok(f"{facts.results} can be written")]
    slowest = max((d for by in sharing.delays_s.values() for d in by.values()), default=0.0)
    text = f"{facts.results} is written by all hosts, and seen by the others within {slowest:.2f} s"
    if slowest > SLOW_SHARING_S:
        remedy = "harmless for a run; but input files must be there that long before the first one"
        return [warning(text, remedy)]
    return [ok(text)]


def _by_reason(sharing: Sharing) -> dict[str, list[str]]:
    """Hosts that cannot write, by why they cannot."""
    reasons: dict[str, list[str]] = {}
    for host, why in sharing.unwritable.items():
        reasons.setdefault(why, []).append(host)
    return reasons


def _unseen(facts: Facts) -> dict[str, list[str]]:
    """Writers whose files a reader does not see; the launcher is a reader as well."""
    assert facts.sharing is not None
    written = [host for host in facts.checked if host not in facts.sharing.unwritable]
    unseen = {
        reader: [w for w in written if w != reader and w not in delays]
        for reader, delays in facts.sharing.delays_s.items()
    }
    unseen["this machine"] = list(facts.sharing.unseen_here)
    return {reader: writers for reader, writers in unseen.items() if writers}


def _least(
    amounts: Mapping[str, float],
    *,
    warn_below: float,
    fail_below: float,
    tell: Callable[[float], str],
    remedy: str,
) -> list[Finding]:
    """One finding about those that have too little of something, or about the least there is."""
    if not amounts:
        return []
    short = {host: amount for host, amount in amounts.items() if amount < warn_below}
    least = min(amounts.values())
    if not short:
        return [ok(f"{tell(least)} at least")]
    text = f"{some(short)}: only {tell(least)}"
    return [failure(text, remedy) if least < fail_below else warning(text, remedy)]
