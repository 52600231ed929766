"""Limits of cgroups and scores of the OOM killer."""

from __future__ import annotations

from typing import Any

import pytest
from host_pods import GI, make_pod, make_settings

from setpoint.node.host.resources import (
    container_resources,
    cpu_quota,
    cpu_shares,
    oom_score_adj,
    page_size_name,
    sandbox_overhead,
    sandbox_resources,
)

MI = 1 << 20


@pytest.mark.parametrize(
    ("milli", "shares", "quota"),
    [(0, 2, 0), (1, 2, 1000), (10, 10, 1000), (100, 102, 10_000), (1000, 1024, 100_000), (10**6, 262_144, 10**8)],
)
def test_cpu(milli: int, shares: int, quota: int) -> None:
    assert cpu_shares(milli) == shares
    assert cpu_quota(milli) == quota


def resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"resources": {key: value for key, value in (("requests", requests), ("limits", limits)) if value}}


def linux(shares: int, quota: int, memory: int = 0, score: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"cpu_shares": shares, "cpu_quota": quota, "cpu_period": 100_000}
    if memory:
        found["memory_limit_in_bytes"] = memory
    if score is not None:
        found["oom_score_adj"] = score
    return found


SAME = {"cpu": "500m", "memory": "64Mi"}


@pytest.mark.parametrize(
    ("own", "level", "expected"),
    [
        ({}, {}, linux(2, 0, 0, 1000)),
        (resources(SAME, SAME), {}, linux(512, 50_000, 64 * MI, -997)),
        (resources({"cpu": "100m"}, {"cpu": "1"}), {}, linux(102, 100_000, 0, 999)),
        (resources(None, {"cpu": "1"}), {}, linux(1024, 100_000, 0, 999)),
        (resources({"cpu": "0"}, {"cpu": "1"}), {}, linux(2, 100_000, 0, 999)),
        (resources({"memory": "4Gi"}), {}, linux(2, 0, 0, 500)),
        (resources({"memory": "4Gi"}, {"memory": "6Gi"}), {}, linux(2, 0, 6 * GI, 500)),
        # Limits of the Pod apply to containers without their own.
        (
            {},
            resources({"cpu": "1", "memory": "2Gi"}, {"cpu": "2", "memory": "4Gi"}),
            linux(2048, 200_000, 4 * GI, 750),
        ),
        (
            resources({"memory": "1Gi"}, {"cpu": "1"}),
            resources({"memory": "2Gi"}, {"cpu": "2", "memory": "4Gi"}),
            linux(1024, 100_000, 4 * GI, 750),
        ),
    ],
)
def test_container_on_cgroup_v1(own: dict[str, Any], level: dict[str, Any], expected: dict[str, Any]) -> None:
    pod = make_pod(own, **level)
    assert container_resources(pod, pod["spec"]["containers"][0], make_settings()) == expected


def test_huge_amounts_fit_the_message() -> None:
    pod = make_pod(resources(None, {"cpu": "7E", "memory": "100E"}))
    found = container_resources(pod, pod["spec"]["containers"][0], make_settings())
    assert found["cpu_shares"] == 262_144
    assert found["cpu_quota"] == found["memory_limit_in_bytes"] == 2**63 - 1


def test_container_on_cgroup_v2() -> None:
    pod = make_pod(resources(SAME, SAME))
    spec = pod["spec"]["containers"][0]
    unified = {"memory.oom.group": "1", "memory.min": "0", "memory.low": "0"}
    expected = {**linux(512, 50_000, 64 * MI, -997), "unified": unified}
    assert container_resources(pod, spec, make_settings(cgroup_version=2)) == expected
    expected["unified"] = {**unified, "memory.swap.max": "0"}
    assert container_resources(pod, spec, make_settings(cgroup_version=2, swap_controller=True)) == expected


def test_no_swap_on_cgroup_v1() -> None:
    settings = make_settings(swap_controller=True)
    pod = make_pod(resources(SAME, SAME))
    found = container_resources(pod, pod["spec"]["containers"][0], settings)
    assert found["memory_swap_limit_in_bytes"] == 64 * MI
    free = make_pod()
    assert "memory_swap_limit_in_bytes" not in container_resources(free, free["spec"]["containers"][0], settings)


def test_huge_pages() -> None:
    settings = make_settings(huge_page_sizes=("2MB", "1GB"))
    limits = {"memory": "1Gi", "hugepages-2Mi": "4Mi"}
    pod = make_pod(resources(limits, limits), {}, resources=resources(None, {"hugepages-1Gi": "1Gi"})["resources"])
    first, second = pod["spec"]["containers"]
    assert container_resources(pod, first, settings)["hugepage_limits"] == [
        {"page_size": "2MB", "limit": 4 * MI},
        {"page_size": "1GB", "limit": GI},
    ]
    assert container_resources(pod, second, settings)["hugepage_limits"] == [
        {"page_size": "2MB", "limit": 0},
        {"page_size": "1GB", "limit": GI},
    ]
    assert "hugepage_limits" not in container_resources(pod, first, make_settings())


@pytest.mark.parametrize(
    ("size", "name"), [(65536, "64KB"), (2 * MI, "2MB"), (GI, "1GB"), (16 * GI, "16GB"), (1, "1B")]
)
def test_names_of_page_sizes(size: int, name: str) -> None:
    assert page_size_name(size) == name


CRITICAL = {"priorityClassName": "system-node-critical"}
SIDECAR = {"name": "s", "image": "i", "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("containers", "spec", "annotations", "expected"),
    [
        ([{}], {}, {}, 1000),
        ([resources(SAME, SAME)], {}, {}, -997),
        ([resources({"memory": "1"})], {}, {}, 999),
        ([resources({"memory": "800Mi"})], {}, {}, 903),
        ([resources({"memory": "8Gi"})], {}, {}, 3),
        ([{}], {**CRITICAL, "priority": 2_000_001_000}, {}, -997),
        ([{}], CRITICAL, {}, 1000),
        ([{}], CRITICAL, {"kubernetes.io/config.source": "file"}, -997),
        ([{}], CRITICAL, {"kubernetes.io/config.source": "api"}, 1000),
        ([{}], CRITICAL, {"kubernetes.io/config.mirror": "x"}, -997),
        ([{}], {"priorityClassName": "system-cluster-critical", "priority": 2_000_000_000}, {}, 1000),
        # What the Pod requests beyond its containers is divided among them.
        ([resources({"memory": "1Gi"}), {}], {"resources": {"requests": {"memory": "5Gi"}}}, {}, 625),
    ],
)
def test_scores(
    containers: list[dict[str, Any]], spec: dict[str, Any], annotations: dict[str, str], expected: int
) -> None:
    pod = make_pod(*containers, metadata={"annotations": annotations}, **spec)
    assert oom_score_adj(pod, pod["spec"]["containers"][0], make_settings()) == expected


def test_a_sidecar_is_not_killed_before_its_containers() -> None:
    pod = make_pod(resources({"memory": "4Gi"}), resources({"memory": "2Gi"}), initContainers=[SIDECAR])
    spec: Any = pod["spec"]["initContainers"][0]
    assert oom_score_adj(pod, spec, make_settings()) == 750
    assert oom_score_adj(pod, {**spec, "restartPolicy": None}, make_settings()) == 999


def test_scores_below_that_of_the_agent_are_raised() -> None:
    pod = make_pod(resources(SAME, SAME))
    spec = pod["spec"]["containers"][0]
    assert oom_score_adj(pod, spec, make_settings(min_oom_score_adj=-500)) == -500
    assert oom_score_adj(pod, spec, make_settings(min_oom_score_adj=-999)) == -997
    assert oom_score_adj(make_pod(), spec, make_settings(min_oom_score_adj=0)) == 1000


@pytest.mark.parametrize(
    ("containers", "spec", "expected"),
    [
        ([{}], {}, linux(2, 0)),
        ([resources(SAME, SAME), resources({"cpu": "500m"})], {}, linux(1024, 50_000, 64 * MI)),
        ([resources(None, {"cpu": "1"})], {}, linux(1024, 100_000)),
        ([resources(SAME, SAME)], resources({"cpu": "2"}, {"cpu": "4"}), linux(2048, 400_000, 64 * MI)),
        ([resources(SAME)], {"overhead": {"cpu": "1"}}, linux(512, 0)),
    ],
)
def test_sandbox(containers: list[dict[str, Any]], spec: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sandbox_resources(make_pod(*containers, **spec), make_settings()) == expected


def test_overhead() -> None:
    assert sandbox_overhead(make_pod(), make_settings()) is None
    pod = make_pod(overhead={"cpu": "250m", "memory": "120Mi"})
    assert sandbox_overhead(pod, make_settings()) == linux(256, 25_000, 120 * MI)
    assert sandbox_overhead(pod, make_settings(cgroup_version=2)) == {
        **linux(256, 25_000, 120 * MI),
        "unified": {"memory.oom.group": "1"},
    }
