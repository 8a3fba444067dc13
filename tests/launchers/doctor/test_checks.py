"""What the doctor says about hosts with which something is wrong: a golden holds its sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from launchers.doctor.check_findings import Finding, Sharing, SiteFacts
from launchers.doctor.checks import examine
from launchers.doctor.checks.speed import hosts_with_slow_links, slow_links, slower_than_others
from ps_allreduce.record.hosts import Gpu, Interface, TcpCounters
from ps_allreduce.record.records import LinkRecord
from tests.examples import fast
from tests.fakes import make_facts
from tests.goldens import golden
from tests.launchers.doctor import doctor_facts as made
from tests.launchers.doctor.doctor_facts import (
    GIB,
    HOSTS,
    VERSIONS,
    bursts,
    healthy,
    host_check,
    with_host,
    with_peer,
    with_state,
)

WELL = healthy()

ALONE = ("n10",)


def told(host: str = "n9", facts: SiteFacts = WELL, **changes: Any) -> SiteFacts:
    return with_host(facts, host, facts=replace(facts.checked[host].facts, **changes))


def versions(host: str, **changes: str) -> SiteFacts:
    return told(host, versions={**WELL.checked[host].facts.versions, **changes})


def temporary(**changes: Any) -> SiteFacts:
    return with_state(WELL, "n9", temporary=replace(WELL.states["n9"].temporary, **changes))


def on_gpus(number: int = 4, facts: SiteFacts = WELL, host: str = "n9", **seen: Any) -> SiteFacts:
    cards = tuple(Gpu(identity=str(index), model="A100") for index in range(number))
    return with_host(told(host, facts, gpus=cards), host, **({"gpus_of_worker": number} | seen))


def sharing(**changes: Any) -> SiteFacts:
    assert WELL.sharing is not None
    return healthy(sharing=replace(WELL.sharing, **changes))


def slow(pairs: dict[tuple[str, str], float], hosts: tuple[str, ...] = HOSTS) -> SiteFacts:
    """Links of which some carry less."""
    every = made.links(hosts)
    rates = [pairs.get((one.source, one.target), one.bits_per_s) for one in every]
    links = [replace(one, bits_per_s=rate) for one, rate in zip(every, rates, strict=True)]
    return healthy(hosts, links=tuple(links))


def everywhere(facts: SiteFacts, **state: Any) -> SiteFacts:
    for host in facts.hosts:
        facts = with_state(facts, host, **state)
    return facts


def clocks(facts: SiteFacts = WELL, **offsets: float) -> SiteFacts:
    for host, offset_s in offsets.items():
        facts = with_host(facts, host, clock_offset_s=offset_s)
    return facts


def many_without_names() -> SiteFacts:
    facts = healthy([f"n{number}" for number in range(1, 21)])
    for host in facts.hosts:
        for other in facts.states[host].peers:
            facts = with_peer(facts, host, other, resolved=())
    return facts


UNREACHED = with_peer(WELL, "n10", "n9", unreached="timed out")
TWO_UNREACHED = with_peer(UNREACHED, "n1", "n9", unreached="timed out")
NO_NAME = with_peer(WELL, "n10", "n1", resolved=())
OTHER = told(cpu_model="An older processor")
SMALL = replace(told(cpu_model="A small processor", cores=(0,)), ps_hosts=("n9",))
OLDER = dict.fromkeys(WELL.checked["n9"].facts.versions, "0.1")
FAST = Interface(name="ib0", address="10.1.0.1", prefix_length=16)
INTERFACES = (*WELL.checked["n10"].facts.interfaces, FAST)
USER_SITE = "/home/u/.local/lib"
FEW = replace(bursts(), tcp=TcpCounters(sent=100, sent_again=9, probes=0, timeouts=0))
UNSEEN = {"n10": {"n1": 0.02}, "n1": {"n10": 0.02, "n9": 0.02}, "n9": {"n10": 0.0, "n1": 0.0}}
LATE = {"n10": {"n1": 12.0, "n9": 0.1}, "n1": {"n10": 0.1, "n9": 0.1}}

#: What is wrong, or looks so, and the facts that tell it.
SITUATIONS: dict[str, SiteFacts] = {
    "servers do not come up": healthy(
        checked={},
        sharing=None,
        flops={},
        links=(),
        bursts=None,
        not_started="no fork server came up on n9: TensorFlow could not be imported there.",
    ),
    "a host stops answering": replace(WELL, troubles={"n9": "the fork server on n9 ended"}),
    "a slow import": with_host(WELL, "n1", import_s=45.0),
    "three imports on one machine": replace(with_host(WELL, "n1", import_s=45.0), one_machine=True),
    "another version": versions("n9", numpy="2.2.0"),
    "a package that others lack": versions("n10", psutil="7.0"),
    "other versions here": replace(WELL, own_versions=VERSIONS | {"numpy": "1.26.4"}),
    "another kernel": versions("n9", kernel="5.14"),
    "another checkout": with_state(WELL, "n9", digest="deadbeef"),
    "another checkout here": replace(WELL, own_digest="deadbeef"),
    "packages of the user": with_state(
        WELL, "n9", user_modules=("numpy", "keras"), user_site=USER_SITE
    ),
    "a door to packages of the user": with_state(WELL, "n9", user_site=USER_SITE),
    "modules from elsewhere, locked": with_state(
        WELL, "n9", outside_modules=("psutil",), locked=True
    ),
    "modules from elsewhere": with_state(WELL, "n9", outside_modules=("psutil",), locked=False),
    "an unknown name": NO_NAME,
    "a name of loopback": with_peer(WELL, "n10", "n1", resolved=("127.0.1.1",)),
    "an address without a name": with_peer(WELL, "n10", "n1", reverse=()),
    "an address with another name": with_peer(WELL, "n10", "n1", reverse=("n9.cluster",)),
    "a slow look-up": with_peer(WELL, "n10", "n1", lookup_s=5.2),
    "two troubles with names": with_peer(NO_NAME, "n9", "n1", reverse=()),
    "a name for every network": with_peer(
        WELL, "n10", "n1", reverse=("N1-ib0.cluster",), resolved=("10.9.0.1",)
    ),
    "twenty hosts without names": many_without_names(),
    "names on one machine": replace(NO_NAME, one_machine=True),
    "a closed port": TWO_UNREACHED,
    "two reasons": with_peer(TWO_UNREACHED, "n1", "n9", unreached="n1 answers at 10.0.0.9"),
    "a network that only one has": told("n10", UNREACHED, interfaces=INTERFACES),
    "a proxy there": with_state(WELL, "n9", proxies={"http_proxy": "proxy:3128"}),
    "proxies here": replace(WELL, own_proxies={"grpc_proxy": "proxy:1", "http_proxy": "proxy:2"}),
    "an address of the world": with_state(WELL, "n1", addresses=("10.0.0.1", "141.30.1.1")),
    "another address of the world": with_state(
        WELL, "n1", addresses=("10.0.0.1", "2a00:1450:4001:830::200e")
    ),
    **{
        f"a clock that is {offset_s} s off": clocks(n1=offset_s)
        for offset_s in (0.004, -0.004, 0.006, -0.9, 1.1, -7200.0)
    },
    "clocks off to both sides": clocks(n1=-0.6, n9=0.6),
    "this clock is off": clocks(n10=2.0, n1=2.0, n9=2.0),
    "clocks of one machine": replace(clocks(n1=9.0), one_machine=True),
    "two kinds": OTHER,
    "two kinds, accepted": replace(OTHER, mixed_hosts=True),
    "small hosts for servers": SMALL,
    "small hosts with other software": told("n9", SMALL, versions=OLDER),
    "GPUs": on_gpus(facts=on_gpus(facts=on_gpus(host="n10"), host="n1")),
    "a GPU that does not show": on_gpus(gpus_of_worker=3),
    "no GPU shows": on_gpus(gpus_of_worker=0, gpu_problem="CUDA ends with error 803"),
    "servers see GPUs": on_gpus(gpus_of_server=4),
    "no build for GPUs": told("n9", on_gpus(1), versions=VERSIONS | {"tensorflow-cpu": "2.21.0"}),
    **{
        f"{free / GIB} GiB free": with_state(WELL, "n1", free_bytes=free)
        for free in (5 * GIB, 3 * GIB, GIB // 2)
    },
    **{
        f"a limit of {limit / GIB} GiB": with_state(WELL, "n1", memory_limit_bytes=limit)
        for limit in (5 * GIB, 3 * GIB, GIB // 2)
    },
    "memory of one machine": everywhere(replace(WELL, one_machine=True), free_bytes=9 * GIB),
    "a load": with_state(WELL, "n9", busy_share=0.42),
    **{f"{most} open files": with_state(WELL, "n9", open_files=most) for most in (1024, 1000, 100)},
    "no place for files": temporary(problem="Read-only file system", free_bytes=0),
    "little place for files": temporary(free_bytes=GIB // 2),
    "a full place for files": temporary(free_bytes=0),
    "files on NFS": temporary(file_system="nfs4"),
    "files on Lustre": temporary(file_system="lustre"),
    "another place than asked for": temporary(asked="/local/7"),
    "the place that was asked for": temporary(asked="/tmp"),
    "files in memory": temporary(file_system="tmpfs"),
    "results that need no sharing": healthy(shares_files=False, sharing=Sharing()),
    "results cannot be written here": healthy(sharing=Sharing(refused="Permission denied")),
    "results cannot be written there": sharing(
        unwritable={"n9": "No such file or directory"},
        delays_s={"n10": {"n1": 0.02}, "n1": {"n10": 0.02}, "n9": {"n10": 0.02, "n1": 0.02}},
    ),
    "results that others do not see": sharing(delays_s=UNSEEN, unseen_here=("n9",)),
    "results that are seen late": sharing(delays_s=LATE),
    "a slow host": healthy(flops={"n10": 1.00e12, "n1": 0.70e12, "n9": 0.98e12}),
    "a slow host of two": healthy(("n10", "n1"), flops={"n10": 1e12, "n1": 0.5e12}),
    "a host does not compute": healthy(flops={"n10": 1e12, "n1": 1e12}),
    "hosts of one machine compute": healthy(one_machine=True, flops={"n10": 5e10}),
    "slow links of a host": slow({(a, b): 9.4e8 for a in HOSTS for b in HOSTS if "n1" in (a, b)}),
    "slow links to a host": slow({("n10", "n1"): 9.4e8, ("n9", "n1"): 9.4e8}),
    "a slow pair": slow({("n10", "n9"): 9.4e8}, ("n10", "n1", "n9", "n2")),
    "a slow link of two hosts": slow({("n10", "n1"): 1e9}, ("n10", "n1")),
    "links could not be measured": healthy(
        links=(), links_trouble="the links of n9 cannot be measured: timed out"
    ),
    "one host": healthy(ALONE, links=(), bursts=None),
    "two congestion controls": with_host(
        healthy(bursts=None), "n9", facts=make_facts("n9", congestion="bbr")
    ),
    "connections have another": healthy(bursts=bursts(n9="reno")),
    "congestion control of emulated hosts": healthy(
        one_machine=True, bursts=bursts(n1="reno", n9="reno")
    ),
    "no congestion control is told": healthy(
        ALONE,
        bursts=None,
        links=(),
        checked={"n10": replace(host_check("n10", ALONE), facts=make_facts("n10"))},
    ),
    "next to no loss": healthy(bursts=bursts(lost=10)),
    "loss": healthy(bursts=bursts(lost=11)),
    "loss on emulated links": healthy(bursts=bursts(lost=11), one_machine=True),
    "few segments": healthy(bursts=FEW),
    "loss is not told": healthy(bursts=replace(bursts(), tcp=None)),
}


def rendered(facts: SiteFacts, usual: dict[str, Any]) -> Iterator[str]:
    """What is found otherwise than with healthy hosts, a line each."""
    for title, findings in examine(facts).items():
        if findings != usual.get(title):
            yield from [f"{title}: {line(finding)}" for finding in findings] or [
                f"{title}: nothing"
            ]


def line(finding: Finding) -> str:
    left_out = f" (leave out {', '.join(finding.leave_out)})" if finding.leave_out else ""
    remedy = f" -> {finding.remedy}" if finding.remedy else ""
    return f"{finding.level.upper()} {finding.text}{remedy}{left_out}"


def test_what_is_found() -> None:
    usual = examine(WELL)
    lines = [f"{title}: {line(one)}" for title, found in usual.items() for one in found]
    for title, facts in SITUATIONS.items():
        lines += ["", f"# {title}", *rendered(facts, dict(usual))]
    golden.check({"sentences/doctor.txt": "\n".join(["# all is well", *lines, ""])})


@fast
@given(
    st.dictionaries(st.text(min_size=1), st.floats(0.9, 1.1), min_size=3, max_size=20),
    st.floats(0.001, 0.6),
    st.data(),
)
def test_one_slow_host_never_makes_others_look_slow(
    rates: dict[str, float], factor: float, data: st.DataObject
) -> None:
    victim = data.draw(st.sampled_from(sorted(rates)))
    assert slower_than_others(rates) == ()
    assert slower_than_others(rates | {victim: rates[victim] * factor}) == (victim,)


@fast
@given(
    st.integers(4, 12),
    st.lists(st.floats(0.95, 1.05), min_size=132, max_size=132),
    st.floats(0.01, 0.7),
    st.integers(0, 11),
)
def test_one_host_with_a_slow_network_card_is_the_one_that_is_named(
    num_hosts: int, noise: list[float], factor: float, victim: int
) -> None:
    assume(victim < num_hosts)
    hosts = [f"n{number}" for number in range(num_hosts)]
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    every = [
        LinkRecord(
            source=a,
            target=b,
            bits_per_s=1e9 * share * (factor if f"n{victim}" in (a, b) else 1.0),
            round_trip_s=1e-4,
        )
        for (a, b), share in zip(pairs, noise, strict=False)
    ]
    assert hosts_with_slow_links(every) == (f"n{victim}",)
    assert all(f"n{victim}" in (one.source, one.target) for one in slow_links(every))
