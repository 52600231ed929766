"""What the server makes for itself, and keeps."""

from __future__ import annotations

from front_door import FrontDoor

from setpoint.apiserver.allocation.service_hooks import ServiceHooks
from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.upkeep import flow_control, identity, kubernetes_service
from setpoint.apiserver.upkeep.api_services import ApiServices
from setpoint.apiserver.upkeep.kubernetes_service import OwnAddress
from setpoint.apiserver.upkeep.running import upkeep
from setpoint.apiserver.upkeep.system_namespaces import system_namespaces

STORES = ("memory", "lagging")

OWN = OwnAddress("192.0.2.7", 6443, ["10.96.0.0/16"])
SERVICES = "/api/v1/namespaces/default/services"
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def test_everything_that_runs_in_a_server(full_door: FrontDoor) -> None:
    door = full_door
    services = door.api.env.hooks[("", "services")]
    assert isinstance(services, ServiceHooks)
    async with upkeep(door.api, services, OWN, "host-1", 3600):
        await door.clock.advance(0.1)
        kubernetes = (await door.get(f"{SERVICES}/kubernetes")).json
        assert kubernetes["spec"]["clusterIP"] == "10.96.0.1"
        assert kubernetes["spec"]["ports"][0]["targetPort"] == 6443
        endpoints = (await door.get("/api/v1/namespaces/default/endpoints/kubernetes")).json
        assert endpoints["subsets"][0]["addresses"] == [{"ip": "192.0.2.7"}]
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        assert (await door.get(f"{slices}/kubernetes")).json["endpoints"][0]["addresses"] == ["192.0.2.7"]
        tracking = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking"
        assert (await door.get(tracking)).json["data"] == {"since": "2026-01-01"}
        assert (await door.get(f"{LEASES}/{identity.server_id('host-1')}")).status == 200
        for schema in (await door.get(f"{FLOWS}/flowschemas")).json["items"]:
            assert [c["status"] for c in schema["status"]["conditions"]] == ["False"]
        before = door.store.revision
        await door.clock.advance(9)
        assert door.store.revision == before
        await door.clock.advance(1)
        # Nothing but the lease is written by an idle server.
        assert door.store.revision == before + 1


async def test_the_service_comes_back_and_its_endpoints_are_put_right(full_door: FrontDoor) -> None:
    door = full_door
    await kubernetes_service.ensure_own_address(door.api, OWN)
    await door.delete(f"{SERVICES}/kubernetes")
    path = "/api/v1/namespaces/default/endpoints/kubernetes"
    await door.patch(path, {"metadata": {"labels": None}})
    await kubernetes_service.ensure_own_address(door.api, OWN)
    await kubernetes_service.ensure_own_address(door.api, OwnAddress("192.0.2.8", 6444, OWN.cidrs))
    assert (await door.get(f"{SERVICES}/kubernetes")).json["spec"]["clusterIP"] == "10.96.0.1"
    endpoints = (await door.get(path)).json
    assert endpoints["subsets"][0]["addresses"] == [{"ip": "192.0.2.8"}]
    assert endpoints["metadata"]["labels"] == {"endpointslice.kubernetes.io/skip-mirror": "true"}
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    assert (await door.get(f"{slices}/kubernetes")).json["ports"][0]["port"] == 6444


async def test_the_range_is_declared_ready_once_by_apply(full_door: FrontDoor) -> None:
    door = full_door
    path = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
    await door.delete(path)
    await kubernetes_service.ensure_service_cidr(door.api, OWN)
    made = (await door.get(path)).json
    (condition,) = made["status"]["conditions"]
    assert (condition["status"], condition["message"]) == ("True", "Kubernetes default Service CIDR is ready")
    managers = {(entry["manager"], entry["operation"]) for entry in made["metadata"]["managedFields"]}
    assert managers == {("kubernetes-service-cidr-controller", "Apply"), ("kube-apiserver", "Update")}
    before = door.store.revision
    await kubernetes_service.ensure_service_cidr(door.api, OWN)
    assert door.store.revision == before
    two = OwnAddress(OWN.ip, OWN.port, ["10.96.0.0/16", "fd00::/108"])
    await kubernetes_service.ensure_service_cidr(door.api, two)
    assert (await door.get(path)).json["spec"]["cidrs"] == two.cidrs


async def test_a_second_start_writes_nothing(full_door: FrontDoor) -> None:
    before = full_door.store.revision
    await bootstrap(full_door.api)
    assert full_door.store.revision == before


async def test_system_namespaces_come_back(full_door: FrontDoor, running) -> None:
    running.start(system_namespaces(full_door.api).run())
    path = "/api/v1/namespaces/kube-node-lease"
    old = (await full_door.get(path)).json
    await full_door.delete(path)
    await full_door.put(f"{path}/finalize", {"metadata": {"name": "kube-node-lease"}, "spec": {}})
    await full_door.clock.advance(0)
    assert (await full_door.get(path)).json["metadata"]["uid"] != old["metadata"]["uid"]


async def test_a_schema_tells_whether_its_level_exists(full_door: FrontDoor, running) -> None:
    door = full_door
    running.start(flow_control.flow_schema_status(door.api).run())
    spec = {"priorityLevelConfiguration": {"name": "later"}, "matchingPrecedence": 500}
    await door.make(f"{FLOWS}/flowschemas", {"metadata": {"name": "mine"}, "spec": spec})

    async def dangling() -> str:
        await door.clock.advance(0)
        (condition,) = (await door.get(f"{FLOWS}/flowschemas/mine")).json["status"]["conditions"]
        return f"{condition['status']} {condition['reason']}"

    assert await dangling() == "True NotFound"
    level = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    await door.make(f"{FLOWS}/prioritylevelconfigurations", {"metadata": {"name": "later"}, "spec": level})
    assert await dangling() == "False Found"
    await door.delete(f"{FLOWS}/prioritylevelconfigurations/later")
    assert await dangling() == "True NotFound"


async def test_shipped_configuration_stays_unless_taken_over(full_door: FrontDoor) -> None:
    door = full_door
    schemas = f"{FLOWS}/flowschemas"
    before = door.store.revision
    shipped = flow_control.Configuration(door.api)
    await shipped.ensure()
    assert door.store.revision == before
    await door.patch(f"{schemas}/global-default", {"spec": {"matchingPrecedence": 9000}})
    mine = {"apf.kubernetes.io/autoupdate-spec": "false"}
    taken_over = {"metadata": {"annotations": mine}, "spec": {"matchingPrecedence": 901}}
    await door.patch(f"{schemas}/kube-scheduler", taken_over)
    await door.patch(f"{schemas}/system-nodes", {"metadata": {"annotations": None}})
    await door.delete(f"{schemas}/probes")
    obsolete = {
        "metadata": {"name": "obsolete", "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}},
        "spec": {"priorityLevelConfiguration": {"name": "system"}, "matchingPrecedence": 5},
    }
    await door.make(schemas, obsolete)
    await shipped.ensure()
    found = {item["metadata"]["name"]: item for item in (await door.get(schemas)).json["items"]}
    assert found["global-default"]["spec"]["matchingPrecedence"] == 9900
    assert found["kube-scheduler"]["spec"]["matchingPrecedence"] == 901
    assert found["system-nodes"]["metadata"]["annotations"] == {"apf.kubernetes.io/autoupdate-spec": "true"}
    assert "probes" in found
    assert "obsolete" not in found


async def test_whether_an_api_service_can_be_reached(full_door: FrontDoor, running) -> None:
    door, problem = full_door, "no route"

    async def probe(api_service: dict[str, object], service: dict[str, object]) -> str:
        return problem

    availability = ApiServices(door.api, probe)
    running.start(availability.loop.run())
    spec = {
        "group": "x.io", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10,
        "insecureSkipTLSVerify": True, "service": {"namespace": "default", "name": "far"},
    }  # fmt: skip
    await door.make(API_SERVICES, {"metadata": {"name": "v1.x.io"}, "spec": spec})

    async def said() -> tuple[str, str]:
        await door.clock.advance(0)
        (condition,) = (await door.get(f"{API_SERVICES}/v1.x.io")).json["status"]["conditions"]
        return condition["reason"], condition["message"]

    assert await said() == ("ServiceNotFound", 'service/far in "default" is not present')
    await door.make(SERVICES, {"metadata": {"name": "far"}, "spec": {"ports": [{"port": 80}]}})
    assert await said() == ("ServicePortError", 'service/far in "default" is not listening on port 443')
    await door.patch(f"{SERVICES}/far", {"spec": {"ports": [{"port": 443}]}})
    assert await said() == ("EndpointsNotFound", 'cannot find endpointslices for service/far in "default"')
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    one = {
        "metadata": {"name": "far-1", "labels": {"kubernetes.io/service-name": "far"}}, "addressType": "IPv4",
        "endpoints": [], "ports": [{"name": "", "port": 443, "protocol": "TCP"}],
    }  # fmt: skip
    await door.make(slices, one)
    assert (await said())[0] == "MissingEndpoints"
    await door.patch(f"{slices}/far-1", {"endpoints": [{"addresses": ["192.0.2.1"]}]})
    assert await said() == ("FailedDiscoveryCheck", "no route")
    problem = ""
    await availability.recheck()
    assert await said() == ("Passed", "all checks passed")
    await door.patch(f"{API_SERVICES}/v1.x.io", {"spec": {"service": None, "insecureSkipTLSVerify": None}})
    assert (await said())[0] == "Local"


async def test_leases_of_servers_that_are_gone_are_removed(full_door: FrontDoor) -> None:
    door = full_door
    old, new = identity.Identity(door.api, "old"), identity.Identity(door.api, "new")
    await old.renew()
    await door.clock.advance(3000)
    await new.renew()
    await door.clock.advance(700)
    await new.collect()
    assert [item["metadata"]["name"] for item in (await door.get(LEASES)).json["items"]] == [new.name]
