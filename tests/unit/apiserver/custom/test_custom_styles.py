"""Definitions in the style of well-known projects can be installed and served."""

from __future__ import annotations

from typing import Any

import pytest
from custom_resource_harness import CRDS, CustomResourceHarness, messages
from definition_styles import APPLICATIONS, CERTIFICATES, MONITORS
from server_harness import APPLY, YAML, settle


async def install(harness: CustomResourceHarness, manifest: str) -> str:
    """Create the definition and return the path of its objects."""
    reply = await harness.post(CRDS, manifest.encode(), YAML)
    assert reply.status == 201, reply.body
    await settle(40)
    made = await harness.definition(reply.json["metadata"]["name"])
    assert harness.condition(made, "Established") == "InitialNamesAccepted"
    assert not harness.condition(made, "NonStructuralSchema")
    spec = made["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/namespaces/default/{spec['names']['plural']}"


def of(path: str, kind: str, spec: Any, **more: Any) -> dict[str, Any]:
    group, version = path.split("/")[2:4]
    return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "x"}, "spec": spec, **more}


async def test_certificates(harness: CustomResourceHarness) -> None:
    path = await install(harness, CERTIFICATES)
    await harness.make(
        path, of(path, "Certificate", {"secretName": "tls", "issuerRef": {"name": "ca", "kind": "Issuer"}})
    )
    wrong = of(
        path, "Certificate", {"secretName": "x", "issuerRef": {}, "usages": ["no"], "privateKey": {"algorithm": "X"}}
    )
    assert messages(await harness.post(path, wrong)) == [
        "spec.issuerRef.name: Required value",
        'spec.privateKey.algorithm: Unsupported value: "X": supported values: "RSA", "ECDSA", "Ed25519"',
        'spec.usages[0]: Unsupported value: "no": supported values: "signing", "digital signature", "server auth", '
        '"client auth"',
    ]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for manager, condition in (("issuer", ready), ("other", {"type": "Issuing", "status": "False"})):
        applied = of(path, "Certificate", None, status={"conditions": [condition]})
        del applied["spec"]
        reply = await harness.patch(f"{path}/x/status?fieldManager={manager}", applied, APPLY)
        assert reply.status == 200, reply.body
    assert [one["type"] for one in reply.json["status"]["conditions"]] == ["Ready", "Issuing"]
    table = (await harness.get(path, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})).json
    assert table["rows"][0]["cells"][:4] == ["x", "True", "tls", "ca"]
    assert len((await harness.get(f"{path}?fieldSelector=spec.issuerRef.kind=Issuer")).json["items"]) == 1


async def test_monitors(harness: CustomResourceHarness) -> None:
    path = await install(harness, MONITORS)
    endpoint = {"interval": "30s", "targetPort": "web", "params": {"a": ["b"]}}
    spec = {
        "endpoints": [endpoint, {"targetPort": 80}],
        "selector": {"matchLabels": {"a": "b"}},
        "storage": {"limit": "1Gi"},
    }
    made = await harness.make(path, of(path, "ServiceMonitor", spec))
    assert made["spec"] == spec
    bad = {**spec, "endpoints": [{"interval": "soon", "targetPort": True}], "storage": {"limit": "much"}}
    found = messages(await harness.post(path, of(path, "ServiceMonitor", bad)))
    assert [text.partition(":")[0] for text in found] == [
        "<nil>",
        "spec.endpoints[0].interval",
        "spec.endpoints[0].targetPort",
        "spec.endpoints[0].targetPort",
        "spec.storage.limit",
    ]


async def test_applications(harness: CustomResourceHarness) -> None:
    path = await install(harness, APPLICATIONS)
    values = {"replicas": 2, "nested": {"list": [1, {"a": None}]}}
    spec = {"destination": {"server": "here"}, "source": {"repoURL": "r", "helm": {"valuesObject": values}}}
    status = {"sync": {"status": "Synced", "revision": "abc"}, "health": {"status": "Healthy"}}
    made = await harness.make(path, of(path, "Application", spec, status=status, operation={"retry": {"limit": 2}}))
    assert made["spec"]["source"]["helm"]["valuesObject"] == values
    assert made["status"] == status  # there is no status subresource
    changed = await harness.patch(f"{path}/x", {"status": {"health": {"status": "Degraded"}}})
    assert changed.json["metadata"]["generation"] == 2
    assert (await harness.get(f"{path}/x/status")).status == 404


@pytest.mark.parametrize("manifest", [CERTIFICATES, MONITORS, APPLICATIONS], ids=["certs", "monitors", "applications"])
async def test_they_can_be_applied_again_and_deleted(harness: CustomResourceHarness, manifest: str) -> None:
    path = await install(harness, manifest)
    name = f"{path.split('/')[-1]}.{path.split('/')[2]}"
    again = await harness.patch(f"{CRDS}/{name}?fieldManager=kubectl&force=true", manifest.encode(), APPLY)
    assert again.status == 200
    assert f"apis/{path.split('/')[2]}/{path.split('/')[3]}" in (await harness.get("/openapi/v3")).json["paths"]
    await harness.delete(f"{CRDS}/{name}")
    await settle(60)
    assert (await harness.get(path)).status == 404
