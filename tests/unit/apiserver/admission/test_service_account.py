from __future__ import annotations

from typing import Any

import pytest
from admission_attributes import FixedIds, ManualClock, ObjectReader, pod, write

from setpoint.apiserver.admission.service_account import ServiceAccount
from setpoint.meta.errors import Forbidden, PlainServerError

PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
ENFORCED = {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}
MIRROR = {"kubernetes.io/config.mirror": "x"}


@pytest.fixture
def plugin(reader: ObjectReader, clock: ManualClock, ids: FixedIds) -> ServiceAccount:
    return ServiceAccount(reader, clock, ids)


async def admitted(plugin: ServiceAccount, obj: dict[str, Any]) -> dict[str, Any]:
    attrs = write("pods", obj)
    await plugin.mutate(attrs)
    await plugin.validate(attrs)
    assert attrs.obj is not None
    spec: dict[str, Any] = attrs.obj["spec"]
    return spec


async def test_a_pod_gets_an_account_its_secrets_and_a_token(reader: ObjectReader, plugin: ServiceAccount) -> None:
    reader.put("", "serviceaccounts", "ns", "default", imagePullSecrets=[{"name": "pull"}])
    spec = await admitted(plugin, pod({"initContainers": [{"name": "i"}]}))
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    mount = {"name": "kube-api-access-bcdfg", "readOnly": True, "mountPath": PATH}
    assert spec["containers"][0]["volumeMounts"] == spec["initContainers"][0]["volumeMounts"] == [mount]
    assert spec["volumes"] == [
        {
            "name": "kube-api-access-bcdfg",
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {
                        "downwardAPI": {
                            "items": [
                                {
                                    "path": "namespace",
                                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                                }
                            ]
                        }
                    },
                ],
            },
        }
    ]


@pytest.mark.parametrize(
    ("account", "wish", "mounted"),
    [
        ({}, None, True),
        ({}, False, False),
        ({"automountServiceAccountToken": False}, None, False),
        ({"automountServiceAccountToken": False}, True, True),
    ],
)
async def test_the_pods_setting_precedes_the_accounts(
    reader: ObjectReader, plugin: ServiceAccount, account: dict[str, Any], wish: bool | None, mounted: bool
) -> None:
    reader.put("", "serviceaccounts", "ns", "default", **account)
    spec = await admitted(plugin, pod({} if wish is None else {"automountServiceAccountToken": wish}))
    assert ("volumes" in spec) is mounted


async def test_an_existing_mount_is_retained(reader: ObjectReader, plugin: ServiceAccount) -> None:
    reader.put("", "serviceaccounts", "ns", "default")
    mounts = [{"name": "mine", "mountPath": PATH}]
    spec = await admitted(plugin, pod(container={"volumeMounts": mounts}))
    assert spec["containers"][0]["volumeMounts"] == mounts
    assert "volumes" not in spec
    reused = await admitted(plugin, pod({"volumes": [{"name": "kube-api-access-old", "emptyDir": {}}]}))
    assert [volume["name"] for volume in reused["volumes"]] == ["kube-api-access-old"]
    assert reused["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-old"


async def test_waiting_for_the_default_account(
    reader: ObjectReader, plugin: ServiceAccount, clock: ManualClock
) -> None:
    def make_it() -> None:
        if clock.seconds > 0.25:
            reader.put("", "serviceaccounts", "ns", "default")

    clock.on_sleep = make_it
    assert (await admitted(plugin, pod()))["serviceAccountName"] == "default"
    assert 0.2 < clock.seconds < 0.5


async def test_a_missing_account(plugin: ServiceAccount, clock: ManualClock) -> None:
    with pytest.raises(Forbidden) as caught:
        await admitted(plugin, pod({"serviceAccountName": "none"}))
    assert caught.value.message == (
        'pods "x" is forbidden: error looking up service account ns/none: serviceaccount "none" not found'
    )
    assert clock.seconds == 0
    with pytest.raises(Forbidden, match="ns/default"):
        await admitted(plugin, pod())
    assert 0.5 < clock.seconds < 2


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (pod({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}), 'volume with secret.secretName="s"'),
        (
            pod({"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]}),
            'init container i with envFrom referencing secret.secretName="s"',
        ),
        (
            pod(
                {
                    "initContainers": [
                        {"name": "i", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}
                    ]
                }
            ),
            'init container i with envVar E referencing secret.secretName="s"',
        ),
        (pod(container={"envFrom": [{"secretRef": {"name": "s"}}]}), 'container c with envFrom .*="s"'),
        (
            pod(container={"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}),
            'container c with envVar E referencing secret.secretName="s"',
        ),
        (pod({"imagePullSecrets": [{"name": "s"}]}), r'imagePullSecrets\[0\].name="s"'),
    ],
)
async def test_mountable_secrets_are_enforced(
    reader: ObjectReader, plugin: ServiceAccount, obj: dict[str, Any], why: str
) -> None:
    """All kinds of references are checked (CVE-2024-3177 missed envFrom)."""
    reader.put("", "serviceaccounts", "ns", "default", metadata=ENFORCED, secrets=[{"name": "other"}])
    ending = " is not allowed because service account default does not reference that"
    with pytest.raises(Forbidden, match=why + ending):
        await admitted(plugin, obj)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, "envFrom"),
        ({"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}, "envVar E"),
    ],
)
async def test_ephemeral_containers_cannot_use_other_secrets(
    reader: ObjectReader, plugin: ServiceAccount, source: dict[str, Any], expected: str
) -> None:
    """Ephemeral containers are checked too (CVE-2023-2728)."""
    reader.put("", "serviceaccounts", "ns", "default", metadata=ENFORCED)
    debugger = {"name": "e", **source}
    obj = pod({"serviceAccountName": "default", "ephemeralContainers": [debugger]})
    attrs = write("pods", obj, pod({"serviceAccountName": "default"}), subresource="ephemeralcontainers")
    with pytest.raises(
        PlainServerError, match=rf'ephemeral container e with {expected} referencing .*="s" is not allowed'
    ):
        await plugin.validate(attrs)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"serviceAccountName": "a"}, "service accounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        ({"volumes": [{"name": "v", "cephfs": {"secretRef": {"name": "s"}}}]}, "secrets"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "ServiceAccountToken",
        ),
    ],
)
async def test_mirror_pods_are_not_changed(plugin: ServiceAccount, spec: dict[str, Any], why: str) -> None:
    plain = await admitted(plugin, pod(annotations=MIRROR))
    assert plain == pod()["spec"]
    with pytest.raises(Forbidden, match=f"a mirror pod may not (reference|use) {why}"):
        await admitted(plugin, pod(spec, annotations=MIRROR))
