"""Definitions in the style of well-known projects install and serve."""

from __future__ import annotations

from typing import Any

import pytest
from custom_door import CRDS, CustomDoor, messages
from definition_styles import APPLICATIONS, CERTIFICATES, MONITORS
from front_door import APPLY, YAML, settle


async def install(door: CustomDoor, manifest: str) -> str:
    """Returns where its objects live."""
    reply = await door.post(CRDS, manifest.encode(), YAML)
    assert reply.status == 201, reply.body
    await settle(40)
    made = await door.definition(reply.json["metadata"]["name"])
    assert door.condition(made, "Established") == "InitialNamesAccepted"
    assert not door.condition(made, "NonStructuralSchema")
    spec = made["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/namespaces/default/{spec['names']['plural']}"


def of(path: str, kind: str, spec: Any, **more: Any) -> dict[str, Any]:
    group, version = path.split("/")[2:4]
    return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "x"}, "spec": spec, **more}


async def test_certificates(door: CustomDoor) -> None:
    path = await install(door, CERTIFICATES)
    await door.make(path, of(path, "Certificate", {"secretName": "tls", "issuerRef": {"name": "ca", "kind": "Issuer"}}))
    wrong = of(
        path, "Certificate", {"secretName": "x", "issuerRef": {}, "usages": ["no"], "privateKey": {"algorithm": "X"}}
    )
    assert messages(await door.post(path, wrong)) == [
        "spec.issuerRef.name: Required value",
        'spec.privateKey.algorithm: Unsupported value: "X": supported values: "RSA", "ECDSA", "Ed25519"',
        'spec.usages[0]: Unsupported value: "no": supported values: "signing", "digital signature", "server auth", '
        '"client auth"',
    ]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for manager, condition in (("issuer", ready), ("other", {"type": "Issuing", "status": "False"})):
        applied = of(path, "Certificate", None, status={"conditions": [condition]})
        del applied["spec"]
        reply = await door.patch(f"{path}/x/status?fieldManager={manager}", applied, APPLY)
        assert reply.status == 200, reply.body
    assert [one["type"] for one in reply.json["status"]["conditions"]] == ["Ready", "Issuing"]
    table = (await door.get(path, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})).json
    assert table["rows"][0]["cells"][:4] == ["x", "True", "tls", "ca"]
    assert len((await door.get(f"{path}?fieldSelector=spec.issuerRef.kind=Issuer")).json["items"]) == 1


async def test_monitors(door: CustomDoor) -> None:
    path = await install(door, MONITORS)
    endpoint = {"interval": "30s", "targetPort": "web", "params": {"a": ["b"]}}
    spec = {
        "endpoints": [endpoint, {"targetPort": 80}],
        "selector": {"matchLabels": {"a": "b"}},
        "storage": {"limit": "1Gi"},
    }
    made = await door.make(path, of(path, "ServiceMonitor", spec))
    assert made["spec"] == spec
    bad = {**spec, "endpoints": [{"interval": "soon", "targetPort": True}], "storage": {"limit": "much"}}
    found = messages(await door.post(path, of(path, "ServiceMonitor", bad)))
    assert [text.partition(":")[0] for text in found] == [
        "<nil>", "spec.endpoints[0].interval", "spec.endpoints[0].targetPort", "spec.endpoints[0].targetPort",
        "spec.storage.limit",
    ]  # fmt: skip


async def test_applications(door: CustomDoor) -> None:
    path = await install(door, APPLICATIONS)
    values = {"replicas": 2, "nested": {"list": [1, {"a": None}]}}
    spec = {"destination": {"server": "here"}, "source": {"repoURL": "r", "helm": {"valuesObject": values}}}
    status = {"sync": {"status": "Synced", "revision": "abc"}, "health": {"status": "Healthy"}}
    made = await door.make(path, of(path, "Application", spec, status=status, operation={"retry": {"limit": 2}}))
    assert made["spec"]["source"]["helm"]["valuesObject"] == values
    assert made["status"] == status  # there is no status subresource
    changed = await door.patch(f"{path}/x", {"status": {"health": {"status": "Degraded"}}})
    assert changed.json["metadata"]["generation"] == 2
    assert (await door.get(f"{path}/x/status")).status == 404


@pytest.mark.parametrize("manifest", [CERTIFICATES, MONITORS, APPLICATIONS], ids=["certs", "monitors", "applications"])
async def test_they_can_be_applied_again_and_go(door: CustomDoor, manifest: str) -> None:
    path = await install(door, manifest)
    name = f"{path.split('/')[-1]}.{path.split('/')[2]}"
    again = await door.patch(f"{CRDS}/{name}?fieldManager=kubectl&force=true", manifest.encode(), APPLY)
    assert again.status == 200
    assert f"apis/{path.split('/')[2]}/{path.split('/')[3]}" in (await door.get("/openapi/v3")).json["paths"]
    await door.delete(f"{CRDS}/{name}")
    await settle(60)
    assert (await door.get(path)).status == 404
