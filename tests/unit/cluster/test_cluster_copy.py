"""Copies of a cluster: exact, at rest, and without what leads out of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from virtual_commands import run_command, run_successfully

from setpoint.cluster.cluster_copy import copied, copied_store, last_copy
from setpoint.cluster.snapshot_file import INCLUDED, LEFT_OUT, REDACTED, SnapshotReader
from setpoint.cluster.twin import first_look
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import Forbidden
from setpoint.store.sqlite_file import acquire_lock
from setpoint.testing import VirtualCluster, run_virtual, virtual
from setpoint.testing.virtual_time import VirtualClock

POD = {"containers": [{"name": "a", "image": "nginx:1.27", "readinessProbe": {"httpGet": {"port": 80}}}]}


def workload(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": POD}
    more: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": more}


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
JOB = {
    "template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "busybox", "command": ["true"]}]}
    }
}
SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
DEFINITION = {
    "group": "example.com",
    "scope": "Namespaced",
    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}],
}
WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://example.invalid/"},
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "failurePolicy": "Ignore",
    "rules": [{"apiGroups": ["x.example.com"], "apiVersions": ["v1"], "resources": ["y"], "operations": ["CREATE"]}],
}


def named(api_version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    namespace = (
        {} if kind in ("CustomResourceDefinition", "ValidatingWebhookConfiguration") else {"namespace": "default"}
    )
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **namespace}, **more}


OBJECTS = [
    workload("Deployment", "web", replicas=3),
    workload(
        "StatefulSet",
        "db",
        replicas=2,
        serviceName="db",
        volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": CLAIM}],
    ),
    workload("DaemonSet", "agent"),
    named("batch/v1", "Job", "once", spec=JOB),
    named("batch/v1", "CronJob", "hourly", spec={"schedule": "0 * * * *", "jobTemplate": {"spec": JOB}}),
    named("v1", "Service", "web", spec={"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]}),
    named(
        "policy/v1", "PodDisruptionBudget", "web", spec={"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    ),
    named("v1", "Secret", "key", data={"password": "aHVudGVyMg=="}),
    named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", spec=DEFINITION),
    named("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "hook", webhooks=[WEBHOOK]),
]
OPTIONS = ControllerOptions(allocate_node_cidrs=True, cluster_cidr="10.244.0.0/16")


@virtual(nodes=3, control_plane_pods=True, controller_options=OPTIONS)
async def test_a_copy_is_exact_and_at_rest(cluster: VirtualCluster, tmp_path: Path) -> None:
    for each in OBJECTS:
        await cluster.client.create(each)
    await cluster.settle()
    await cluster.client.create(named("example.com/v1", "Widget", "one", spec={"size": 1}))
    await cluster.settle()
    await cluster.advance("2m")
    fingerprint = cluster.fingerprint()

    stored = await copied_store(cluster.embedded.store, cluster.clock.now())
    copy = await copied(cluster.client, cluster.clock.now(), secrets=INCLUDED, events=True)
    assert copy.left_out == []
    assert copy.digest() == stored.digest(), "what is read by lists is what is stored, byte for byte"

    twin = await copied(cluster.client, cluster.clock.now(), namespaces=["default"])
    assert twin.secrets == REDACTED
    assert b'"password":""' in twin.objects["core/secrets/default/key"].value
    assert not any(key.startswith("core/pods/kube-system/") for key in twin.objects)
    without = await copied(cluster.client, cluster.clock.now(), secrets=LEFT_OUT)
    assert without.left_out == ["Secrets are left out."] and "core/secrets/default/key" not in without.objects
    assert copy.isolated().left_out == ["The webhooks of hook are not called."]

    await run_successfully(cluster, f"snapshot save {tmp_path / 'a.setpoint'} --secrets", tmp_path)
    shown = await run_successfully(cluster, f"snapshot show {tmp_path / 'a.setpoint'}", tmp_path)
    manifests = await run_successfully(cluster, f"snapshot show {tmp_path / 'a.setpoint'} -o yaml", tmp_path)
    printed = [*yaml.safe_load_all(manifests)]
    assert len(printed) == len(copy.objects)
    assert ("Widget", "one") in [(each["kind"], each["metadata"]["name"]) for each in printed]
    assert "Secrets:     included\n" in shown and "        1  widgets.example.com\n" in shown
    saved = last_copy(SnapshotReader(tmp_path / "a.setpoint"))
    assert saved.digest() == copy.digest()
    loaded = await run_successfully(
        cluster, f"snapshot load {tmp_path / 'a.setpoint'} --data-dir {tmp_path / 'new'}", tmp_path
    )
    assert f"continues at revision {copy.revision}." in loaded and (tmp_path / "new" / "state.db").exists()
    again = await run_command(
        cluster, f"snapshot load {tmp_path / 'a.setpoint'} --data-dir {tmp_path / 'new'}", tmp_path
    )
    assert again.code == 1 and "there is a database" in again.err
    lock = acquire_lock(tmp_path / "new" / "state.db")  # as a running server does
    try:
        used = await run_command(
            cluster, f"snapshot load {tmp_path / 'a.setpoint'} --data-dir {tmp_path / 'new'}", tmp_path
        )
    finally:
        os.close(lock)
    assert used.code == 1 and "is in use by another process" in used.err
    assert cluster.fingerprint() == fingerprint, "copies are made with get and list requests alone"

    look = await asyncio.to_thread(run_virtual, first_look, saved)
    assert (look.settled, look.events, look.added, look.unfinished) == (True, [], [], [])


@virtual(nodes=2)
async def test_nodes_that_are_away_stay_away(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", "web", replicas=2))
    await cluster.settle()
    await cluster.stop("fleet")
    await cluster.advance("2m")
    copy = await copied(cluster.client, cluster.clock.now())
    look = await asyncio.to_thread(run_virtual, first_look, copy)
    assert look.settled, "what remains unfinished is waited for, and reported"
    assert [each for each in look.events if each.actor.startswith("kubelet")] == []
    assert [each.problem for each in look.unfinished if each.kind == "Node"] == ["is not ready: NodeStatusUnknown"] * 2


@virtual(nodes=1)
async def test_what_may_not_be_read_is_named(cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = cluster.client.list

    async def refusing(resource: Any, *args: Any, **options: Any) -> Any:
        if getattr(resource, "plural", "") in ("secrets", "roles"):
            raise Forbidden("no")
        return await lists(resource, *args, **options)

    monkeypatch.setattr(cluster.client, "list", refusing)
    copy = await copied(cluster.client, VirtualClock().now())
    assert copy.left_out == ["secrets may not be listed.", "roles.rbac.authorization.k8s.io may not be listed."]
