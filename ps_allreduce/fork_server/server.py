"""Import TensorFlow once, then fork every task from here.

`python -m ps_allreduce.fork_server.server` serves one launcher until the line is cut.  Then it
kills what it forked, removes its files and ends.  An import takes seconds and a fork hundredths of
one, so a sweep pays for the import once per host.

This process executes nothing of TensorFlow: after a single operation in the parent, a forked
child's first function hangs.  What it forks stays in the control group and on the processors that
the scheduler bound it to.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psutil

from ps_allreduce.errors import HostFault
from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.child import (
    UNUSED_BY_TASKS,
    Child,
    KernelWatch,
    Reporter,
    detach,
    explain_end,
    keep_from_forks,
    left_out,
    log_failure,
    report_failure,
)
from ps_allreduce.fork_server.guard import (
    adopt_orphans,
    end_orphans,
    go_on_guarded,
    reap_orphans,
    wake_guard,
)
from ps_allreduce.fork_server.line import Line, open_line, standard_streams
from ps_allreduce.fork_server.run_folder import RunFolder
from ps_allreduce.inspection.facts import OtherProcesses, look_around, take_sample
from ps_allreduce.inspection.gpu import GpuSampler, load_nvml
from ps_allreduce.process import handle_ending, kill_group
from ps_allreduce.record.provenance import program_digest
from ps_allreduce.scratch import scratch_folder, scratch_parent

SAMPLE_INTERVAL_S = 0.5

Job = Callable[[Any, Reporter], None]


@dataclass(slots=True)
class ForkServer:
    """Serves requests, relays reports, samples, and reaps.

    Attributes:
        jobs: what a child does, by the kind of request; `run_folder` serves all other requests.
        gpus: looked at with every sample.
        others: looked at with samples, on one host of a machine.
        kernel: tells whether it has killed a child for want of memory.
        ended: children that were killed from here.
        is_ending: it kills and removes everything, and will be gone.
    """

    line: Line
    jobs: Mapping[type[Any], Job]
    run_folder: RunFolder
    children: dict[int, Child] = field(default_factory=dict)
    partial: dict[int, bytes] = field(default_factory=dict)
    next_sample: float = 0.0
    gpus: GpuSampler = field(default_factory=GpuSampler)
    others: OtherProcesses = field(default_factory=OtherProcesses)
    kernel: KernelWatch = field(default_factory=KernelWatch)
    ended: set[int] = field(default_factory=set)
    is_ending: bool = False

    def serve(self) -> None:
        """Run until the launcher is gone."""
        adopt_orphans()
        wakeup_read, wakeup_write = os.pipe()
        os.set_blocking(wakeup_write, False)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        handle_ending(self._terminate)
        with selectors.DefaultSelector() as selector:
            selector.register(self.line, selectors.EVENT_READ)
            selector.register(wakeup_read, selectors.EVENT_READ)
            try:
                while self._serve_once(selector, wakeup_read):
                    pass
            except OSError as error:  # no file handles, no room for another process
                self._send(messages.Leaving(reason=error.strerror or str(error)))
            finally:
                self._begin_to_end()
                self.run_folder.finish_run()

    def _serve_once(self, selector: selectors.BaseSelector, wakeup: int) -> bool:
        ready = [key.fileobj for key, _ in selector.select(SAMPLE_INTERVAL_S)]
        if wakeup in ready:
            os.read(wakeup, 4096)
        if not self.run_folder.is_there:
            self._send(messages.Leaving(reason="its temporary folder was deleted"))
            return False
        for source in ready:
            if source is self.line:
                if not self._handle_requests(selector):
                    return False
            elif isinstance(source, int) and source != wakeup:
                self._relay(selector, source)
        self._reap(selector)
        self._sample()
        return True

    def _handle_requests(self, selector: selectors.BaseSelector) -> bool:
        try:
            content = self.line.recv(1 << 16)
        except OSError:
            return False
        if not content:
            return False
        *lines, rest = (self.partial.get(-1, b"") + content).split(b"\n")
        self.partial[-1] = rest
        for line in lines:
            request = messages.decode(line)
            if isinstance(request, messages.PrepareRun):
                self.others = OtherProcesses(request.fork_servers)
            if isinstance(request, messages.EndAll):
                self._sample_now()
                self._kill_all()
            elif type(request) in self.jobs:
                self._fork(selector, request)
            elif (answer := self.run_folder.serve(request)) is not None:
                self._send(answer)
        return True

    def _fork(self, selector: selectors.BaseSelector, request: Any) -> None:
        name = getattr(request, "task", type(request).__name__)
        reports, write_end = os.pipe()
        os.set_blocking(reports, False)
        parent = os.getpid()
        self.gpus.rest()
        self.kernel.begin()
        pid = os.fork()
        if pid == 0:
            self._be_child(request, Reporter(name, write_end), parent)
        os.close(write_end)
        self.children[pid] = Child(name, pid, reports, psutil.Process(pid))
        selector.register(reports, selectors.EVENT_READ)
        self._send(messages.Started(name=name, pid=pid))

    def _be_child(self, request: Any, reporter: Reporter, parent: int) -> None:
        """Everything that happens in the forked process; never returns."""
        status = 1
        try:
            # That of a task is fetched with its run; any other stays here.
            log = getattr(request, "log", self.run_folder.scratch / f"{reporter.name}.log")
            detach(parent, Path(log))
            # A crash inside TensorFlow leaves its Python stack in the log.
            faulthandler.enable()
            self.line.close()
            for child in self.children.values():
                os.close(child.reports)
            keep_from_forks(reporter.descriptor)
            self.jobs[type(request)](request, reporter)
            status = 0
        except BaseException as error:
            report_failure(reporter, error)
            with suppress(OSError):  # a full disk takes no log
                log_failure(error)
        finally:
            # Whoever left this function would do the fork server's work, and remove its files.
            with suppress(BaseException):  # of streams that are closed or cannot be written
                sys.stdout.flush()
                sys.stderr.flush()
            # TensorFlow's servers and thread pools have no clean shutdown.
            os._exit(status)

    def _relay(self, selector: selectors.BaseSelector, descriptor: int) -> bool:
        """Hand on what has come from a child; False if there is nothing more."""
        try:
            content = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not content:
            selector.unregister(descriptor)
            return False
        *lines, rest = (self.partial.get(descriptor, b"") + content).split(b"\n")
        self.partial[descriptor] = rest
        for line in lines:
            self._send_line(line + b"\n")
        return True

    def _reap(self, selector: selectors.BaseSelector) -> None:
        for child in list(self.children.values()):
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                kill_group(child.pid)  # as long as its number cannot be another's
            pid, status, usage = os.wait4(child.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                continue
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                event = "stopped" if os.WIFSTOPPED(status) else "continued"
                self._send(messages.Event(name=child.name, event=event, time=time.time()))
                continue
            self._take_leave(selector, child)
            self._explain_end(child, -os.waitstatus_to_exitcode(status))
            self._send(
                messages.Exited(
                    name=child.name,
                    pid=pid,
                    status=os.waitstatus_to_exitcode(status),
                    cpu_s=usage.ru_utime + usage.ru_stime,
                    peak_memory_bytes=usage.ru_maxrss * 1024,
                )
            )
        reap_orphans(self.children)

    def _take_leave(self, selector: selectors.BaseSelector, child: Child) -> None:
        """Hand on the last reports of a child that has ended; the last one takes all orphans along.

        What a child left running may hold its pipe open: the end of the pipe is not waited for.
        """
        while child.reports in selector.get_map() and self._relay(selector, child.reports):
            pass
        if child.reports in selector.get_map():
            selector.unregister(child.reports)
        if child.pid not in self.ended:
            self._sample_now()
        os.close(child.reports)
        self.partial.pop(child.reports, None)
        del self.children[child.pid]
        if not self.children:
            end_orphans()

    def _explain_end(self, child: Child, number: int) -> None:
        """Report why a signal ended a child, if it was not sent from here and the system tells."""
        text = "" if child.pid in self.ended else explain_end(number, self.kernel)
        if text:
            self._send(messages.Event(name=child.name, event="failed", time=time.time(), text=text))
        self.ended.discard(child.pid)

    def _sample_now(self) -> None:
        """What was measured last must lie between two samples."""
        self.next_sample = self.others.next_look = 0.0
        self._sample()

    def _sample(self) -> None:
        now = time.time()
        if not self.children or now < self.next_sample:
            return
        self.next_sample = now + SAMPLE_INTERVAL_S
        processes = {child.name: child.process for child in self.children.values()}
        sample = take_sample(now, processes, self.gpus.look(), self.others.look())
        self._send(messages.Sampled(sample=sample))

    def _kill_all(self) -> None:
        """Kill every child and its process group; a new child may not lead a group yet."""
        self.ended.update(self.children)
        for pid in self.children:
            for kill in (os.kill, os.killpg):
                with suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)

    def _begin_to_end(self) -> None:
        self.is_ending = True
        self._kill_all()
        wake_guard()

    def _terminate(self, *_: object) -> None:
        if self.is_ending:
            return  # its guard asks for what is being done, and would cut it off
        self._begin_to_end()
        self.run_folder.close()
        # Not as a failure: srun would kill the other hosts' servers before they have cleaned up.
        os._exit(0)

    def _send(self, message: object) -> None:
        self._send_line(messages.encode(message))

    def _send_line(self, line: bytes) -> None:
        try:
            self.line.sendall(line)
        except OSError:
            self._terminate()


@click.command()
@click.option("--socket", "descriptor", type=int, help="Inherited socket.")
@click.option("--connect", help="host:port,... of the launcher; the token is in the environment.")
@click.option("--stdio", is_flag=True, help="Speak over standard input and output.")
def main(descriptor: int | None, connect: str | None, stdio: bool) -> None:
    """Serve one launcher until it closes the line, which one of the options says."""
    handle_ending(lambda *_: sys.exit(0))  # until there are children; leaves contexts
    line = standard_streams() if stdio else open_line(descriptor, connect)
    if connect is not None:
        line.sendall(messages.encode(messages.Hello(token=os.environ.pop(messages.TOKEN, ""))))
    serving = go_on_guarded(line)
    try:
        with scratch_folder(scratch_parent()) as scratch:
            _serve(line, serving, scratch)
    except HostFault as fault:
        line.sendall(messages.encode(messages.Leaving(reason=str(fault).rstrip("."))))


def _serve(line: Line, serving: int, scratch: Path) -> None:
    """Import, say that all is ready, and serve."""
    # What a user has set up for Keras does not decide: another backend, another layout.
    os.environ |= {"KERAS_BACKEND": "tensorflow", "KERAS_HOME": str(scratch / "keras")}
    begin = time.monotonic()
    # Imported here, because it takes seconds, which are timed.
    with left_out(*UNUSED_BY_TASKS):
        from ps_allreduce.runner.forked_jobs import JOBS

    import_s = time.monotonic() - begin
    os.close(serving)
    nvml = load_nvml()
    facts = look_around(os.environ, nvml)
    ready = messages.Ready(
        version=messages.VERSION,
        program=program_digest(),
        import_s=import_s,
        pid=os.getpid(),
        scratch=str(scratch),
        facts=facts,
    )
    line.sendall(messages.encode(ready))
    # A child's garbage collector would walk over all that is imported, and copy every page.
    gc.collect()
    gc.freeze()
    gpus = GpuSampler(nvml, tuple(gpu.identity for gpu in facts.gpus))
    ForkServer(line, JOBS, RunFolder(scratch), gpus=gpus).serve()


if __name__ == "__main__":
    main()
