"""Runs on several hosts: real fork servers that stand for hosts, tasks that only pretend."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launchers.fork_servers.client import SILENT_S, ForkServerClient
from launchers.run import follow
from launchers.run.conclude import LaunchedRun
from launchers.run.launcher import Capacity, HostsLauncher
from ps_allreduce.cluster import TfConfig
from ps_allreduce.errors import UserError
from ps_allreduce.fork_server.messages import AskTime, TimeTold
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.point.models.trained import ImageModel
from ps_allreduce.point.network import EmulatedNetwork
from ps_allreduce.point.resources import Coordinator, Device, Resources, Spread
from ps_allreduce.point.strategies import AllReduce, Single, SynchronousServers
from ps_allreduce.point.workload import EmulatedCompute, Precision, Workload
from ps_allreduce.record.provenance import default_congestion
from ps_allreduce.record.records import Status
from tests.cluster import ADDRESSES, Cluster, launch_tasks
from tests.fakes import make_experiment
from tests.pretend import (
    FOREVER,
    GOOD,
    SHORT,
    WAIT,
    driver_result,
    leave_results,
    pretending_server,
)
from tests.talk import assert_gone, is_gone

REDUCED = make_experiment(AllReduce, measurement=SHORT, spread=Spread())

Launch = Callable[..., LaunchedRun]


@pytest.fixture
def launch(cluster: Cluster, folder: Path) -> Launch:
    def launch(code: str, experiment: Experiment = REDUCED, **more: Any) -> LaunchedRun:
        # Not entered: the fork servers are kept for the next test.
        return launch_tasks(HostsLauncher(cluster, folder), folder, code, experiment, **more)

    return launch


def test_a_run_on_two_hosts_is_complete(launch: Launch, cluster: Cluster) -> None:
    stages: list[str] = []
    run = launch(GOOD, progress=stages.append)
    assert (run.status, run.reason, run.job_id) == (Status.OK, "", "7")
    assert run.metrics is not None
    assert [(host.name, host.address) for host in run.hosts] == [
        ("n10", "127.0.0.10"),
        ("n1", "127.0.0.1"),
    ]
    assert [(task.task, task.host) for task in run.tasks] == [
        ("worker:0", "n10"),
        ("worker:1", "n1"),
    ]
    assert [task.address.split(":")[0] for task in run.tasks] == ["127.0.0.10", "127.0.0.1"]
    assert [task.exit for task in run.tasks] == [0, 0]
    assert run.log == "==> worker:0 <==\ntrained\n\n==> worker:1 <==\ntrained\n"
    # The machine that plays both hosts has one name.
    assert {sample.host for sample in run.samples} == {"n10", "n1"}
    assert stages[0] == "starting on n10, n1"
    assert cluster.asked == [{"n10": 1, "n1": 1}]


def test_links_and_clocks_of_its_hosts_are_measured_before_a_run(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = {"n10": 0.25, "n1": -3.0}
    monkeypatch.setattr(follow, "clock_offset", lambda client: ahead[client.host])
    run = launch(GOOD)
    assert {host.name: host.clock_offset_s for host in run.hosts} == ahead
    assert [(link.source, link.target) for link in run.links] == [("n10", "n1"), ("n1", "n10")]
    assert all(link.bits_per_s > 0 and link.round_trip_s > 0 for link in run.links)


def test_a_run_that_hangs_is_ended(launch: Launch, folder: Path) -> None:
    run = launch(FOREVER + WAIT, deadline_s=2.0)
    assert run.status is Status.TIMED_OUT
    assert run.reason == "not finished after 2 s; last heard of: connected"
    assert survivors(folder) == []


@pytest.mark.parametrize(
    ("needed_s", "limit_s", "ends_after"),
    [(2.0, 60.0, "3"), (1e6, 2.0, "2"), (0.1, 60.0, "1")],
)
def test_a_run_with_long_steps_is_given_their_time_up_to_a_limit(
    launch: Launch, needed_s: float, limit_s: float, ends_after: str
) -> None:
    tell = (
        "from ps_allreduce.fork_server.messages import TimeNeeded; "
        f"report(TimeNeeded(seconds={needed_s}))"
    )
    run = launch(FOREVER + tell + WAIT, deadline_s=1.0, limit_s=limit_s)
    assert run.status is Status.TIMED_OUT
    assert run.reason.startswith(f"not finished after {ends_after}")
    assert run.reason.endswith("last heard of: connected")


def test_measuring_links_is_no_part_of_bringing_a_run_up(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = 3600.0
    clocks = SimpleNamespace(**vars(time))

    def measure(*_: object) -> tuple[()]:
        clocks.time = lambda: time.time() + hour
        return ()

    monkeypatch.setattr(follow, "time", clocks)
    monkeypatch.setattr(follow, "measure_links", measure)
    run = launch(WHEN_BOTH_ARE_UP + "if name == 'worker:1': raise ValueError" + WAIT)
    assert run.phases.bring_up_s is not None
    # The clocks of the tasks know nothing of the hour that measuring seemed to take.
    assert -hour < run.phases.bring_up_s < -hour + 60


def test_a_run_on_one_host_needs_no_links(launch: Launch, cluster: Cluster) -> None:
    single = make_experiment(Single, measurement=SHORT, spread=Spread())
    run = launch(GOOD, single)
    assert (run.status, run.links, [host.name for host in run.hosts]) == (Status.OK, (), ["n10"])
    assert cluster.asked == [{"n10": 1}]


def test_every_task_is_told_its_place_and_its_hosts_own_name(launch: Launch, folder: Path) -> None:
    # Hosts are called n10 and n1 here; the machine that plays them has another name.
    code = "import socket; assert request.host == socket.gethostname()\n"
    run = launch(code + "open(f'{out}/{name}.config', 'w').write(request.tf_config)\n" + GOOD)
    assert run.reason == ""
    configs = [TfConfig.parse(path.read_text()) for path in sorted(folder.glob("*.config"))]
    assert [str(config.task) for config in configs] == ["worker:0", "worker:1"]
    assert configs[0].cluster == configs[1].cluster
    assert [configs[0].cluster.address(c.task) for c in configs] == [t.address for t in run.tasks]


def test_servers_and_a_chief_on_a_host_of_its_own_that_ends_them(
    launch: Launch, cluster: Cluster, folder: Path
) -> None:
    served = make_experiment(
        SynchronousServers,
        measurement=SHORT,
        num_workers=1,
        num_ps=1,
        spread=Spread(coordinator=Coordinator.OWN_HOST),
    )
    code = FOREVER + "\nif name != 'chief:0':" + WAIT.replace("\n", "\n    ", 1) + GOOD
    run = launch(code, served)
    assert [(task.task, task.host, task.exit) for task in run.tasks] == [
        ("ps:0", "n10", None),
        ("worker:0", "n10", None),
        ("chief:0", "n1", 0),
    ]
    assert all(task.cpu_s is not None for task in run.tasks)
    assert survivors(folder) == []
    ports = [task.address for task in run.tasks]
    assert len(set(ports)) == 3
    assert cluster.asked == [{"n10": 1, "n1": 1}]


def started(folder: Path) -> list[int]:
    """The processes of the tasks that got so far."""
    pids = [int(path.read_text()) for path in folder.glob("*.pid")]
    assert pids
    return pids


def survivors(folder: Path) -> list[int]:
    return [pid for pid in started(folder) if not is_gone(pid)]


def test_a_failure_on_one_host_ends_the_tasks_of_all(launch: Launch, folder: Path) -> None:
    run = launch(FOREVER + "if name == 'worker:1': raise ValueError('no luck')" + WAIT)
    assert (run.status, run.reason) == (Status.FAILED, "worker:1: ValueError: no luck")
    assert run.host_fault == ""
    assert "Traceback" in run.log
    assert [task.exit for task in run.tasks] == [None, 1]
    assert survivors(folder) == []


WHEN_BOTH_ARE_UP = FOREVER.replace(
    "open(", "while name == 'worker:1' and not os.path.exists(f'{out}/worker:0.pid'): pass\nopen("
)


def test_a_lost_host_ends_the_run_with_its_name_and_the_next_run_works(
    launch: Launch, cluster: Cluster, folder: Path
) -> None:
    cluster.said = "job 7 lost a node (NODE_FAIL)"
    code = WHEN_BOTH_ARE_UP + "print('hello', flush=True)\n"
    run = launch(code + "if name == 'worker:1': os.kill(os.getppid(), 9)" + WAIT)
    assert (run.status, run.host_fault) == (Status.INTERRUPTED, run.reason)
    assert run.reason == (
        "the fork server on n1, from which its tasks are forked, ended; "
        "job 7 lost a node (NODE_FAIL)"
    )
    assert [(task.host, task.exit) for task in run.tasks] == [("n10", None), ("n1", None)]
    assert run.tasks[0].cpu_s is not None
    assert run.tasks[1].cpu_s is None
    assert "==> worker:0 <==\nhello" in run.log
    assert_gone(started(folder))
    cluster.said = ""
    assert launch(GOOD).reason == ""


def test_a_fork_server_that_is_stopped_is_named_killed_and_replaced(
    launch: Launch, folder: Path
) -> None:
    begin = time.monotonic()
    code = WHEN_BOTH_ARE_UP + "if name == 'worker:1': os.kill(os.getppid(), 19)" + WAIT
    run = launch(code, deadline_s=2.0)
    assert time.monotonic() - begin < 2.0 + 2 * SILENT_S
    assert run.reason == "the fork server on n1 does not answer any more."
    assert (run.status, run.host_fault) == (Status.INTERRUPTED, run.reason)
    assert_gone(started(folder))
    assert launch(GOOD).reason == ""


def stop(client: ForkServerClient) -> None:
    os.kill(client.ready.pid, signal.SIGSTOP)


def tidy_up(client: ForkServerClient) -> None:
    shutil.rmtree(client.ready.scratch)


@pytest.mark.parametrize("fault", [stop, tidy_up])
def test_what_happens_to_a_fork_server_between_runs_costs_no_run(
    launch: Launch, cluster: Cluster, fault: Callable[[ForkServerClient], None]
) -> None:
    launch(GOOD)
    client = cluster.running["n1"].client()
    fault(client)
    assert launch(GOOD).reason == ""
    assert_gone([client.ready.pid])


def test_a_folder_that_is_deleted_under_a_run_is_a_fault_of_the_host(launch: Launch) -> None:
    code = "if name == 'worker:1': __import__('shutil').rmtree(os.path.dirname(request.log))"
    run = launch(FOREVER + code + WAIT)
    assert run.host_fault == "the fork server on n1 ended: its temporary folder was deleted."
    assert launch(GOOD).reason == ""


def test_a_task_that_is_stopped_is_named_and_not_who_waits_for_it(launch: Launch) -> None:
    stop = "if name == 'worker:1': os.kill(os.getpid(), 19)\n"
    run = launch(WHEN_BOTH_ARE_UP + stop + WAIT, deadline_s=2.0)
    assert run.reason == "not finished after 2 s; worker:1 was stopped by a signal"
    miss = "if name == 'worker:0': time.sleep(0.5); raise ValueError('no answer')\n"
    run = launch(WHEN_BOTH_ARE_UP + stop + miss + WAIT)
    assert run.reason == "worker:1 was stopped by a signal"


def test_a_full_disk_is_no_failure_of_the_run(launch: Launch) -> None:
    run = launch("raise OSError(28, 'No space left on device')")
    assert run.host_fault.endswith("OSError: [Errno 28] No space left on device")


def test_hosts_that_do_not_come_up_are_no_failure_of_the_run(
    launch: Launch, cluster: Cluster
) -> None:
    cluster.broken = "no fork server came up on n1: TensorFlow could not be imported there.\nlog"
    run = launch(GOOD)
    assert (run.status, run.host_fault) == (Status.INTERRUPTED, run.reason)
    assert run.reason == "no fork server came up on n1: TensorFlow could not be imported there."
    assert (run.tasks, run.hosts) == ((), ())


def test_a_run_whose_job_is_over_is_interrupted_and_has_not_failed(
    launch: Launch, cluster: Cluster
) -> None:
    cluster.over, cluster.said = True, "job 7 reached its time limit (TIMEOUT)"
    run = launch("raise ValueError('lost')")
    assert run.status is Status.INTERRUPTED
    assert run.reason.endswith(cluster.said)
    cluster.broken = "no fork server called"
    assert launch(GOOD).host_fault == ""
    cluster.broken = ""
    assert launch(GOOD).status is Status.OK


def test_an_interruption_is_explained_by_the_scheduler(
    launch: Launch, cluster: Cluster, folder: Path
) -> None:
    cluster.said = "job 7 was pre-empted by another job (PREEMPTED)"

    def interrupt(_: str) -> None:
        if len(list(folder.glob("*.pid"))) == 2:
            raise KeyboardInterrupt

    run = launch(FOREVER + WAIT, progress=interrupt)
    assert (run.status, run.reason) == (Status.INTERRUPTED, cluster.said)
    assert survivors(folder) == []


def test_runs_leave_nothing_on_any_host(launch: Launch, cluster: Cluster) -> None:
    launch(GOOD)
    with cluster.servers({"n10": 1, "n1": 1}, None) as servers:
        for client in servers.clients.values():
            client.answer(AskTime(), TimeTold)  # the request before it has been served
            assert list(Path(client.ready.scratch).glob("run-*")) == []


def test_addresses_are_looked_up_where_the_site_knows_none(
    launch: Launch, cluster: Cluster
) -> None:
    cluster.addresses = dict.fromkeys(ADDRESSES, None)
    run = launch(GOOD, replace(REDUCED, interface="lo"))
    assert [host.address for host in run.hosts] == ["127.0.0.1", "127.0.0.1"]
    assert all(host.interface is not None for host in run.hosts)
    with pytest.raises(UserError, match=r"host n10 has no interface ib7; it has: .*lo"):
        launch(GOOD, replace(REDUCED, interface="ib7"))


def test_congestion_control_is_a_fact_of_hosts_unless_a_network_states_it(
    launch: Launch, cluster: Cluster
) -> None:
    network = EmulatedNetwork(num_hosts=2, bits_per_s=None, congestion="reno")
    stated = launch(GOOD, replace(REDUCED, launcher="emulated", network=network))
    told = [[host.facts.congestion for host in run.hosts] for run in (launch(GOOD), stated)]
    assert told == [[default_congestion()] * 2, [""] * 2]


def test_hosts_that_share_one_machine_share_its_cores(launch: Launch, cluster: Cluster) -> None:
    cluster.one_machine = True
    assert [task.cores for task in launch(GOOD).tasks] == [(0,), (1,)]
    three = make_experiment(AllReduce, 3, measurement=SHORT, spread=Spread())
    run = launch(FOREVER + "raise ValueError" + WAIT, three)
    assert [task.cores for task in run.tasks] == [(0, 1)] * 3
    assert (run.oversubscribed, run.total_cores) == (True, 2)


def test_hosts_that_are_too_few_are_told_before_anything_runs(cluster: Cluster) -> None:
    launcher = HostsLauncher(cluster, Path())
    four = make_experiment(AllReduce, 4, spread=Spread())
    launcher.check(REDUCED)
    with pytest.raises(UserError, match="4 hosts are needed but there are 3"):
        launcher.check(four)
    with pytest.raises(UserError, match="too large for this site"):
        launcher.check(make_experiment(AllReduce, 100))


@pytest.mark.parametrize(("one_machine", "cores", "shared"), [(False, 2, None), (True, 1, 2)])
def test_cores_are_a_hosts_own_or_a_share_of_one_machine(
    cluster: Cluster, one_machine: bool, cores: int, shared: int | None
) -> None:
    cluster.one_machine = one_machine
    launcher = HostsLauncher(cluster, Path())
    assert launcher.capacity() == Capacity(num_hosts=3, cores_per_host=cores, shared_cores=shared)
    assert (launcher.job_id, launcher.time_left_s()) == ("7", 60.0)


def test_hosts_are_described_unless_they_are_this_machine(
    cluster: Cluster,
) -> None:
    facts = HostsLauncher(cluster, Path()).host_facts()
    assert len(facts) == 3
    assert len({fact.kind for fact in facts}) == 1
    assert cluster.asked == [{"n10": 2, "n1": 2, "n9": 2}]

    cluster.one_machine = True
    cluster.asked.clear()
    assert HostsLauncher(cluster, Path()).host_facts() == ()
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"interface": "nope0"}, "host n10 has no interface nope0; it has: lo"),
        ({"resources": Resources(device=Device.GPU)}, "has 0 GPUs for 1 workers"),
        ({"interface": "lo"}, ""),
    ],
)
def test_what_hosts_do_not_have_is_refused_before_a_run(
    cluster: Cluster, folder: Path, changes: dict[str, Any], told: str
) -> None:
    launcher, point = HostsLauncher(cluster, folder), replace(REDUCED, **changes)
    if not told:
        launcher.check(point)
        return
    for _ in range(2):
        with pytest.raises(UserError, match=told):
            launcher.check(point)
    assert len(cluster.asked) == 1


def test_hosts_of_different_kinds_are_refused_unless_that_is_asked_for(folder: Path) -> None:
    words = {
        "n10": pretending_server(folder),
        "n1": pretending_server(folder, "--other-kind"),
    }
    (folder / "task.py").write_text(GOOD)
    leave_results(folder, driver_result(0), driver_result(1))
    with Cluster(words) as mixed:
        with pytest.raises(
            UserError, match=r"of 2 kinds: .* and elsewhere differ in cpu_model .* --mixed-hosts"
        ):
            HostsLauncher(mixed, folder).host_facts()
        with pytest.raises(UserError, match="the hosts are of 2 kinds"):
            HostsLauncher(mixed, folder).launch(REDUCED, deadline_s=20.0, progress=lambda _: None)
        launcher = HostsLauncher(mixed, folder, mixed_hosts=True)
        assert len(launcher.host_facts()) == 2
        assert launcher.launch(REDUCED, deadline_s=20.0, progress=lambda _: None).reason == ""


def test_hosts_named_for_servers_may_be_of_another_kind(folder: Path) -> None:
    words = {
        "n10": pretending_server(folder),
        "n1": pretending_server(folder, "--other-kind"),
    }
    with Cluster(words) as cluster:
        cluster.num_ps_hosts = 1
        launcher = HostsLauncher(cluster, folder)
        assert len(launcher.host_facts()) == 2
        capacity = launcher.capacity()
    assert (capacity.num_hosts, capacity.num_ps_hosts) == (1, 1)


def test_a_model_is_described_once_on_the_first_host(cluster: Cluster) -> None:
    launcher = HostsLauncher(cluster, Path())
    for _ in range(2):
        (spec,) = launcher.describe(Workload(model=ImageModel(image_size=48)))
        assert (spec.name, spec.shape) == ("v", (48,))
    launcher.describe(Workload(model=ImageModel(image_size=64)))
    assert cluster.asked == [{"n10": 1}, {"n10": 1}]


def test_a_batch_that_no_memory_holds_is_refused_where_the_model_is_known(
    cluster: Cluster,
) -> None:
    """The pretended model keeps 192 kB of an example, and its host has 1 GB."""
    fits, large = (batch_of(REDUCED, each) for each in (2_600, 5_300))
    launcher = HostsLauncher(cluster, Path())
    launcher.check(large)
    launcher.describe(large.workload)
    launcher.check(fits)
    with pytest.raises(UserError, match=r"at least 1\.0 GB in a worker, which has 1\.0 GB of mem"):
        launcher.check(large)
    launcher.check(batch_of(REDUCED, 5_300, precision=Precision.MIXED_BFLOAT16))
    launcher.check(batch_of(REDUCED, 5_300, emulated=EmulatedCompute(forward_s=1, backward_s=1)))
    cluster.one_machine = True
    with pytest.raises(UserError, match="each of 2 workers, which share"):
        launcher.check(batch_of(REDUCED, 2_700))


def batch_of(own: Experiment, batch: int, **changes: Any) -> Experiment:
    load = replace(own.workload, model=ImageModel(image_size=48), batch_per_worker=batch, **changes)
    return replace(own, workload=load)


@pytest.mark.parametrize(("shares_files", "count"), [(True, 1), (False, 3)])
def test_input_is_prepared_wherever_there_are_files_of_their_own(
    cluster: Cluster, tmp_path: Path, shares_files: bool, count: int
) -> None:
    cluster.shares_files = shares_files
    HostsLauncher(cluster, tmp_path).prepare(Workload())
    assert len(list(tmp_path.glob("prepared-*"))) == count
