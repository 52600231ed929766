"""Definitions in the style of well-known projects install and serve: what controller-gen writes, and what people add."""
# ruff: noqa: E501 (manifests are as they come)

from __future__ import annotations

from typing import Any

import pytest
from custom_door import CRDS, CustomDoor, messages
from front_door import APPLY, YAML, settle

CERTIFICATES = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: certificates.certs.example.io
  annotations: {controller-gen.kubebuilder.io/version: v0.16.5}
  labels: {app.kubernetes.io/name: certs}
spec:
  group: certs.example.io
  names: {kind: Certificate, listKind: CertificateList, plural: certificates, shortNames: [cert, certs], singular: certificate, categories: [certs]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    selectableFields:
    - {jsonPath: .spec.issuerRef.group}
    - {jsonPath: .spec.issuerRef.kind}
    - {jsonPath: .spec.issuerRef.name}
    additionalPrinterColumns:
    - {jsonPath: '.status.conditions[?(@.type=="Ready")].status', name: Ready, type: string}
    - {jsonPath: .spec.secretName, name: Secret, type: string}
    - {jsonPath: .spec.issuerRef.name, name: Issuer, priority: 1, type: string}
    - {jsonPath: .metadata.creationTimestamp, name: Age, type: date}
    schema:
      openAPIV3Schema:
        type: object
        description: |-
          A certificate that is wanted,

          and kept in a Secret.
        properties:
          apiVersion: {type: string, description: The version.}
          kind: {type: string, description: The kind.}
          metadata: {type: object}
          spec:
            type: object
            required: [issuerRef, secretName]
            properties:
              dnsNames: {type: array, items: {type: string}, x-kubernetes-list-type: atomic}
              duration: {type: string}
              issuerRef:
                type: object
                required: [name]
                properties: {group: {type: string}, kind: {type: string}, name: {type: string}}
              privateKey:
                type: object
                properties:
                  algorithm: {type: string, enum: [RSA, ECDSA, Ed25519]}
                  rotationPolicy: {type: string, enum: [Never, Always]}
                  size: {type: integer}
              revisionHistoryLimit: {type: integer, format: int32}
              secretName: {type: string}
              secretTemplate:
                type: object
                properties:
                  annotations: {type: object, additionalProperties: {type: string}}
                  labels: {type: object, additionalProperties: {type: string}}
              usages:
                type: array
                items: {type: string, enum: [signing, digital signature, server auth, client auth]}
          status:
            type: object
            properties:
              conditions:
                type: array
                x-kubernetes-list-map-keys: [type]
                x-kubernetes-list-type: map
                items:
                  type: object
                  required: [status, type]
                  properties:
                    lastTransitionTime: {type: string, format: date-time}
                    message: {type: string}
                    observedGeneration: {type: integer, format: int64}
                    reason: {type: string}
                    status: {type: string, enum: ["True", "False", Unknown]}
                    type: {type: string}
              notAfter: {type: string, format: date-time}
"""
MONITORS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.example.com}
spec:
  group: monitoring.example.com
  names: {categories: [prometheus-operator], kind: ServiceMonitor, listKind: ServiceMonitorList, plural: servicemonitors, shortNames: [smon], singular: servicemonitor}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            type: object
            required: [endpoints, selector]
            properties:
              endpoints:
                type: array
                items:
                  type: object
                  properties:
                    interval: {type: string, pattern: '^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$'}
                    params: {type: object, additionalProperties: {type: array, items: {type: string}}}
                    port: {type: string}
                    scheme: {type: string, enum: [http, https]}
                    targetPort: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}
              sampleLimit: {type: integer, format: int64}
              selector:
                type: object
                x-kubernetes-map-type: atomic
                properties:
                  matchExpressions:
                    type: array
                    x-kubernetes-list-type: atomic
                    items:
                      type: object
                      required: [key, operator]
                      properties:
                        key: {type: string}
                        operator: {type: string}
                        values: {type: array, items: {type: string}, x-kubernetes-list-type: atomic}
                  matchLabels: {type: object, additionalProperties: {type: string}}
              storage:
                type: object
                properties:
                  limit:
                    anyOf: [{type: integer}, {type: string}]
                    pattern: ^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$
                    x-kubernetes-int-or-string: true
"""
APPLICATIONS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applications.deploy.example.io}
spec:
  group: deploy.example.io
  names: {kind: Application, listKind: ApplicationList, plural: applications, shortNames: [app, apps], singular: application}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {}
    additionalPrinterColumns:
    - {jsonPath: .status.sync.status, name: Sync Status, type: string}
    - {jsonPath: .status.health.status, name: Health Status, type: string}
    - {jsonPath: .status.sync.revision, name: Revision, priority: 10, type: string}
    schema:
      openAPIV3Schema:
        type: object
        required: [metadata, spec]
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          operation:
            type: object
            properties:
              info: {type: array, items: {type: object, required: [name, value], properties: {name: {type: string}, value: {type: string}}}}
              retry: {type: object, properties: {limit: {type: integer, format: int64}}}
          spec:
            type: object
            required: [destination]
            properties:
              destination: {type: object, properties: {namespace: {type: string}, server: {type: string}}}
              ignoreDifferences: {type: array, items: {type: object, required: [kind], properties: {kind: {type: string}, jsonPointers: {type: array, items: {type: string}}}}}
              source:
                type: object
                required: [repoURL]
                properties:
                  helm:
                    type: object
                    properties:
                      values: {type: string}
                      valuesObject: {type: object, x-kubernetes-preserve-unknown-fields: true}
                  repoURL: {type: string}
                  targetRevision: {type: string}
          status:
            type: object
            properties:
              health: {type: object, properties: {status: {type: string}}}
              resources: {type: array, items: {type: object, properties: {kind: {type: string}, name: {type: string}}}}
              sync: {type: object, required: [status], properties: {revision: {type: string}, status: {type: string}}}
"""


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
