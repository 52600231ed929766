"""Story F1, versions: a webhook in a Pod of the cluster converts between them."""

from __future__ import annotations

from base64 import b64encode

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

CRDS = builtin("customresourcedefinitions", "apiextensions.k8s.io")
PODS = builtin("pods")


def _version(name: str, storage: bool, *fields: str) -> Obj:
    properties = {field: {"type": "string"} for field in fields}
    schema = {"type": "object", "properties": properties}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


# Simulated Pods show no certificate: any will do.
AUTHORITY = b64encode(b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n").decode()
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "doors.stable.example.com"},
    "spec": {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {"plural": "doors", "kind": "Door"},
        "versions": [_version("v1", True, "hostPort"), _version("v2", False, "host", "port")],
        "conversion": {
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {
                    "service": {"namespace": "default", "name": "converter", "path": "/crdconvert"},
                    "caBundle": AUTHORITY,
                },
            },
        },
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "converter", "namespace": "default"},
    "spec": {"selector": {"app": "converter"}, "ports": [{"port": 443, "targetPort": 9444}]},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "converter", "namespace": "default", "labels": {"app": "converter"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "registry.k8s.io/e2e-test-images/agnhost:2.59",
                "args": ["crd-conversion-webhook", "--port=9444", "--tls-cert-file=/x", "--tls-private-key-file=/y"],
                "readinessProbe": {"httpGet": {"scheme": "HTTPS", "port": 9444, "path": "/readyz"}},
            }
        ]
    },
}


@virtual(nodes=1)
async def test_f1_a_pod_converts_versions(cluster: VirtualCluster) -> None:
    client = cluster.client
    for obj in (SERVICE, POD, DEFINITION):
        await client.create(obj)

    async def ready() -> bool:
        conditions = (await client.get(PODS, "converter", "default")).get("status", {}).get("conditions") or ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    await cluster.until(ready)
    await cluster.sleep(2)
    old, new = ("stable.example.com/v1", "Door"), ("stable.example.com/v2", "Door")
    await client.create(
        {
            "apiVersion": new[0],
            "kind": "Door",
            "metadata": {"name": "front", "namespace": "default"},
            "host": "here",
            "port": "80",
        }
    )
    assert (await client.get(old, "front", "default"))["hostPort"] == "here:80"
    await client.patch(old, "front", {"hostPort": "there:81"}, "default")
    listed = await client.list(new, "default")
    assert [(item["host"], item["port"]) for item in listed.items] == [("there", "81")]
