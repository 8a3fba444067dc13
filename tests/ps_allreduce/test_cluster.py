"""TF_CONFIG means exactly what TensorFlow takes it to mean."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ps_allreduce.cluster import ClusterSpec, Place, TaskId, TaskType, TfConfig
from tests.examples import fast

CLUSTER = ClusterSpec(
    {
        TaskType.PS: ("n9:5000", "n10:5000"),
        TaskType.WORKER: ("n9:5001", "n10:5001", "n11:5001"),
        TaskType.CHIEF: ("n9:5002",),
    }
)

# The layout of https://www.tensorflow.org/guide/distributed_training#TF_CONFIG.
GOLDEN = {
    "cluster": {
        "ps": ["n9:5000", "n10:5000"],
        "worker": ["n9:5001", "n10:5001", "n11:5001"],
        "chief": ["n9:5002"],
    },
    "task": {"type": "worker", "index": 2},
}


def test_tf_config_is_spelled_as_tensorflow_reads_it() -> None:
    assert json.loads(TfConfig(CLUSTER, TaskId(TaskType.WORKER, 2)).render()) == GOLDEN


def test_a_type_without_tasks_is_left_out() -> None:
    cluster = ClusterSpec({TaskType.WORKER: ("a:1",), TaskType.PS: ()})
    assert cluster.as_dict() == {"worker": ["a:1"]}


def test_tasks_come_in_the_order_of_the_specification() -> None:
    names = ["ps:0", "ps:1", "worker:0", "worker:1", "worker:2", "chief:0"]
    assert [str(task) for task in CLUSTER.tasks()] == names
    assert [TaskId.parse(name) for name in names] == list(CLUSTER.tasks())


@st.composite
def tf_configs(draw: st.DrawFn) -> TfConfig:
    kinds = draw(st.lists(st.sampled_from(TaskType), min_size=1, unique=True))
    hosts = st.text("abc019.-", min_size=1, max_size=12) | st.just("[::1]")
    pairs = draw(
        st.lists(
            st.tuples(hosts, st.integers(1, 65535)), min_size=len(kinds), max_size=9, unique=True
        )
    )
    groups: dict[TaskType, list[str]] = {kind: [] for kind in kinds}
    for position, (host, port) in enumerate(pairs):
        groups[kinds[position % len(kinds)]].append(f"{host}:{port}")
    cluster = ClusterSpec({kind: tuple(group) for kind, group in groups.items()})
    return TfConfig(cluster, draw(st.sampled_from(list(cluster.tasks()))))


@fast
@given(tf_configs())
def test_what_is_rendered_is_read_back(config: TfConfig) -> None:
    assert TfConfig.parse(config.render()) == config


def places(hosts: list[str]) -> list[Place]:
    return [Place.of(hosts, rank) for rank in range(len(hosts))]


def test_two_hosts_of_two_and_one_worker() -> None:
    first, second, third = places(["n1", "n1", "n2"])
    assert first.environment() == {
        "HOROVOD_RANK": "0",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "2",
    }
    assert (second.local_rank, second.cross_rank, second.cross_size) == (1, 0, 1)
    assert (third.rank, third.local_rank, third.local_size, third.cross_rank) == (2, 0, 1, 1)


@given(st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=9))
def test_places_are_those_of_a_grid(hosts: list[str]) -> None:
    found = places(hosts)
    assert [place.rank for place in found] == list(range(len(hosts)))
    for place, host in zip(found, hosts, strict=True):
        assert 0 <= place.local_rank < place.local_size == hosts.count(host)
        alike = [each for each in found if each.local_rank == place.local_rank]
        assert place.cross_size == len(alike)
        assert sorted(each.cross_rank for each in alike) == list(range(len(alike)))
