"""Known vulnerabilities of other control planes that no other test covers through the API."""

from __future__ import annotations

import time
from typing import Any

import pytest
from server_harness import LIMITED_TOKEN, MERGE_PATCH, ServerHarness

from setpoint.apiserver.server import warning_headers

CORE = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def endpoints(address: str) -> dict[str, Any]:
    return {"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]}


def endpoint_slice(address: str) -> dict[str, Any]:
    family = "IPv6" if ":" in address else "IPv4"
    return {"metadata": {"name": "e"}, "addressType": family, "endpoints": [{"addresses": [address]}], "ports": []}


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "169.254.169.254", "224.0.0.1", "::1", "fe80::1"])
async def test_endpoints_cannot_be_loopback_or_link_local_addresses(harness: ServerHarness, address: str) -> None:
    """CVE-2021-25737: when they are made and when they are changed."""
    for path, made in ((f"{CORE}/endpoints", endpoints), (SLICES, endpoint_slice)):
        assert (await harness.post(path, made(address))).status == 422, path
        good = "fd00::9" if ":" in address else "10.0.0.9"
        await harness.make(path, made(good))
        bad = {key: value for key, value in made(address).items() if key in ("subsets", "endpoints")}
        assert (await harness.patch(f"{path}/e", bad)).status == 422, path


@pytest.mark.parametrize("role", ["edit", "admin"])
async def test_the_edit_role_cannot_write_endpoints(role: str) -> None:
    """CVE-2021-25740: by the roles that a cluster begins with."""
    harness = await ServerHarness.open(full=True)
    try:
        user = {"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}
        # A role that others are gathered into has their rules only when its controller has seen it.
        gathered = ["system:aggregate-to-edit", "system:aggregate-to-view"]
        gathered += ["system:aggregate-to-admin"] if role == "admin" else []
        for name in (role, *gathered):
            reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
            bound = {"metadata": {"name": name}, "roleRef": reference, "subjects": [user]}
            await harness.make(f"{RBAC}/namespaces/default/rolebindings", bound)
        config = await harness.post(f"{CORE}/configmaps", {"metadata": {"name": "mine"}}, token=LIMITED_TOKEN)
        assert config.status == 201, config.body
        for path, made in ((f"{CORE}/endpoints", endpoints), (SLICES, endpoint_slice)):
            assert (await harness.get(path, token=LIMITED_TOKEN)).status == 200
            assert (await harness.post(path, made("10.0.0.9"), token=LIMITED_TOKEN)).status == 403
            await harness.make(path, made("10.0.0.9"))
            for method in ("PUT", "PATCH", "DELETE"):
                body = None if method == "DELETE" else made("10.0.0.8")
                content = MERGE_PATCH if method == "PATCH" else "application/json"
                reply = await harness.request(method, f"{path}/e", body, content, token=LIMITED_TOKEN)
                assert reply.status == 403, (method, path)
            assert (await harness.delete(path, token=LIMITED_TOKEN)).status == 403
    finally:
        await harness.close()


async def test_external_ips_are_denied_by_the_admission_plugin() -> None:
    """CVE-2020-8554: an admission plugin, on by choice."""
    spec = {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}
    open_harness = await ServerHarness.open()
    await open_harness.make(f"{CORE}/services", {"metadata": {"name": "s"}, "spec": spec})
    await open_harness.close()
    harness = await ServerHarness.open(enable_admission_plugins=["DenyServiceExternalIPs"])
    try:
        reply = await harness.post(f"{CORE}/services", {"metadata": {"name": "s"}, "spec": spec})
        assert (reply.status, reply.json["reason"]) == (403, "Forbidden")
        await harness.make(f"{CORE}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
        assert (await harness.patch(f"{CORE}/services/s", {"spec": {"externalIPs": ["192.0.2.1"]}})).status == 403
    finally:
        await harness.close()


SECURE = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "capabilities": {"drop": ["ALL"]},
}
GOOD = {"name": "good", "image": "i", "securityContext": SECURE}
BAD = {"name": "bad", "image": "i", "securityContext": {**SECURE, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}}
TOLD = 'container "bad" must not include "CHOWN" in securityContext.capabilities.add'


async def test_pod_security_checks_every_kind_of_container(harness: ServerHarness) -> None:
    """CVE-2023-2727, CVE-2023-2728, CVE-2024-3177 have been of this kind."""
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    await harness.make("/api/v1/namespaces", {"metadata": {"name": "strict", "labels": label}})
    pods = "/api/v1/namespaces/strict/pods"
    for spec in ({"containers": [BAD]}, {"containers": [GOOD], "initContainers": [BAD]}):
        reply = await harness.post(pods, {"metadata": {"name": "p"}, "spec": spec})
        assert reply.status == 403 and TOLD in reply.message
    await harness.make(pods, {"metadata": {"name": "p"}, "spec": {"containers": [GOOD]}})
    for way in (MERGE_PATCH, "application/strategic-merge-patch+json"):
        added = {"spec": {"ephemeralContainers": [BAD]}}
        reply = await harness.patch(f"{pods}/p/ephemeralcontainers", added, way)
        assert reply.status == 403 and TOLD in reply.message
    added = {"spec": {"ephemeralContainers": [{**GOOD, "name": "e"}]}}
    assert (await harness.patch(f"{pods}/p/ephemeralcontainers", added)).status == 200


@pytest.mark.parametrize(
    "amount", ["0" * 100_000 + "!", "1" * 100_000 + "x", "." + "0" * 100_000, "1e" + "9" * 100_000]
)
async def test_invalid_quantities_are_rejected_in_linear_time(harness: ServerHarness, amount: str) -> None:
    """A pattern that tries all ways to tell digits apart takes minutes."""
    resources = {"requests": {"cpu": amount}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    started = time.process_time()
    reply = await harness.post(f"{CORE}/pods", {"metadata": {"name": "p"}, "spec": spec})
    assert 400 <= reply.status < 500 and time.process_time() - started < 2


MANY = "9" * 5000
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
POD_SPEC = TEMPLATE["spec"]


def workload(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE, **spec}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/apis/apps/v1/namespaces/default/deployments", workload(strategy={"rollingUpdate": {"maxSurge": MANY}})),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            workload(strategy={"rollingUpdate": {"maxUnavailable": f"{MANY}%"}}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"metadata": {"name": "b"}, "spec": {"minAvailable": f"{MANY}%"}},
        ),
        (
            f"{CORE}/pods",
            {
                "metadata": {"name": "p", "annotations": {"controller.kubernetes.io/pod-deletion-cost": MANY}},
                "spec": POD_SPEC,
            },
        ),
        (
            "/apis/apps/v1/namespaces/default/daemonsets",
            {
                **workload(),
                "metadata": {
                    "name": "d",
                    "annotations": {"deprecated.daemonset.template.generation": "0" * 5000 + "1" * 30},
                },
            },
        ),
        (f"{CORE}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": MANY}]}}),
        (
            "/apis/networking.k8s.io/v1/servicecidrs",
            {"metadata": {"name": "r"}, "spec": {"cidrs": [f"10.0.0.0/{MANY}"]}},
        ),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", f'{{"metadata":{{"name":"c"}},"value":{MANY}}}'.encode()),
    ],
    ids=["text", "percent", "budget", "cost", "generation", "port", "range", "number"],
)
async def test_numbers_of_unbounded_size_are_rejected(harness: ServerHarness, path: str, body: Any) -> None:
    reply = await harness.post(path, body)
    assert 400 <= reply.status < 500, (reply.status, reply.body[:200])


# -- warnings, which webhooks and policies may write ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "headers"),
    [
        (['a "b" \\ é'], ['299 - "a \\"b\\" \\\\ é"']),
        (["x\r\nSet-Cookie: a=b", "x\x1b[2J", "\x7f", "\x9bm", "\ud800", "", "left"], ['299 - "left"']),
        (["y" * 4096], [f'299 - "{"y" * 4096}"']),
        (["y" * 4097], [f'299 - "{"y" * 256}"']),
        ([f"{n:04}" + "z" * 400 for n in range(100)], [f'299 - "{n:04}{"z" * 252}"' for n in range(16)]),
    ],
    ids=["quoted", "control", "long", "longer", "many"],
)
def test_warnings_are_sanitized_and_bounded(texts: list[str], headers: list[str]) -> None:
    assert warning_headers(texts) == [("Warning", header) for header in headers]
