"""Subsets of Endpoints are packed and ordered as upstream does it."""

from __future__ import annotations

from typing import Any

from setpoint.controllers.endpoints import CAPACITY, is_equivalent, repacked, subsets_of, truncated, wanted_endpoints
from setpoint.meta.objects import Obj


def service(ports: list[Obj], **spec: Any) -> Any:
    spec = {"selector": {"a": "b"}, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "ports": ports, **spec}
    return {"metadata": {"name": "s", "namespace": "d", "labels": {"l": "1"}}, "spec": spec}


def pod(number: int, *, ready: bool = True, port: int = 8080, **more: Any) -> Any:
    ip = f"10.1.{number >> 8}.{number & 255}"
    container = {"name": "c", "ports": [{"name": "web", "containerPort": port}]}
    return {
        "metadata": {"name": f"p{number}", "namespace": "d", "uid": f"u{number}", **more},
        "spec": {"nodeName": "n", "containers": [container]},
        "status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def shown(subsets: list[Obj]) -> list[tuple[list[str], list[str], list[int]]]:
    return [
        (
            [each["ip"] for each in subset.get("addresses") or ()],
            [each["ip"] for each in subset.get("notReadyAddresses") or ()],
            [each["port"] for each in subset.get("ports") or ()],
        )
        for subset in subsets
    ]


NUMBERS = [{"name": name, "port": 1, "targetPort": 1000 + at} for at, name in enumerate("abcde", 1)]


def test_ports_are_in_upstreams_order() -> None:
    ports = [*NUMBERS[:3], {**NUMBERS[3], "appProtocol": "http"}, NUMBERS[4]]
    (subset,) = subsets_of(service(ports), [pod(1)])
    # As a controller manager of 1.37 wrote them.
    assert [port["name"] for port in subset["ports"]] == ["a", "b", "e", "c", "d"]


def test_ready_and_unready_addresses_sorted() -> None:
    found = subsets_of(service([{"port": 80, "targetPort": 80}]), [pod(3), pod(1, ready=False), pod(2)])
    assert shown(found) == [(["10.1.0.2", "10.1.0.3"], ["10.1.0.1"], [80])]


def test_addresses_with_the_same_ports_are_one_subset() -> None:
    ports = [{"name": "x", "port": 80, "targetPort": "web"}, {"name": "y", "port": 81, "targetPort": 9000}]
    found = subsets_of(service(ports), [pod(1), pod(2, port=9), pod(3)])
    assert sorted((tuple(ips), tuple(sorted(numbers))) for ips, _, numbers in shown(found)) == [
        (("10.1.0.1", "10.1.0.2", "10.1.0.3"), (9000,)),
        (("10.1.0.1", "10.1.0.3"), (8080,)),
        (("10.1.0.2",), (9,)),
    ]


def test_which_pods_are_left_out() -> None:
    going = pod(1, deletionTimestamp="x")
    over = pod(2)
    over["status"]["phase"] = "Failed"
    assert subsets_of(service([{"port": 80, "targetPort": 80}]), [going, over]) == []
    published = service([{"port": 80, "targetPort": 80}], publishNotReadyAddresses=True)
    assert shown(subsets_of(published, [going, over, pod(3, ready=False)])) == [(["10.1.0.1", "10.1.0.3"], [], [80])]


def test_headless_services_need_no_ports() -> None:
    assert shown(subsets_of(service([], clusterIP="None"), [pod(1)])) == [(["10.1.0.1"], [], [])]
    assert subsets_of(service([]), [pod(1)]) == []


def test_addresses_beyond_the_capacity_are_truncated_unready_ones_first() -> None:
    one = service([{"port": 80, "targetPort": 80}])
    pods = [pod(number, ready=number % 2 == 0) for number in range(1500)]
    (cut,) = truncated(subsets_of(one, pods))
    assert (len(cut["addresses"]), len(cut["notReadyAddresses"])) == (750, 250)
    (cut,) = truncated(subsets_of(one, [pod(number) for number in range(1200)]))
    assert len(cut["addresses"]) == CAPACITY and "notReadyAddresses" not in cut
    wanted = wanted_endpoints(one, subsets_of(one, pods), None, "")
    assert wanted["metadata"]["annotations"] == {"endpoints.kubernetes.io/over-capacity": "truncated"}
    fewer = wanted_endpoints(one, subsets_of(one, pods[:10]), wanted, "t")
    assert fewer["metadata"]["annotations"] == {"endpoints.kubernetes.io/last-change-trigger-time": "t"}


def test_equivalent_endpoints_are_not_written_again() -> None:
    one = service([{"port": 80, "targetPort": 80}])
    wanted = wanted_endpoints(one, subsets_of(one, [pod(1)]), None, "t")
    assert wanted["metadata"]["labels"] == {"l": "1", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    assert is_equivalent(wanted, wanted_endpoints(one, subsets_of(one, [pod(1)]), wanted, "u"))
    assert not is_equivalent(wanted, wanted_endpoints(one, subsets_of(one, [pod(2)]), wanted, "u"))
    headless = service([{"port": 80, "targetPort": 80}], clusterIP="None")
    assert not is_equivalent(wanted, wanted_endpoints(headless, subsets_of(headless, [pod(1)]), wanted, "u"))


def test_existing_subsets_are_repacked() -> None:
    port = {"port": 80, "protocol": "TCP"}
    apart = [{"addresses": [{"ip": ip}], "ports": [port]} for ip in ("10.0.0.2", "10.0.0.1")]
    both = [{"addresses": [{"ip": "10.0.0.3"}], "notReadyAddresses": [{"ip": "10.0.0.3"}], "ports": [port]}]
    assert shown(repacked([*apart, *both])) == [(["10.0.0.1", "10.0.0.2"], ["10.0.0.3"], [80])]
