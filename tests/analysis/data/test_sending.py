"""Results that are sent tell no names and addresses, and can be analysed like others."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.data.load import load
from analysis.data.sending import Hidden, hidden_in, pack, unpack
from ps_allreduce.errors import UserError
from ps_allreduce.point.strategies import AllReduce, Single
from ps_allreduce.record.hosts import Gpu, Interface
from ps_allreduce.record.records import RunRecord, TaskRecord
from tests.analysis.builders import invoke, links_between, run, save_all
from tests.fakes import make_experiment, make_facts, make_host, make_sample

SECRETS = (
    "anna",
    "node17",
    "node18",
    "login3.lab.org",
    "10.1.2.3",
    "fe-machine",
    "isle4",
    "GPU-77",
)


def a_run(repetition: int) -> RunRecord:
    """Two workers on hosts whose names stand wherever names stand."""
    loopback = Interface(name="lo", address="127.0.0.1", prefix_length=8)
    ethernet = Interface(name="eth0", address="10.1.2.3", prefix_length=24)
    facts = make_facts(
        "node17.lab.org",
        scheduler_name="node17",
        machine="fe-machine",
        switch="isle4.leaf1",
        interfaces=(loopback, ethernet),
        gpus=(Gpu(identity="GPU-77"),),
    )
    hosts = (make_host("node17", facts=facts, address="10.1.2.3"), make_host("node18"))
    tasks = [
        TaskRecord(task=f"worker:{n}", host=host.name, address="10.1.2.3:5", cores=(0,), pid=1)
        for n, host in enumerate(hosts)
    ]
    made = run(make_experiment(AllReduce, num_workers=2), 100.0 + repetition, repetition)
    provenance = replace(
        made.provenance, host="login3.lab.org", command="python /home/anna/run.py --host 10.9.8.7"
    )
    return replace(
        made,
        hosts=hosts,
        tasks=tuple(tasks),
        links=tuple(links_between(("node17", "node18"), 1e9)),
        samples=(make_sample(host="node18"),),
        provenance=provenance,
        warnings=("node17 (10.1.2.3) was busy, see /home/anna/results/log.txt",),
    )


def test_what_is_sent_tells_no_names_and_gives_the_same_table(tmp_path: Path) -> None:
    sweep = tmp_path / "here" / "compare"
    save_all(sweep, [a_run(0), a_run(1), run(make_experiment(Single), 90.0)])
    target = tmp_path / "sent.zip"
    pack(sweep.parent, target, {"doctor.txt": "node18 at 10.1.2.3: ok, /home/anna/x"}, ["anna"])
    with zipfile.ZipFile(target) as packed:
        texts = {name: packed.read(name) for name in packed.namelist()}
    for secret in (*SECRETS, "10.9.8.7", "/home"):
        assert [name for name, text in texts.items() if secret.encode() in text] == []
    assert b"worker:1" in next(text for name, text in texts.items() if "1-1.json" in name)
    folder = unpack(target)
    told = (folder / "doctor.txt").read_text()
    assert re.fullmatch(r"host\d at 198\.18\.0\.\d: ok, x", told)
    sent, home = load(folder), load(sweep)
    there, here = (
        table.drop(columns=["hosts", "warnings"]).reset_index(drop=True) for table in (sent, home)
    )
    pd.testing.assert_frame_equal(there, here)
    assert any(re.fullmatch(r"host\d host\d", names) for names in sent["hosts"])
    with pytest.raises(UserError, match="is there already: report on that folder"):
        unpack(target)


def test_a_report_is_made_of_a_file_that_was_sent(tmp_path: Path) -> None:
    save_all(tmp_path / "here" / "compare", [a_run(0), a_run(1)])
    pack(tmp_path / "here", tmp_path / "sent.zip", {}, [])
    assert "report.html" in invoke("report", str(tmp_path / "sent.zip"))
    (tmp_path / "no.zip").write_text("no archive")
    with pytest.raises(UserError, match=r"no\.zip cannot be unpacked"):
        unpack(tmp_path / "no.zip")


@given(st.sets(st.from_regex(r"[a-z]{1,3}[0-9]{0,2}", fullmatch=True), min_size=1), st.text())
def test_no_name_is_left_whatever_stands_around_it(names: set[str], text: str) -> None:
    hidden = Hidden(names={name: f"HOST{number}" for number, name in enumerate(sorted(names))})
    for name in names:
        told = hidden.text(f"{text} {name}.{name}/{name}:1")
        assert f" {name}." not in told
        assert f"/{name}:" not in told


def test_hosts_that_are_called_like_tasks_do_not_change_tasks() -> None:
    record = replace(a_run(0), hosts=(make_host("worker"),))
    hidden = hidden_in([record], [])
    assert hidden.value({"task": "worker:0", "host": "worker"}) == {
        "task": "worker:0",
        "host": hidden.names["worker"],
    }
