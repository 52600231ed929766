"""The objects that a server maintains for itself."""

from __future__ import annotations

from running_loops import RunningLoops
from server_harness import ServerHarness

from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.upkeep import flow_control, identity, server_objects
from setpoint.apiserver.upkeep.api_services import ApiServices
from setpoint.apiserver.upkeep.running import upkeep
from setpoint.apiserver.upkeep.server_objects import OwnAddress, system_namespaces

STORES = ("memory", "lagging")

OWN = OwnAddress("192.0.2.7", 6443, ["10.96.0.0/16"])
SERVICES = "/api/v1/namespaces/default/services"
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def test_all_maintenance_loops(full_harness: ServerHarness) -> None:
    harness = full_harness
    async with upkeep(harness.api, OWN, "host-1", 3600):
        await harness.clock.advance(0.1)
        kubernetes = (await harness.get(f"{SERVICES}/kubernetes")).json
        assert kubernetes["spec"]["clusterIP"] == "10.96.0.1"
        assert kubernetes["spec"]["ports"][0]["targetPort"] == 6443
        endpoints = (await harness.get("/api/v1/namespaces/default/endpoints/kubernetes")).json
        assert endpoints["subsets"][0]["addresses"] == [{"ip": "192.0.2.7"}]
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        assert (await harness.get(f"{slices}/kubernetes")).json["endpoints"][0]["addresses"] == ["192.0.2.7"]
        tracking = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking"
        assert (await harness.get(tracking)).json["data"] == {"since": "2026-01-01"}
        assert (await harness.get(f"{LEASES}/{identity.server_id('host-1')}")).status == 200
        for schema in (await harness.get(f"{FLOWS}/flowschemas")).json["items"]:
            assert [c["status"] for c in schema["status"]["conditions"]] == ["False"]
        before = harness.store.revision
        await harness.clock.advance(9)
        assert harness.store.revision == before
        await harness.clock.advance(1)
        # Nothing but the lease is written by an idle server.
        (renewed,) = (await harness.store.replay("", before, 10)).events
        assert renewed.key == f"coordination.k8s.io/leases/kube-system/{identity.server_id('host-1')}"


async def test_the_service_is_recreated_and_its_endpoints_are_reset(full_harness: ServerHarness) -> None:
    harness = full_harness
    await server_objects.ensure_own_address(harness.api.resources, OWN, [OWN.server])
    await harness.delete(f"{SERVICES}/kubernetes")
    path = "/api/v1/namespaces/default/endpoints/kubernetes"
    await harness.patch(path, {"metadata": {"labels": None}})
    await server_objects.ensure_own_address(harness.api.resources, OWN, [OWN.server])
    other = OwnAddress("192.0.2.8", 6444, OWN.cidrs)
    await server_objects.ensure_own_address(harness.api.resources, other, [other.server])
    assert (await harness.get(f"{SERVICES}/kubernetes")).json["spec"]["clusterIP"] == "10.96.0.1"
    endpoints = (await harness.get(path)).json
    assert endpoints["subsets"][0]["addresses"] == [{"ip": "192.0.2.8"}]
    assert endpoints["metadata"]["labels"] == {"endpointslice.kubernetes.io/skip-mirror": "true"}
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    assert (await harness.get(f"{slices}/kubernetes")).json["ports"][0]["port"] == 6444


async def test_the_service_cidr_is_marked_ready_once(full_harness: ServerHarness) -> None:
    harness = full_harness
    path = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
    await harness.delete(path)
    await server_objects.ensure_service_cidr(harness.api.resources, OWN)
    made = (await harness.get(path)).json
    (condition,) = made["status"]["conditions"]
    assert (condition["status"], condition["message"]) == ("True", "Kubernetes default Service CIDR is ready")
    managers = {(entry["manager"], entry["operation"]) for entry in made["metadata"]["managedFields"]}
    assert managers == {("kubernetes-service-cidr-controller", "Apply"), ("kube-apiserver", "Update")}
    before = harness.store.revision
    await server_objects.ensure_service_cidr(harness.api.resources, OWN)
    assert harness.store.revision == before
    two = OwnAddress(OWN.ip, OWN.port, ["10.96.0.0/16", "fd00::/108"])
    await server_objects.ensure_service_cidr(harness.api.resources, two)
    assert (await harness.get(path)).json["spec"]["cidrs"] == two.cidrs


async def test_a_second_start_writes_nothing(full_harness: ServerHarness) -> None:
    before = full_harness.store.revision
    await bootstrap(full_harness.api.resources)
    assert full_harness.store.revision == before


async def test_system_namespaces_are_recreated(full_harness: ServerHarness, running: RunningLoops) -> None:
    running.start(system_namespaces(full_harness.api.resources).run())
    path = "/api/v1/namespaces/kube-node-lease"
    old = (await full_harness.get(path)).json
    await full_harness.delete(path)
    await full_harness.put(f"{path}/finalize", {"metadata": {"name": "kube-node-lease"}, "spec": {}})
    await full_harness.clock.advance(0)
    assert (await full_harness.get(path)).json["metadata"]["uid"] != old["metadata"]["uid"]


async def test_flow_schemas_report_missing_levels(full_harness: ServerHarness, running: RunningLoops) -> None:
    harness = full_harness
    running.start(flow_control.flow_schema_status(harness.api.resources).run())
    spec = {"priorityLevelConfiguration": {"name": "later"}, "matchingPrecedence": 500}
    await harness.make(f"{FLOWS}/flowschemas", {"metadata": {"name": "mine"}, "spec": spec})

    async def dangling() -> str:
        await harness.clock.advance(0)
        (condition,) = (await harness.get(f"{FLOWS}/flowschemas/mine")).json["status"]["conditions"]
        return f"{condition['status']} {condition['reason']}"

    assert await dangling() == "True NotFound"
    level = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    await harness.make(f"{FLOWS}/prioritylevelconfigurations", {"metadata": {"name": "later"}, "spec": level})
    assert await dangling() == "False Found"
    await harness.delete(f"{FLOWS}/prioritylevelconfigurations/later")
    assert await dangling() == "True NotFound"


async def test_default_configuration_is_restored_unless_taken_over(full_harness: ServerHarness) -> None:
    harness = full_harness
    schemas = f"{FLOWS}/flowschemas"
    before = harness.store.revision
    defaults = flow_control.DefaultConfiguration(harness.api.resources)
    await defaults.ensure()
    assert harness.store.revision == before
    await harness.patch(f"{schemas}/global-default", {"spec": {"matchingPrecedence": 9000}})
    mine = {"apf.kubernetes.io/autoupdate-spec": "false"}
    taken_over = {"metadata": {"annotations": mine}, "spec": {"matchingPrecedence": 901}}
    await harness.patch(f"{schemas}/kube-scheduler", taken_over)
    await harness.patch(f"{schemas}/system-nodes", {"metadata": {"annotations": None}})
    await harness.delete(f"{schemas}/probes")
    obsolete = {
        "metadata": {"name": "obsolete", "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}},
        "spec": {"priorityLevelConfiguration": {"name": "system"}, "matchingPrecedence": 5},
    }
    await harness.make(schemas, obsolete)
    await defaults.ensure()
    found = {item["metadata"]["name"]: item for item in (await harness.get(schemas)).json["items"]}
    assert found["global-default"]["spec"]["matchingPrecedence"] == 9900
    assert found["kube-scheduler"]["spec"]["matchingPrecedence"] == 901
    assert found["system-nodes"]["metadata"]["annotations"] == {"apf.kubernetes.io/autoupdate-spec": "true"}
    assert "probes" in found
    assert "obsolete" not in found


async def test_availability_of_api_services(full_harness: ServerHarness, running: RunningLoops) -> None:
    harness, problem = full_harness, "no route"

    async def probe(api_service: dict[str, object], service: dict[str, object]) -> str:
        return problem

    availability = ApiServices(harness.api.resources, probe)
    running.start(availability.loop.run())
    spec = {
        "group": "x.io",
        "version": "v1",
        "groupPriorityMinimum": 10,
        "versionPriority": 10,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": "far"},
    }
    await harness.make(API_SERVICES, {"metadata": {"name": "v1.x.io"}, "spec": spec})

    async def condition() -> tuple[str, str]:
        await harness.clock.advance(0)
        (condition,) = (await harness.get(f"{API_SERVICES}/v1.x.io")).json["status"]["conditions"]
        return condition["reason"], condition["message"]

    assert await condition() == ("ServiceNotFound", 'service/far in "default" is not present')
    await harness.make(SERVICES, {"metadata": {"name": "far"}, "spec": {"ports": [{"port": 80}]}})
    assert await condition() == ("ServicePortError", 'service/far in "default" is not listening on port 443')
    await harness.patch(f"{SERVICES}/far", {"spec": {"ports": [{"port": 443}]}})
    assert await condition() == ("EndpointsNotFound", 'cannot find endpointslices for service/far in "default"')
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    one = {
        "metadata": {"name": "far-1", "labels": {"kubernetes.io/service-name": "far"}},
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [{"name": "", "port": 443, "protocol": "TCP"}],
    }
    await harness.make(slices, one)
    assert (await condition())[0] == "MissingEndpoints"
    await harness.patch(f"{slices}/far-1", {"endpoints": [{"addresses": ["192.0.2.1"]}]})
    assert await condition() == ("FailedDiscoveryCheck", "no route")
    problem = ""
    await availability.recheck()
    assert await condition() == ("Passed", "all checks passed")
    await harness.patch(f"{API_SERVICES}/v1.x.io", {"spec": {"service": None, "insecureSkipTLSVerify": None}})
    assert (await condition())[0] == "Local"


async def test_expired_identity_leases_are_deleted(full_harness: ServerHarness) -> None:
    harness = full_harness
    old, new = (
        identity.IdentityLease(harness.api.resources, "old", OWN),
        identity.IdentityLease(harness.api.resources, "new", OWN),
    )
    await old.renew()
    await harness.clock.advance(3000)
    await new.renew()
    await harness.clock.advance(700)
    await new.collect()
    assert [item["metadata"]["name"] for item in (await harness.get(LEASES)).json["items"]] == [new.name]
