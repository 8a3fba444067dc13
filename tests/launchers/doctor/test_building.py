"""Every host builds the model that is to be trained, here as fork servers that pretend to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launchers.doctor import trials
from launchers.doctor.check_findings import Level
from launchers.doctor.checks.software import building as judge
from launchers.doctor.trials import build_everywhere
from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import HostServers
from ps_allreduce.errors import HostFault
from ps_allreduce.model_files import copy_files
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.workload import Workload
from tests.cluster import ADDRESSES, Cluster
from tests.fakes import OWN
from tests.launchers.doctor.doctor_facts import HOSTS, healthy
from tests.pretend import FAKE_SERVER, fake_server


@pytest.fixture
def servers() -> Iterator[HostServers]:
    """Three hosts, of which n1 cannot build any model."""
    ill = {"n1": fake_server("--job", "DescribeModel", "complain")}
    cluster = Cluster(dict.fromkeys(ADDRESSES, FAKE_SERVER) | ill)
    with cluster, cluster.servers(dict.fromkeys(cluster.hosts, 1), None) as servers:
        yield servers


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    """Of a user's own model, whose copies are here; the pretended model has a number per file."""
    (tmp_path / "mine.py").touch()
    digest = copy_files(tmp_path, ["mine.py"], tmp_path / "data")
    model = OwnModel(
        name=OWN.name, module="mine", function="build", digest=digest, has_dataset=True
    )
    return Workload(model=model, data=OwnDataset())


def test_a_host_that_cannot_build_a_model_says_why_and_the_others_build_it(
    servers: HostServers, workload: Workload, tmp_path: Path
) -> None:
    built = build_everywhere(servers, workload, tmp_path / "data", shares_files=True)
    findings = list(judge(healthy(HOSTS, building=built)))
    assert [(finding.level, finding.text) for finding in findings] == [
        (Level.OK, "n10: mine.py:build built in 1.5 s, 1 trainable parameters"),
        (Level.FAILURE, "n1: out of luck."),
        (Level.OK, "n9: mine.py:build built in 1.5 s, 1 trainable parameters"),
    ]
    assert "see what n1 lacks for mine.py:build" in findings[1].remedy


def test_hosts_that_share_no_files_are_sent_the_users_first(
    servers: HostServers, workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bring(client: ForkServerClient, model: OwnModel, data_dir: Path) -> None:
        assert (model, data_dir) == (workload.model, tmp_path / "data")
        if client.host == "n9":
            raise HostFault("no space left on n9.")

    monkeypatch.setattr(trials, "bring_copies", bring)
    built = build_everywhere(servers, workload, tmp_path / "data", shares_files=False)
    assert built.refused == {"n9": "no space left on n9.", "n1": "out of luck."}
    assert (built.built_s, built.parameters) == ({"n10": 1.5}, {"n10": 1})
