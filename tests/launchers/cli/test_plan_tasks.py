"""The plan of a pasted node list, as a user asks for it."""

from __future__ import annotations

import json
import re

import pytest

from launchers.__main__ import main
from ps_allreduce.cluster import TfConfig

ASKED = ["plan", "--nodelist", "n[9-11]", "--num-workers", "3", "--num-ps", "2"]


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def configs(text: str) -> dict[str, TfConfig]:
    found = re.findall(r"^(\w+:\d+) TF_CONFIG=(.*)$", text, re.MULTILINE)
    return {task: TfConfig.parse(config) for task, config in found}


def test_every_task_has_its_config_and_hosts_keep_their_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = said([*ASKED, "--layout", "colocated"], capsys)
    found = configs(text)
    assert list(found) == ["ps:0", "ps:1", "worker:0", "worker:1", "worker:2", "chief:0"]
    assert {task: str(config.task) for task, config in found.items()} == {t: t for t in found}
    assert len({json.dumps(config.cluster.as_dict()) for config in found.values()}) == 1
    workers = found["ps:0"].cluster.as_dict()["worker"]
    assert [address.split(":")[0] for address in workers] == ["n9", "n10", "n11"]
    assert [line.split(":")[0] for line in text.splitlines()[2:5]] == ["n9", "n10", "n11"]


def test_dedicated_servers_share_no_host_and_idle_hosts_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["plan", "--nodelist", "n[8-12]", "--num-workers", "2", "--num-ps", "2"]
    text = said([*words, "--layout", "dedicated"], capsys)
    assert "n10: ps:0 (port 2222)" in text
    assert "n11: ps:1 (port 2222)" in text
    assert "n12: idle" in text


def test_all_reduce_has_no_chief(capsys: pytest.CaptureFixture[str]) -> None:
    # Names can be pasted one to a line.
    text = said(["plan", "--nodelist", "n9\nn10\n", "--num-workers", "2"], capsys)
    assert list(configs(text)) == ["worker:0", "worker:1"]
    assert "n10: worker:1" in text


def test_the_list_of_the_present_job_is_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    assert "n2: worker:1" in said(["plan", "--num-workers", "2"], capsys)
