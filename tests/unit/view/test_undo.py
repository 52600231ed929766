"""Plans of undo and restore: what is done in each case, what prevents it, and what is not done."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from effort import tries

from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.patch.json_patch import apply_json_patch
from setpoint.view.desired_state import desired, set_back
from setpoint.view.made_anew import Taken
from setpoint.view.undo import Planner
from setpoint.view.undo_plan import ObjectRef, Options, Plan

_PLURALS = {
    "ConfigMap": ("", "configmaps"),
    "Secret": ("", "secrets"),
    "Service": ("", "services"),
    "Endpoints": ("", "endpoints"),
    "Pod": ("", "pods"),
    "Namespace": ("", "namespaces"),
    "Event": ("", "events"),
    "Node": ("", "nodes"),
    "ServiceAccount": ("", "serviceaccounts"),
    "PersistentVolume": ("", "persistentvolumes"),
    "PersistentVolumeClaim": ("", "persistentvolumeclaims"),
    "Deployment": ("apps", "deployments"),
    "ReplicaSet": ("apps", "replicasets"),
    "StatefulSet": ("apps", "statefulsets"),
    "Job": ("batch", "jobs"),
    "Lease": ("coordination.k8s.io", "leases"),
    "CustomResourceDefinition": ("apiextensions.k8s.io", "customresourcedefinitions"),
    "Shop": ("example.com", "shops"),
    "RoleBinding": ("rbac.authorization.k8s.io", "rolebindings"),
}
_CLUSTER_SCOPED = ("Namespace", "Node", "PersistentVolume", "CustomResourceDefinition")


def ref(kind: str, name: str = "x") -> ObjectRef:
    group, plural = _PLURALS[kind]
    return ObjectRef(group, "v1", plural, kind, "" if kind in _CLUSTER_SCOPED else "default", name)


def made(kind: str, name: str = "x", uid: str = "", meta: Obj | None = None, **fields: Any) -> Obj:
    namespace = {} if kind in _CLUSTER_SCOPED else {"namespace": "default"}
    system = {"uid": uid or f"old-{name}", "resourceVersion": "7", "managedFields": [{"manager": "m"}], "generation": 2}
    return {"metadata": {"name": name, **namespace, **system, **(meta or {})}, **fields}


def owned_by(kind: str, name: str, uid: str, controller: bool = False) -> Obj:
    api_version = f"{_PLURALS[kind][0]}/v1" if _PLURALS[kind][0] else "v1"
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return {"ownerReferences": [{**reference, "controller": True} if controller else reference]}


class Present:
    def __init__(self, *objects: tuple[str, Obj]) -> None:
        self._objects = objects

    def find(self, api_version: str, kind: str, namespace: str, name: str) -> ObjView | None:
        found = (obj for known, obj in self._objects if known == kind and obj["metadata"]["name"] == name)
        return next(found, None)

    def taken(self) -> Taken:
        return Taken.by(obj for kind, obj in self._objects if kind == "Service")


def planner(*present: tuple[str, Obj], **options: bool) -> Planner:
    return Planner(
        Present(*present),
        Options(options.get("force", False), options.get("replace", False), options.get("prune", False)),
    )


def undone(kind: str, before: Obj, after: Obj, now: Obj | None = None, **options: bool) -> Plan:
    found = planner(**options)
    found.update(ref(kind), before, after, after if now is None else now)
    return found.plan()


def recreated(kind: str, obj: Obj, *present: tuple[str, Obj]) -> tuple[Obj, Plan]:
    found = planner(*present)
    found.create(ref(kind), obj)
    plan = found.plan()
    return plan.steps[0].body, plan


# -- fields ------------------------------------------------------------------------------------------------------------

CONTAINERS = [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]


def containers(**images: str) -> Obj:
    items = [{"name": name, "image": image} for name, image in images.items()]
    return {"spec": {"template": {"spec": {"containers": items}}}}


@pytest.mark.parametrize(
    ("before", "after", "now", "expected", "text"),
    [
        ({"spec": {"replicas": 4}}, {"spec": {"replicas": 3}}, None, {"spec": {"replicas": 4}}, "spec.replicas 3 -> 4"),
        # Other fields keep their values.
        (
            {"spec": {"a": 1, "b": 1}},
            {"spec": {"a": 2, "b": 1}},
            {"spec": {"a": 2, "b": 5, "c": 1}},
            {"spec": {"a": 1, "b": 5, "c": 1}},
            "spec.a 2 -> 1",
        ),
        ({"data": {"k": "1"}}, {"data": {"k": "1", "l": "2"}}, None, {"data": {"k": "1"}}, "data.l removed (was 2)"),
        ({"data": {"k": "1"}}, {}, None, {"data": {"k": "1"}}, "data.k set to 1"),
        ({}, {"data": {"k": "1"}}, None, {}, "data.k removed (was 1)"),
        (
            containers(a="a:1", b="b:1"),
            containers(a="a:2", b="b:1"),
            containers(b="b:9", a="a:2"),
            containers(b="b:9", a="a:1"),
            "spec.template.spec.containers[name=a].image a:2 -> a:1",
        ),
        # An item comes back at its place, and the order of a list is a change, too.
        (containers(a="1", b="1", c="1"), containers(a="1", c="1"), None, containers(a="1", b="1", c="1"), "[name=b]"),
        (containers(a="1", b="1"), containers(b="1", a="1"), None, containers(a="1", b="1"), "spec"),
        ({"rules": [1, 2]}, {"rules": [2]}, None, {"rules": [1, 2]}, "rules [2] -> [1,2]"),
    ],
)
def test_changed_fields_are_set_back(before: Obj, after: Obj, now: Obj | None, expected: Obj, text: str) -> None:
    present = made("Deployment", **(after if now is None else now))
    plan = undone("Deployment", made("Deployment", **before), made("Deployment", **after), present)
    (step,) = plan.steps
    assert text in step.text and not plan.conflicts
    assert (step.method, step.path) == ("PATCH", "/apis/apps/v1/namespaces/default/deployments/x")
    assert desired(apply_json_patch(deepcopy(present), step.body)) == desired(made("Deployment", **expected))
    assert step.body[0] == {"op": "test", "path": "/metadata/uid", "value": "old-x"}
    assert step.to_json()["request"]["query"] == "fieldManager=setpoint-undo"


def test_a_field_that_was_changed_again_is_a_conflict() -> None:
    before, after, now = (made("ConfigMap", data={"a": a, "b": b}) for a, b in (("1", "1"), ("2", "2"), ("3", "2")))
    plan = undone("ConfigMap", before, after, now)
    assert not plan.steps
    assert [(each.text, each.solved_by) for each in plan.conflicts] == [
        ("data.a is 3 by now, to be set back to 1", "force")
    ]
    (step,) = undone("ConfigMap", before, after, now, force=True).steps
    assert step.text == "data.a 3 -> 1, data.b 2 -> 1"
    # Nothing to do for a field that has its former value again.
    reason = "it has its former value already"
    assert undone("ConfigMap", before, after, before) == Plan(
        not_done=[(f"data.{each} of configmap/x (default)", reason) for each in "ab"]
    )
    assert undone("ConfigMap", before, before, before) == Plan(
        not_done=[("configmap/x (default)", "the write did not change the desired state")]
    )
    secret = undone("Secret", *(made("Secret", data={"a": value}) for value in ("b25l", "dHdv", "dGhyZWU=")))
    assert secret.conflicts[0].text == "data.a was changed since"
    other = undone("ConfigMap", before, after, made("ConfigMap", uid="another"))
    assert other.conflicts[0].text == "another object of this name has been created since"
    gone = planner()
    gone.update(ref("ConfigMap"), before, after, None)
    assert gone.plan().conflicts[0].text == "was deleted since"
    # The annotation of kubectl apply follows the other fields, and is no conflict of its own.
    last = "kubectl.kubernetes.io/last-applied-configuration"
    applied = [made("ConfigMap", meta={"annotations": {last: n}}, data={"a": n, "b": b}) for n, b in ("11", "21", "23")]
    applied[2]["metadata"]["annotations"][last] = "3"
    plan = undone("ConfigMap", *applied)
    assert [each.text for each in plan.steps] == ["data.a 2 -> 1"] and not plan.conflicts


def test_the_status_and_the_metadata_of_the_system_are_left() -> None:
    before, after = made("Pod", status={"phase": "Pending"}), made("Pod", status={"phase": "Running"})
    after["metadata"]["finalizers"] = ["example.com/f"]
    plan = undone("Pod", before, after)
    assert not plan.steps and not plan.conflicts
    assert plan.not_done == [
        ("status of pod/x (default)", "the status is what was observed"),
        ("metadata.finalizers of pod/x (default)", "only the desired state is set back"),
    ]
    bound = undone("Pod", made("Pod", spec={}), made("Pod", spec={"nodeName": "n"}))
    assert bound.not_done == [("spec.nodeName of pod/x (default)", "a component of the system writes it")]
    child = made("ReplicaSet", meta=owned_by("Deployment", "web", "u", controller=True), spec={"replicas": 3})
    plan = undone("ReplicaSet", {**child, "spec": {"replicas": 1}}, child)
    assert plan.warnings == ["replicaset.apps/x (default) belongs to deployment/web, which may change it again"]


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("Deployment", {"spec": {"selector": {"matchLabels": {"a": "1"}}}}, {"spec": {"selector": {}}}),
        ("StatefulSet", {"spec": {"volumeClaimTemplates": [1]}}, {"spec": {"volumeClaimTemplates": [2]}}),
        ("Secret", {"type": "a"}, {"type": "b"}),
        ("ConfigMap", {"data": {"a": "1"}, "immutable": True}, {"data": {"a": "2"}, "immutable": True}),
        ("RoleBinding", {"roleRef": {"name": "a"}}, {"roleRef": {"name": "b"}}),
        ("PersistentVolumeClaim", {"spec": {"storageClassName": "a"}}, {"spec": {"storageClassName": "b"}}),
    ],
)
def test_immutable_fields_are_conflicts_or_objects_are_replaced(kind: str, old: Obj, new: Obj) -> None:
    before, after = made(kind, **old), made(kind, **new)
    plan = undone(kind, before, after)
    assert not plan.steps and plan.conflicts[0].solved_by == "replace"
    delete, create = undone(kind, before, after, replace=True).steps
    assert (delete.method, delete.body["preconditions"]) == ("DELETE", {"uid": "old-x"})
    assert (create.method, create.awaits) == ("POST", "AlreadyExists")
    assert {name: create.body[name] for name in old} == old
    assert not undone("StatefulSet", *(made("StatefulSet", spec={"replicas": n}) for n in (1, 2))).conflicts


# -- objects -----------------------------------------------------------------------------------------------------------


def test_created_objects_are_deleted() -> None:
    created = made("ConfigMap", data={"a": "1"})
    for now, steps, note, warning in (
        (created, 1, "", ""),
        (made("ConfigMap", data={"a": "2"}), 1, "", "configmap/x (default) was changed since it was created"),
        (None, 0, "it no longer exists", ""),
        (made("ConfigMap", uid="another"), 0, "another object of this name exists now", ""),
        (made("ConfigMap", meta={"deletionTimestamp": "2030"}), 0, "it is being deleted already", ""),
    ):
        found = planner()
        found.delete(ref("ConfigMap"), created, now)
        plan = found.plan()
        assert len(plan.steps) == steps and [why for _, why in plan.not_done] == ([note] if note else [])
        assert plan.warnings == ([warning] if warning else [])
        if steps:
            assert plan.steps[0].body["preconditions"] == {"uid": "old-x"}
            assert plan.steps[0].body["propagationPolicy"] == "Background"


def test_deleted_objects_are_created_anew() -> None:
    meta = {
        "labels": {"a": "1"},
        "finalizers": ["foregroundDeletion", "example.com/f"],
        "deletionGracePeriodSeconds": 0,
    }
    body, plan = recreated("Deployment", made("Deployment", meta=meta, spec={"replicas": 3}, status={"replicas": 3}))
    assert body == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x", "namespace": "default", "labels": {"a": "1"}, "finalizers": ["example.com/f"]},
        "spec": {"replicas": 3},
    }
    assert (plan.steps[0].method, plan.steps[0].path) == ("POST", "/apis/apps/v1/namespaces/default/deployments")
    waiting = planner()
    waiting.create(
        ref("Pod"), made("Pod", spec={}), made("Pod", meta={"deletionTimestamp": "2030", "finalizers": ["f"]})
    )
    assert waiting.plan().conflicts[0].text == "is still being deleted (it waits for f); try again when it is gone"
    unreadable = planner()
    unreadable.unreadable(ref("Secret"))
    assert unreadable.plan().not_done[0][1] == "it cannot be read: the key that it was encrypted with is missing"


def test_parts_that_cannot_come_back() -> None:
    body, plan = recreated("Pod", made("Pod", spec={"nodeName": "n", "containers": CONTAINERS}))
    assert body["spec"] == {"containers": CONTAINERS} and "start from the beginning" in plan.warnings[0]
    labels = {"controller-uid": "u", "batch.kubernetes.io/job-name": "x", "mine": "1"}
    spec = {"selector": {"matchLabels": {}}, "template": {"metadata": {"labels": labels}}}
    body, plan = recreated("Job", made("Job", meta={"labels": labels}, spec=spec))
    assert body["spec"] == {"template": {"metadata": {"labels": {"mine": "1"}}}} and "runs again" in plan.warnings[0]
    token = {"kubernetes.io/service-account.uid": "u", "kubernetes.io/service-account.name": "a"}
    secret = made(
        "Secret", meta={"annotations": token}, type="kubernetes.io/service-account-token", data={"token": "t"}
    )
    body, plan = recreated("Secret", secret)
    assert "data" not in body and list(body["metadata"]["annotations"]) == ["kubernetes.io/service-account.name"]
    assert "issued tokens are not restored" in plan.warnings[0]


def test_addresses_are_kept_if_they_are_free() -> None:
    spec = {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "nodePort": 30000}]}
    service = made("Service", spec=spec)
    body, plan = recreated("Service", service)
    assert body["spec"] == spec and not plan.warnings
    body, plan = recreated("Service", service, ("Service", made("Service", "other", spec=spec)))
    assert body["spec"] == {"ports": [{"port": 80}]}
    assert plan.warnings == [
        "service/x (default): gets another cluster IP: 10.0.0.1 is taken",
        "service/x (default): gets another node port: 30000 is taken",
    ]


def test_volumes_that_were_kept() -> None:
    claim = made("PersistentVolumeClaim", meta={"annotations": {"pv.kubernetes.io/bind-completed": "yes"}})
    claim["spec"] = {"volumeName": "v", "accessModes": ["ReadWriteOnce"]}
    body, plan = recreated("PersistentVolumeClaim", claim)
    assert "volumeName" not in body["spec"] and "annotations" not in body["metadata"]
    assert plan.warnings == ["persistentvolumeclaim/x (default): comes back empty: its volume v was not kept"]
    reference = {"namespace": "default", "name": "x", "uid": "old-x", "resourceVersion": "5"}
    spec = {"claimRef": reference, "persistentVolumeReclaimPolicy": "Retain"}
    volume = made("PersistentVolume", "v", spec=spec, status={"phase": "Released"})
    body, plan = recreated("PersistentVolumeClaim", claim, ("PersistentVolume", volume))
    assert body["spec"]["volumeName"] == "v" and not plan.warnings
    rebind = plan.steps[1]
    assert rebind.path == "/api/v1/persistentvolumes/v" and rebind.links == [([1, "value"], 0)]
    body, _ = recreated("PersistentVolume", volume)
    assert body["spec"]["claimRef"] == {"namespace": "default", "name": "x"}


def test_owners_come_first_and_references_are_linked_again() -> None:
    # Config maps come before services in the order of kinds, but an owner comes before what it owns.
    found = planner(("Deployment", made("Deployment", "kept", "new")))
    found.create(ref("ConfigMap", "child"), made("ConfigMap", "child", meta=owned_by("Service", "owner", "old-owner")))
    found.create(ref("Service", "owner"), made("Service", "owner", spec={}))
    found.create(ref("ConfigMap", "b"), made("ConfigMap", "b", meta=owned_by("Deployment", "kept", "old")))
    found.create(ref("ConfigMap", "c"), made("ConfigMap", "c", meta=owned_by("Deployment", "gone", "u")))
    plan = found.plan()
    names = [each.ref.name for each in plan.steps]
    assert names.index("owner") < names.index("child")
    assert plan.steps[names.index("child")].links == [(["metadata", "ownerReferences", 0, "uid"], names.index("owner"))]
    assert plan.steps[names.index("b")].body["metadata"]["ownerReferences"][0]["uid"] == "new"
    assert "ownerReferences" not in plan.steps[names.index("c")].body["metadata"]
    assert plan.warnings == ["configmap/c (default): its owner deployment/gone does not exist any more"]
    circle = planner()
    circle.create(ref("ConfigMap", "a"), made("ConfigMap", "a", meta=owned_by("ConfigMap", "b", "old-b")))
    circle.create(ref("ConfigMap", "b"), made("ConfigMap", "b", meta=owned_by("ConfigMap", "a", "old-a")))
    assert len(circle.plan().steps) == 2


@pytest.mark.parametrize(
    ("kind", "obj", "reason"),
    [
        ("Event", made("Event"), "Events are records of what happened"),
        ("Lease", made("Lease"), "the holders of Leases renew them"),
        ("Pod", made("Pod", meta=owned_by("ReplicaSet", "web", "u", True)), "left to replicaset-controller"),
        (
            "ReplicaSet",
            made("ReplicaSet", meta=owned_by("Deployment", "web", "u", True)),
            "left to deployment-controller",
        ),
        ("ConfigMap", made("ConfigMap", meta=owned_by("Shop", "web", "u", True)), "left to the controller of shop/web"),
        (
            "Pod",
            made("Pod", meta={"annotations": {"kubernetes.io/config.mirror": "h"}}),
            "left to the kubelet of its node",
        ),
        ("ServiceAccount", made("ServiceAccount", "default"), "left to serviceaccount-controller"),
        ("ConfigMap", made("ConfigMap", "kube-root-ca.crt"), "left to root-ca-certificate-publisher"),
        ("Endpoints", made("Endpoints", "web"), "left to endpoints-controller"),
    ],
)
def test_what_components_create_is_left_to_them(kind: str, obj: Obj, reason: str) -> None:
    name = obj["metadata"]["name"]
    owners = [
        (owner, made(owner, "web", spec={"selector": {"a": "1"}})) for owner in ("Deployment", "ReplicaSet", "Shop")
    ]
    found = planner(*owners, ("Service", made("Service", "web", spec={"selector": {"a": "1"}})), prune=True)
    found.create(ref(kind, name), obj)
    found.prune(ref(kind, name), obj)
    plan = found.plan()
    assert not plan.steps and [why for _, why in plan.not_done] == [reason, reason]


def test_a_namespace_a_definition_and_their_objects() -> None:
    found = planner()
    account = made("ServiceAccount", "default", imagePullSecrets=[{"name": "s"}])
    for kind, obj in (
        ("Shop", made("Shop", spec={})),
        ("Deployment", made("Deployment", spec={})),
        ("ServiceAccount", account),
        ("CustomResourceDefinition", made("CustomResourceDefinition", "shops.example.com", spec={})),
        ("Namespace", made("Namespace", "default", spec={"finalizers": ["kubernetes"]})),
    ):
        found.create(ref(kind, obj["metadata"]["name"]), obj)
    steps = found.plan().steps
    kinds = ["Namespace", "CustomResourceDefinition", "ServiceAccount", "Shop", "Deployment"]
    assert [each.ref.kind for each in steps] == kinds
    assert "spec" not in steps[0].body
    assert steps[2].action == "apply" and steps[2].to_json()["request"]["query"].endswith("&force=true")
    assert [each.awaits for each in steps] == ["", "", "NotFound", "NotFound", "NotFound"]


def test_restore_leaves_what_is_as_it_was_and_prunes_only_if_wanted() -> None:
    then, now = made("ConfigMap", data={"a": "1"}), made("ConfigMap", uid="new", data={"a": "2"}, status={"b": 1})
    found = planner()
    assert found.restore(ref("ConfigMap"), then, now)
    assert not found.restore(ref("ConfigMap"), then, made("ConfigMap", data={"a": "1"}, status={"b": 1}))
    found.prune(ref("ConfigMap", "y"), made("ConfigMap", "y"))
    plan = found.plan()
    assert [each.text for each in plan.steps] == ["data.a 2 -> 1"]
    assert plan.not_done == [("configmap/y (default)", "it did not exist then; --prune deletes it")]
    found = planner(prune=True)
    for kind, name in (("Namespace", "shop"), ("Node", "n"), ("Namespace", "default"), ("Service", "kubernetes")):
        found.prune(ref(kind, name), made(kind, name))
    binding = made("RoleBinding", meta={"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}})
    found.prune(ref("RoleBinding"), binding)
    inside = made("ConfigMap", "y", meta={"namespace": "shop"})
    found.prune(ref("ConfigMap", "y")._replace(namespace="shop"), inside)
    plan = found.plan()
    assert [each.ref.name for each in plan.steps] == ["shop"]  # the ConfigMap goes with its namespace
    assert [why for _, why in plan.not_done] == [
        "its kubelet would register it again",
        *["it is a part of the system"] * 3,
    ]


# -- any change --------------------------------------------------------------------------------------------------------


def _value(rng: random.Random, depth: int) -> Any:
    shape = rng.randrange(6 if depth else 3)
    if shape < 3:
        return rng.choice([1, 2, True, "", "x", "y z", None])
    if shape == 3:
        return [_value(rng, 0) for _ in range(rng.randrange(3))]
    if shape == 4:
        names = rng.sample("abcd", rng.randrange(4))
        return [{"name": name, **_fields(rng, depth - 1)} for name in names]
    return _fields(rng, depth - 1)


def _fields(rng: random.Random, depth: int) -> Obj:
    return {name: _value(rng, depth) for name in rng.sample(["p", "q", "r/s", "t~u"], rng.randrange(4))}


def _object(rng: random.Random) -> Obj:
    labels = {name: rng.choice("12") for name in rng.sample("ab", rng.randrange(3))}
    found = made("Shop", meta={"labels": labels} if rng.random() < 0.5 else {}, spec=_fields(rng, 3))
    return {**found, "data": _fields(rng, 0)} if rng.random() < 0.5 else found


def test_undo_of_an_undo_is_the_state_before() -> None:
    for seed in range(tries(300, 20_000)):
        rng = random.Random(seed)
        before, after = _object(rng), _object(rng)
        if rng.random() < 0.5:
            after = {**deepcopy(before), "spec": {**deepcopy(before["spec"]), **_fields(rng, 2)}}
        undo = undone("Shop", before, after)
        first = apply_json_patch(deepcopy(after), undo.steps[0].body) if undo.steps else after
        assert desired(first) == desired(before) and not undo.conflicts, seed
        again = undone("Shop", after, first)
        second = apply_json_patch(deepcopy(first), again.steps[0].body) if again.steps else first
        assert desired(second) == desired(after), seed
        # Whatever another client has done meanwhile is kept, or is a conflict.
        other = {**deepcopy(after), "spec": {**deepcopy(after["spec"]), "other": rng.random()}}
        found = set_back(before, after, other)
        if not found.conflicts:
            assert found.target["spec"]["other"] == other["spec"]["other"], seed
