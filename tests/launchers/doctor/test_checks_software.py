"""What the doctor says about the program that the hosts run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launchers.doctor.checks.software import checkout, fork_servers, imports, packages, versions
from launchers.doctor.findings import Level
from launchers.doctor.site_facts import SiteFacts
from tests.launchers.doctor.doctor_facts import (
    VERSIONS,
    healthy,
    levels,
    only,
    with_host,
    with_state,
)


def with_versions(facts: SiteFacts, host: str, **changes: str) -> SiteFacts:
    found = dict(facts.checked[host].facts.versions) | changes
    return with_host(facts, host, facts=replace(facts.checked[host].facts, versions=found))


def test_servers_that_do_not_come_up_are_a_failure() -> None:
    reason = "no fork server came up on n9: TensorFlow could not be imported there."
    finding = only(fork_servers(healthy(checked={}, not_started=reason)), Level.FAILURE)
    assert finding.text == reason


def test_a_host_that_stops_answering_is_named_and_left_out() -> None:
    facts = replace(healthy(), troubles={"n9": "the fork server on n9 ended"})
    up, finding = fork_servers(facts)
    assert up.text == "3 up after 6.0 s"
    assert (finding.level, finding.leave_out) == (Level.FAILURE, ("n9",))
    assert "the fork server on n9 ended" in finding.text


def test_a_slow_import_is_told() -> None:
    facts = with_host(healthy(), "n1", import_s=45.0)
    finding = only(imports(facts), Level.WARNING)
    assert finding.text == "TensorFlow imported in 4.0 to 45.0 s (longest on n1)"
    # Three at the same time on the cores of one machine take three times as long.
    assert levels(imports(replace(facts, one_machine=True))) == [Level.OK]


def test_other_versions_are_told_by_package() -> None:
    facts = with_versions(healthy(), "n9", numpy="2.2.0")
    finding = only(versions(facts), Level.FAILURE)
    assert finding.text == "numpy is 2.4.6 on n10, n1, 2.2.0 on n9"


def test_a_missing_package_is_another_version() -> None:
    facts = with_versions(healthy(), "n10", psutil="7.0")
    assert only(versions(facts), Level.FAILURE).text == "psutil is 7.0 on n10, missing on n1, n9"


def test_hosts_that_agree_may_differ_from_here() -> None:
    facts = replace(healthy(), own_versions=VERSIONS | {"numpy": "1.26.4"})
    finding = only(versions(facts), Level.WARNING)
    assert finding.text == "numpy is 2.4.6 on the hosts, 1.26.4 on this machine"


def test_another_kernel_is_no_other_program() -> None:
    assert levels(versions(with_versions(healthy(), "n9", kernel="5.14"))) == [Level.OK]


def test_another_checkout_is_a_failure() -> None:
    finding = only(checkout(with_state(healthy(), "n9", digest="deadbeef")), Level.FAILURE)
    assert finding.text == "the source on n9 is not the one here (0badcafe)"
    assert finding.leave_out == ("n9",)


def test_when_all_differ_from_here_nobody_is_left_out() -> None:
    finding = only(checkout(replace(healthy(), own_digest="deadbeef")), Level.FAILURE)
    assert finding.leave_out == ()


def test_packages_of_the_user_are_a_failure() -> None:
    facts = with_state(
        healthy(), "n9", user_modules=("numpy", "keras"), user_site="/home/u/.local/lib"
    )
    finding = only(packages(facts), Level.FAILURE)
    assert finding.text == (
        "numpy, keras comes from /home/u/.local/lib on n9, not from the environment"
    )
    assert "PYTHONNOUSERSITE=1" in finding.remedy


def test_a_door_to_the_users_packages_is_a_warning() -> None:
    facts = with_state(healthy(), "n9", user_site="/home/u/.local/lib")
    finding = only(packages(facts), Level.WARNING)
    assert "from /home/u/.local/lib on n9; it took none" in finding.text


@pytest.mark.parametrize(("locked", "level"), [(True, Level.WARNING), (False, Level.OK)])
def test_modules_from_elsewhere_are_told(locked: bool, level: Level) -> None:
    facts = with_state(healthy(), "n9", outside_modules=("psutil",), locked=locked)
    assert only(packages(facts), level).text.startswith("psutil on n9 come from neither")


def test_all_is_well() -> None:
    facts = healthy()
    found = [*versions(facts), *checkout(facts), *packages(facts), *imports(facts)]
    assert levels(found) == [Level.OK] * 4
    assert found[0].text == "the same everywhere: python 3.11.2, tensorflow 2.21.0, numpy 2.4.6"
