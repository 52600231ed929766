"""EndpointSlices change as little as possible."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.controllers.endpointslice.controller import SliceTracker
from setpoint.controllers.endpointslice.endpoints import families_of
from setpoint.controllers.endpointslice.planning import Plan, plan, reuse
from setpoint.controllers.endpointslice.topology import hint_close, remove_hints
from setpoint.meta.objects import Obj

MANAGER = "endpointslice-controller.k8s.io"
NODE: Any = {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}}


def service(**spec: Any) -> Any:
    base = {"selector": {"a": "b"}, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"]}
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "d", "uid": "service"},
        "spec": {**base, "ports": ports, **spec},
    }


def pod(number: int, *, ready: bool = True, going: bool = False, **spec: Any) -> Any:
    ip = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    meta = {"name": f"p{number}", "namespace": "d", "uid": f"u{number}"}
    return {
        "metadata": {**meta, **({"deletionTimestamp": "x"} if going else {})},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}], **spec},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


class Server:
    """Executes plans and counts the writes."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.slices: dict[str, Obj] = {}
        self.writes = 0
        self._made = 0

    def follow(self, pods: list[Any], found: Any = None) -> Plan:
        owner = found or service()
        result = plan(owner, pods, lambda _: NODE, list(self.slices.values()), "IPv4", self.most, MANAGER)
        remove_hints(result)
        reuse(result, owner)
        for made in result.create:
            self._made += 1
            name = f"s-{self._made}"
            self.slices[name] = {
                **made,
                "metadata": {**made["metadata"], "name": name, "uid": name, "resourceVersion": "1"},
            }
        for changed in result.update:
            self.slices[changed["metadata"]["name"]] = changed
        for gone in result.delete:
            del self.slices[gone["metadata"]["name"]]
        self.writes += len(result.create) + len(result.update) + len(result.delete)
        return result

    def addresses(self) -> list[str]:
        return sorted(each["addresses"][0] for found in self.slices.values() for each in found["endpoints"])


def ips(pods: list[Obj]) -> list[str]:
    return sorted(each["status"]["podIP"] for each in pods)


def test_a_slice_holds_a_hundred_endpoints() -> None:
    server = Server()
    pods = [pod(number) for number in range(250)]
    server.follow(pods)
    assert sorted(len(found["endpoints"]) for found in server.slices.values()) == [50, 100, 100]
    assert server.addresses() == ips(pods)
    assert server.writes == 3
    server.follow(pods)
    assert server.writes == 3


def test_one_change_is_one_write() -> None:
    server = Server()
    pods = [pod(number) for number in range(250)]
    server.follow(pods)
    before = server.writes
    pods[120] = pod(120, ready=False)
    result = server.follow(pods)
    assert server.writes == before + 1
    (changed,) = result.update
    (unready,) = [each for each in changed["endpoints"] if not each["conditions"]["ready"]]
    assert unready["targetRef"]["name"] == "p120"
    assert unready["conditions"] == {"ready": False, "serving": False, "terminating": False}


def test_new_endpoints_go_to_slices_that_are_updated_anyway() -> None:
    server = Server()
    pods = [pod(number) for number in range(200)]
    server.follow(pods)
    before = server.writes
    server.follow([*pods[1:], pod(777)])
    assert server.writes == before + 1
    assert sorted(len(found["endpoints"]) for found in server.slices.values()) == [100, 100]


def test_new_endpoints_fill_the_fullest_slice_with_space_for_all() -> None:
    server = Server(most=10)
    server.follow([pod(number) for number in range(18)])
    (small,) = [found for found in server.slices.values() if len(found["endpoints"]) == 8]
    result = server.follow([pod(number) for number in range(20)])
    assert [changed["metadata"]["name"] for changed in result.update] == [small["metadata"]["name"]]
    assert not result.create


def test_without_pods_there_is_an_empty_slice_and_it_stays() -> None:
    server = Server()
    server.follow([])
    (found,) = server.slices.values()
    assert not found["endpoints"] and not found["ports"]
    server.follow([])
    assert server.writes == 1
    server.follow([pod(1)])
    (after,) = server.slices.values()
    assert after["metadata"]["name"] == found["metadata"]["name"] and server.addresses() == ["10.0.0.1"]
    server.follow([])
    assert list(server.slices) == [found["metadata"]["name"]] and server.addresses() == []


def test_pods_with_other_ports_have_separate_slices() -> None:
    found = service(ports=[{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}])
    containers = [[{"name": "c", "ports": [{"name": "web", "containerPort": port}]}] for port in (1000, 2000)]
    pods = [pod(number, containers=containers[number % 2]) for number in range(6)]
    server = Server()
    server.follow(pods, found)
    assert {each["ports"][0]["port"]: len(each["endpoints"]) for each in server.slices.values()} == {1000: 3, 2000: 3}


def test_ports_are_in_upstreams_order() -> None:
    numbers = [{"name": name, "port": 1, "targetPort": 1000 + at} for at, name in enumerate("abcde", 1)]
    numbers[3]["appProtocol"] = "http"
    server = Server()
    server.follow([pod(1)], service(ports=[*numbers, {"name": "web", "port": 2, "targetPort": 8081}]))
    (found,) = server.slices.values()
    # As a controller manager of 1.37 wrote them.
    assert [port["name"] for port in found["ports"]] == ["web", "c", "d", "b", "a", "e"]


def test_a_sidecars_port_is_found_by_name_and_an_init_containers_is_not() -> None:
    found = service(ports=[{"name": "m", "port": 1, "targetPort": "metrics", "protocol": "TCP"}])
    container = {"name": "side", "ports": [{"name": "metrics", "containerPort": 9}]}
    server = Server()
    server.follow(
        [pod(1, initContainers=[{**container, "restartPolicy": "Always"}]), pod(2, initContainers=[container])], found
    )
    ports = {each["endpoints"][0]["targetRef"]["name"]: each["ports"] for each in server.slices.values()}
    assert ports == {"p1": [{"name": "m", "port": 9, "protocol": "TCP"}], "p2": []}


@pytest.mark.parametrize(
    ("going", "ready", "publish", "conditions"),
    [
        (False, True, False, (True, True, False)),
        (True, True, False, (False, True, True)),
        (False, False, False, (False, False, False)),
        (True, False, True, (True, False, True)),
    ],
)
def test_conditions(going: bool, ready: bool, publish: bool, conditions: tuple[bool, ...]) -> None:
    server = Server()
    server.follow([pod(1, ready=ready, going=going)], service(publishNotReadyAddresses=publish))
    (found,) = server.slices.values()
    (endpoint,) = found["endpoints"]
    assert tuple(endpoint["conditions"][name] for name in ("ready", "serving", "terminating")) == conditions
    assert endpoint["zone"] == "z"


def test_labels_of_the_service_are_copied_except_reserved_ones() -> None:
    server = Server()
    server.follow([pod(1)])
    found = service(clusterIP="None")
    found["metadata"]["labels"] = {"team": "x", "kubernetes.io/service-name": "forged"}
    server.follow([pod(1)], found)
    (labelled,) = server.slices.values()
    assert labelled["metadata"]["labels"] == {
        "team": "x",
        "service.kubernetes.io/headless": "",
        "kubernetes.io/service-name": "s",
        "endpointslice.kubernetes.io/managed-by": MANAGER,
    }


def test_a_pod_whose_node_is_unknown_is_skipped_and_reported() -> None:
    result = plan(service(), [pod(1)], lambda _: None, [], "IPv4", 100, MANAGER)
    assert result.problems == ["skipping Pod p1 for Service d/s: Node n Not Found"]
    assert not any(made["endpoints"] for made in result.create)
    published = plan(service(publishNotReadyAddresses=True), [pod(1)], lambda _: None, [], "IPv4", 100, MANAGER)
    assert not published.problems and len(published.create[0]["endpoints"]) == 1


def test_slices_of_a_replaced_service_are_deleted() -> None:
    server = Server()
    server.follow([pod(1)])
    again = service()
    again["metadata"]["uid"] = "another"
    result = server.follow([pod(1)], again)
    assert len(result.delete) == len(result.create) == 1


@pytest.mark.parametrize(
    ("spec", "families"),
    [
        ({"ipFamilies": ["IPv6", "IPv4"]}, ["IPv6", "IPv4"]),
        ({"ipFamilies": None, "clusterIP": "fd00::1"}, ["IPv6"]),
        ({"ipFamilies": None, "clusterIP": "None"}, ["IPv4", "IPv6"]),
    ],
)
def test_families(spec: Obj, families: list[str]) -> None:
    assert families_of(service(**spec)) == families


def test_hints_follow_the_traffic_distribution() -> None:
    server = Server()
    server.follow([pod(1), pod(2, ready=False)])

    def hints(result: Plan) -> list[Any]:
        return [each.get("hints") for changed in result.update for each in changed["endpoints"]]

    def planned() -> Plan:
        return plan(
            service(), [pod(1), pod(2, ready=False)], lambda _: NODE, list(server.slices.values()), "IPv4", 100, MANAGER
        )

    result = planned()
    hint_close(result, "PreferClose")
    assert hints(result) == [{"forZones": [{"name": "z"}]}, None]
    server.slices = {changed["metadata"]["name"]: changed for changed in result.update}
    result = planned()
    hint_close(result, "PreferSameZone")
    assert not result.update
    hint_close(result, "PreferSameNode")
    assert hints(result) == [{"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]}, None]
    result = planned()
    remove_hints(result)
    assert hints(result) == [None, None]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 40)), max_size=8), st.integers(1, 7))
def test_slices_always_match_the_pods(steps: list[set[int]], most: int) -> None:
    server = Server(most)
    for step in steps:
        pods = [pod(number) for number in sorted(step)]
        server.follow(pods)
        assert server.addresses() == ips(pods)
        assert all(len(found["endpoints"]) <= most for found in server.slices.values())
        assert server.slices
        writes = server.writes
        server.follow(pods)
        assert server.writes == writes


def test_a_deletion_that_was_observed_before_its_answer_is_forgotten() -> None:
    tracker, gone = SliceTracker(), {"metadata": {"uid": "u", "generation": 1}}
    tracker.wrote("d/s", gone)
    assert not tracker.is_stale("d/s", [gone])
    assert not tracker.deletion_observed("d/s", gone)
    tracker.deleted("d/s", gone)
    assert not tracker.is_stale("d/s", [])
    assert not tracker.deletion_observed("d/s", gone), "it is not kept for as long as the Service exists"

    tracker.deleted("d/s", gone)
    assert tracker.is_stale("d/s", [gone]), "the cache shows it still"
    assert tracker.deletion_observed("d/s", gone)
