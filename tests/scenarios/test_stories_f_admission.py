"""Story F1, admission: a webhook in a Pod of the cluster admits writes."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, InternalError
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS = builtin("pods")
# Simulated Pods show no certificate: any will do.
AUTHORITY = b64encode(b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n").decode()
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "hook", "namespace": "default"},
    "spec": {"selector": {"app": "hook"}, "ports": [{"port": 443, "targetPort": 8444}]},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "hook", "namespace": "default", "labels": {"app": "hook"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "registry.k8s.io/e2e-test-images/agnhost:2.59",
                "args": ["webhook", "--port=8444", "--tls-cert-file=/x", "--tls-private-key-file=/y"],
                "readinessProbe": {"httpGet": {"scheme": "HTTPS", "port": 8444, "path": "/readyz"}},
            }
        ]
    },
}


def _configuration(kind: str, path: str, authority: str = AUTHORITY, **more: Any) -> Obj:
    client = {"service": {"namespace": "default", "name": "hook", "path": path}}
    if authority:
        client["caBundle"] = authority  # type: ignore[assignment]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    hook = {
        "name": "a.example.com",
        "clientConfig": client,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }
    name = path.strip("/")
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [hook],
    }


def _config(name: str, **data: str) -> Obj:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@virtual(nodes=1)
async def test_f1_a_pod_admits_writes(cluster: VirtualCluster) -> None:
    client = cluster.client
    for obj in (SERVICE, POD):
        await client.create(obj)

    async def ready() -> bool:
        conditions = (await client.get(PODS, "hook", "default")).get("status", {}).get("conditions") or ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    await cluster.until(ready)
    await cluster.sleep(2)
    await client.create(_configuration("ValidatingWebhookConfiguration", "/configmaps"))
    await client.create(_configuration("MutatingWebhookConfiguration", "/mutating-configmaps"))
    made = await client.create(_config("good", **{"mutation-start": "yes"}))
    assert made["data"] == {"mutation-start": "yes", "mutation-stage-1": "yes"}
    with pytest.raises(ApiError, match="the configmap contains unwanted key and value"):
        await client.create(_config("bad", **{"webhook-e2e-test": "webhook-disallow"}))

    slow = builtin("validatingwebhookconfigurations", "admissionregistration.k8s.io")
    await client.delete(slow, "configmaps")
    await client.create(_configuration("ValidatingWebhookConfiguration", "/always-allow-delay-5s", timeoutSeconds=1))
    with pytest.raises(InternalError, match=r'delay-5s\?timeout=1s": context deadline exceeded'):
        await client.create(_config("late"))
    await client.delete(slow, "always-allow-delay-5s")
    await client.create(_configuration("ValidatingWebhookConfiguration", "/configmaps", authority=""))
    with pytest.raises(InternalError, match="certificate signed by unknown authority"):
        await client.create(_config("unbelieved"))
