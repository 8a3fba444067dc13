"""What a launcher of several hosts refuses, finds out and has done before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchers.protocol import Capacity
from launchers.run.launcher import HostsLauncher
from ps_allreduce.errors import UserError
from ps_allreduce.point.architectures import ImageModel
from ps_allreduce.point.spread import Spread
from ps_allreduce.point.strategies import AllReduce
from ps_allreduce.point.workload import Workload
from tests.cluster import Cluster
from tests.fakes import make_experiment
from tests.pretend import GOOD, SHORT, driver_result, leave_results, pretending_server

REDUCED = make_experiment(AllReduce, measurement=SHORT, spread=Spread())


def test_hosts_that_are_too_few_are_told_before_anything_runs(cluster: Cluster) -> None:
    launcher = HostsLauncher(cluster, Path())
    four = make_experiment(AllReduce, 4, spread=Spread())
    launcher.check(REDUCED)
    with pytest.raises(UserError, match="4 hosts are needed but there are 3"):
        launcher.check(four)
    with pytest.raises(UserError, match="too large for this site"):
        launcher.check(make_experiment(AllReduce, 100))


@pytest.mark.parametrize(("one_machine", "cores"), [(False, 2), (True, 1)])
def test_cores_are_a_hosts_own_or_a_share_of_one_machine(
    cluster: Cluster, one_machine: bool, cores: int
) -> None:
    cluster.one_machine = one_machine
    launcher = HostsLauncher(cluster, Path())
    assert launcher.capacity() == Capacity(num_hosts=3, cores_per_host=cores)
    assert (launcher.job_id, launcher.time_left_s()) == ("7", 60.0)


def test_hosts_of_one_kind_are_described(cluster: Cluster) -> None:
    facts = HostsLauncher(cluster, Path()).host_facts()
    assert len(facts) == 3
    assert len({fact.kind for fact in facts}) == 1
    assert cluster.asked == [{"n10": 2, "n1": 2, "n9": 2}]


def test_this_machine_is_described_by_provenance(cluster: Cluster) -> None:
    cluster.one_machine = True
    assert HostsLauncher(cluster, Path()).host_facts() == ()
    assert cluster.asked == []


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


def test_a_model_is_described_once_on_the_first_host(cluster: Cluster) -> None:
    launcher = HostsLauncher(cluster, Path())
    for _ in range(2):
        (spec,) = launcher.describe(Workload(model=ImageModel(image_size=48)))
        assert (spec.name, spec.shape) == ("v", (48,))
    launcher.describe(Workload(model=ImageModel(image_size=64)))
    assert cluster.asked == [{"n10": 1}, {"n10": 1}]


@pytest.mark.parametrize(("shares_files", "count"), [(True, 1), (False, 3)])
def test_input_is_prepared_wherever_there_are_files_of_their_own(
    cluster: Cluster, tmp_path: Path, shares_files: bool, count: int
) -> None:
    cluster.shares_files = shares_files
    HostsLauncher(cluster, tmp_path).prepare(Workload())
    assert len(list(tmp_path.glob("prepared-*"))) == count


def test_images_are_converted_on_the_first_host(cluster: Cluster, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    counts = HostsLauncher(cluster, tmp_path).convert(
        Path("cats"), Path("out"), lambda done, total: heard.append((done, total))
    )
    assert counts == {"cats": 100, "out": 50}
    assert heard == [(100, 150)]
