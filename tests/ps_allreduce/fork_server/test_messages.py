"""What launcher and fork server say to each other is understood, and anything else refused."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.errors import LaunchError
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.fork_server import messages
from ps_allreduce.fork_server.messages import (
    CopiesSeen,
    FileRead,
    PutFile,
    ReadFile,
    SeekCopies,
    decode,
    encode,
)
from ps_allreduce.inspection import questions
from ps_allreduce.inspection.model_facts import FindModel, TryModel
from ps_allreduce.inspection.questions import MESSAGES
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.placement import VariableSpec
from ps_allreduce.point.strategies.base import Servers
from ps_allreduce.point.workload import Workload
from ps_allreduce.record.hosts import TcpCounters
from ps_allreduce.record.variables import RowsAsked
from ps_allreduce.serialization import to_json
from tests.examples import experiments, fast, seconds, workloads
from tests.fakes import FOUND, OWN, TRIED, make_experiment, make_facts, make_sample

SPEC = VariableSpec(name="conv/kernel", shape=(3, 3), dtype="float32", trainable=True)

SAMPLE = make_sample(
    1.5,
    cpu_s={"worker:0": 1.0},
    memory_bytes={"worker:0": 1 << 40},
    sent_bytes={"lo": 0},
    received_bytes={"lo": 9},
)

STATE = questions.HostState(
    busy_share=0.25,
    free_bytes=1 << 33,
    memory_limit_bytes=None,
    open_files=1024,
    digest="0badcafe",
    temporary=questions.TemporaryFolder(
        path="/tmp", asked="", file_system="ext4", free_bytes=1 << 40
    ),
    peers={"n10": questions.PeerSeen(resolved=("10.0.0.10",), reverse=("n10", "n10.local"))},
)

EXAMPLES: list[Any] = [
    messages.StartTask(
        task="worker:0",
        host="n9",
        tf_config='{"cluster": {}}',
        experiment=make_experiment(),
        cores=(0, 1),
        threads=2,
        environment={"CUDA_VISIBLE_DEVICES": ""},
        data_dir="/data/a b\nc",
        log="/log",
        result="/result",
        weights=None,
    ),
    messages.DescribeModel(workload=Workload(), data_dir="/data"),
    FindModel(root="/a", module="b.c", function="d", arguments=("e=1",)),
    TryModel(workload=Workload(model=OWN, data=OwnDataset()), data_dir="/data"),
    messages.CountRows(
        workload=Workload(), data_dir="/data", ways=(Servers(table_rows=RowRule.HASH),)
    ),
    messages.PrepareInput(workload=Workload(), data_dir="/data"),
    questions.ReceiveStream(address="10.0.0.1", token="abc"),
    questions.SendStream(address="a", port=4, token="abc", seconds=0.4),
    questions.TakeBursts(address="a", token="abc", senders=3, seconds=1.0),
    questions.SendBursts(address="10.0.0.1", port=40001, token="abc"),
    questions.ReceiveTraffic(task="r", address="10.0.0.1"),
    questions.SendTraffic(task="s", address="10.0.0.1", port=7, bits_per_s=2e8),
    questions.AnswerCalls(address="10.0.0.1", name="n9"),
    questions.CheckHost(
        peers=(questions.Peer(host="n10", name="n10.local", address="10.0.0.2", port=7),),
    ),
    questions.ShareFile(folder="/shared", own="n9", others=("n10",), within_s=9.5),
    questions.CountGpus(visible="GPU-0,GPU-1"),
    questions.MultiplyMatrices(size=1024, seconds=1.0),
    messages.PrepareRun(num_ports=3),
    messages.RunPrepared(ports=(40001, 40002, 40003), folder="/tmp/run-x"),
    ReadFile(path="/tmp/run-x/worker-0.log", offset=1 << 40, length=1 << 20),
    FileRead(content="AP8=", size=2),
    SeekCopies(data_dir="/data", digest=OWN.digest),
    PutFile(
        data_dir="/data", digest=OWN.digest, path="b/c.py", offset=7, content="AP8=", last=True
    ),
    CopiesSeen(whole=True, problem="no room"),
    messages.FinishRun(),
    messages.AskTime(),
    messages.TimeTold(time=1.7e9),
    messages.EndAll(),
    messages.Hello(token="secret"),
    messages.Leaving(reason="its temporary folder was deleted"),
    messages.Ready(
        version=3, program="1a2b", import_s=3.5, pid=7, scratch="/tmp/s", facts=make_facts("n9")
    ),
    messages.Started(name="worker:0", pid=7),
    messages.Event(
        name="worker:0", event="failed", time=1.0, text="line 1\nline 2 \u2028 \U0001f600"
    ),
    messages.TaskPlaced(name="worker:0", time=1.0, cores=(0, 1), gpus="GPU-0"),
    messages.TimeNeeded(seconds=2.5),
    messages.ModelDescribed(variables=(SPEC,), build_ns=9, kept_values=8, memory_bytes=1 << 40),
    messages.RowsCounted(
        asked=(RowsAsked(row_bytes=4, asked=9, unique=8, longest=32, union=8, per_server=(8.0,)),)
    ),
    messages.InputPrepared(name="PrepareInput"),
    FOUND,
    TRIED,
    STATE,
    questions.Answer(name="CheckHost", time=1.5),
    questions.Listening(port=40001),
    questions.StreamReceived(num_bytes=1 << 40, ns=7),
    questions.StreamSent(round_trip_ns=7),
    questions.BurstsSent(
        congestion="cubic", tcp=TcpCounters(sent=1, sent_again=2, probes=3, timeouts=4)
    ),
    questions.BurstsSent(congestion="bbr", tcp=None),
    questions.TrafficCarried(num_bytes=0),
    questions.FilesShared(written_ns=1, seen={"n10": 2}),
    questions.GpusCounted(count=2, problem=""),
    questions.MatricesMultiplied(ns=5),
    messages.Exited(name="ps:0", pid=7, status=-9, cpu_s=1.0, peak_memory_bytes=1 << 40),
    messages.Sampled(sample=SAMPLE),
]


def test_every_kind_of_message_is_tried() -> None:
    assert {type(example) for example in EXAMPLES} == set(MESSAGES.values())


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_line_and_understood(message: object) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message
    assert to_json(decode(line)) == to_json(message)  # whose it is, and when, are not compared


@fast
@given(st.text(), st.text(), seconds(), st.booleans())
def test_an_event_with_any_text_is_understood(
    name: str, text: str, time: float, user_error: bool
) -> None:
    event = messages.Event(name=name, event="failed", time=time, text=text, user_error=user_error)
    assert decode(encode(event)) == event


@fast
@given(experiments(), workloads(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_any_request_is_understood(
    experiment: Any, workload: Workload, environment: dict[str, str]
) -> None:
    start = replace(EXAMPLES[0], experiment=experiment, environment=environment, weights="w.npz")
    for request in (start, messages.DescribeModel(workload=workload, data_dir="")):
        assert decode(encode(request)) == request


GARBAGE = [
    b"",
    b"\n",
    b"garbage",
    b"\xff\xfe\x00",
    b"[]",
    b"null",
    b"7",
    b'"text"',
    b"{}",
    b'{"type": "Nonsense"}',
    b'{"type": 7}',
    b'{"type": ["EndAll"]}',
    b'{"type": "EndAll", "extra": 1}',
    b'{"type": "Started", "name": "x"}',
    b'{"type": "Started", "name": "x", "pid": "7"}',
    b'{"type": "StartTask"',
    b'{"type": "DescribeModel", "log": "", "workload": {"model": "Nonsense"}}',
]


@pytest.mark.parametrize("line", GARBAGE)
def test_garbage_is_refused(line: bytes) -> None:
    with pytest.raises(LaunchError, match=f"not a message of version {messages.VERSION}"):
        decode(line)


@fast
@given(st.binary(max_size=60))
def test_no_line_breaks_the_reader(line: bytes) -> None:
    with pytest.raises(LaunchError):
        decode(line)


def test_a_long_line_is_quoted_in_part() -> None:
    with pytest.raises(LaunchError) as caught:
        decode(b"x" * 100_000)
    assert len(str(caught.value)) < 500


def test_a_message_without_a_needed_key_is_refused() -> None:
    for kind in MESSAGES.values():
        needed = [f for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
        if needed:
            with pytest.raises(LaunchError):
                decode(f'{{"type": "{kind.__name__}"}}'.encode())
