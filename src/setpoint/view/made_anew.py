"""Deleted objects that are created anew: what of them is kept, and which of them a component creates by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from setpoint.meta.objects import Obj, ObjView

_CONTROLLERS = {
    ("apps", "Deployment"): "deployment-controller",
    ("apps", "ReplicaSet"): "replicaset-controller",
    ("apps", "StatefulSet"): "statefulset-controller",
    ("apps", "DaemonSet"): "daemonset-controller",
    ("batch", "Job"): "job-controller",
    ("batch", "CronJob"): "cronjob-controller",
    ("", "ReplicationController"): "replication-controller",
    ("", "Service"): "endpointslice-controller",
    ("", "Endpoints"): "endpointslicemirroring-controller",
    ("", "Node"): "kubelet",
}
_RECORDS = {
    ("", "events"): "Events are records of what happened",
    ("coordination.k8s.io", "leases"): "the holders of Leases renew them",
    ("networking.k8s.io", "ipaddresses"): "the API server allocates them with Services",
    ("storage.k8s.io", "csinodes"): "left to the kubelet of its node",
    ("resource.k8s.io", "resourceslices"): "left to the driver of its node",
}
_ROOT_CA = "kube-root-ca.crt"
_MARKS = ("kube-system", "setpoint-marks")
_SERVER_CONFIG = ("kube-system", "extension-apiserver-authentication")
_AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
_MIRROR = "kubernetes.io/config.mirror"
_DELETION_FINALIZERS = ("foregroundDeletion", "orphan", "batch.kubernetes.io/job-tracking")
_BINDING = ("pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller")
_DROPPED_ANNOTATIONS = ("deployment.kubernetes.io/revision", "kubernetes.io/service-account.uid")
_JOB_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name")
_TOKEN_TYPE = "kubernetes.io/service-account-token"

Find = Callable[[str, str, str, str], ObjView | None]
"""Returns an object by apiVersion, kind, namespace (that of the dependent) and name."""


class Taken(NamedTuple):
    """Addresses and node ports that Services have."""

    addresses: frozenset[str]
    ports: frozenset[int]

    @classmethod
    def by(cls, services: Iterable[ObjView]) -> Taken:
        specs = [each.get("spec") or {} for each in services]
        addresses = (address for spec in specs for address in spec.get("clusterIPs") or [spec.get("clusterIP") or ""])
        return cls(frozenset(addresses), frozenset(port for spec in specs for port in _node_ports(spec)))


class Present(Protocol):
    """The present state of the cluster."""

    def find(self, api_version: str, kind: str, namespace: str, name: str) -> ObjView | None:
        """Return an object of this namespace, or a cluster-scoped one; None if there is none."""
        ...

    def taken(self) -> Taken:
        """Return the addresses and ports of Services."""
        ...


def controller_of(obj: ObjView) -> Mapping[str, Any] | None:
    """Return the owner reference of the controller."""
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return next((each for each in owners if each.get("controller")), None)


def left_to(group: str, plural: str, obj: ObjView, find: Find) -> str:
    """Return why an object is left out of a plan: a component creates and removes it; empty if none does."""
    if reason := _RECORDS.get((group, plural)):
        return reason
    meta = obj["metadata"]
    namespace, name = meta.get("namespace") or "", meta["name"]
    if (owner := controller_of(obj)) is not None:
        if find(owner["apiVersion"], owner["kind"], namespace, owner["name"]) is None:
            return ""
        known = _CONTROLLERS.get((owner["apiVersion"].rpartition("/")[0], owner["kind"]))
        return f"left to {known or 'the controller of ' + owner['kind'].lower() + '/' + owner['name']}"
    if group:
        managed = _AUTOMANAGED in (meta.get("labels") or {})
        return "the API server registers its own APIServices" if plural == "apiservices" and managed else ""
    if plural == "pods" and _MIRROR in (meta.get("annotations") or {}):
        return "left to the kubelet of its node"
    if plural == "serviceaccounts" and name == "default" and not _is_customized(obj):
        return "left to serviceaccount-controller"
    if plural == "configmaps" and name == _ROOT_CA:
        return "left to root-ca-certificate-publisher"
    if plural == "configmaps" and (namespace, name) == _MARKS:
        return "marks are kept"
    if plural == "configmaps" and (namespace, name) == _SERVER_CONFIG:
        return "the API server writes it"
    if plural == "endpoints":
        service = find("v1", "Service", namespace, name)
        if service is not None and (service.get("spec") or {}).get("selector"):
            return "left to endpoints-controller"
    return ""


def is_of_system(group: str, plural: str, obj: ObjView) -> bool:
    """Return whether an object is a part of every cluster, or of the system's namespaces: it is not pruned."""
    meta = obj["metadata"]
    namespace, name = meta.get("namespace") or "", meta["name"]
    if namespace in _SYSTEM_NAMESPACES or (plural == "namespaces" and name in (*_SYSTEM_NAMESPACES, "default")):
        return True
    if group in _SYSTEM_GROUPS or _BOOTSTRAPPING in (meta.get("labels") or {}):
        return True
    if plural in ("services", "endpoints", "endpointslices"):
        return (namespace, name) == ("default", "kubernetes")
    return (plural == "priorityclasses" and name.startswith("system-")) or plural == "servicecidrs"


_SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
_SYSTEM_GROUPS = ("flowcontrol.apiserver.k8s.io", "apiregistration.k8s.io")
_BOOTSTRAPPING = "kubernetes.io/bootstrapping"


def _is_customized(account: ObjView) -> bool:
    """Return whether a default service account differs from what its controller creates."""
    meta = account["metadata"]
    more = any(account.get(each) for each in ("secrets", "imagePullSecrets"))
    return more or "automountServiceAccountToken" in account or bool(meta.get("labels") or meta.get("annotations"))


@dataclass(slots=True)
class MadeAnew:
    body: Obj
    """The object without status, uid, owners and managed fields."""
    warnings: list[str] = field(default_factory=list)
    may_exist: bool = False
    """Whether a controller may have created the object when the request is sent."""


def made_anew(
    group: str, plural: str, obj: ObjView, present: Present, is_created: Callable[[str, str, str, str], bool]
) -> MadeAnew:
    """Return a deleted object as it is created anew.

    `is_created` returns whether the plan creates an object, by group, kind, namespace and name."""
    meta = obj["metadata"]
    kept: Obj = {
        name: deepcopy(meta[name]) for name in ("name", "namespace", "labels", "annotations") if meta.get(name)
    }
    annotations = kept.get("annotations") or {}
    for name in _DROPPED_ANNOTATIONS:
        annotations.pop(name, None)
    if finalizers := [each for each in meta.get("finalizers") or () if each not in _DELETION_FINALIZERS]:
        kept["finalizers"] = finalizers
    body: Obj = {
        name: deepcopy(value) for name, value in obj.items() if name not in ("metadata", "status", "apiVersion", "kind")
    }
    anew = MadeAnew({"metadata": kept, **body})
    if make := _SPECIAL.get((group, plural)):
        make(anew, obj, present, is_created)
    if not kept.get("annotations"):
        kept.pop("annotations", None)
    return anew


_IsCreated = Callable[[str, str, str, str], bool]


def _namespace(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    anew.body.pop("spec", None)  # its finalizers, which the API server sets


def _pod(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    for name in ("nodeName", "ephemeralContainers"):
        anew.body["spec"].pop(name, None)
    anew.warnings.append("its containers start from the beginning, perhaps on another node")


def _job(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    spec = anew.body["spec"]
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
        template = (spec.get("template") or {}).get("metadata") or {}
        for labels in (template.get("labels") or {}, anew.body["metadata"].get("labels") or {}):
            for name in _JOB_LABELS:
                labels.pop(name, None)
    anew.warnings.append("it runs again from the beginning")


def _service(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    spec = anew.body["spec"]
    wanted = {each for each in spec.get("clusterIPs") or [spec.get("clusterIP")] if each and each != "None"}
    addresses, ports = present.taken()
    if taken := sorted(wanted & addresses):
        for name in ("clusterIP", "clusterIPs"):
            spec.pop(name, None)
        anew.warnings.append(f"gets another cluster IP: {', '.join(taken)} is taken")
    if used := sorted(ports & set(_node_ports(spec))):
        for port in spec.get("ports") or ():
            if port.get("nodePort") in used:
                del port["nodePort"]
        if spec.get("healthCheckNodePort") in used:
            del spec["healthCheckNodePort"]
        anew.warnings.append(f"gets another node port: {', '.join(map(str, used))} is taken")


def _node_ports(spec: ObjView) -> list[int]:
    found = [each.get("nodePort") for each in spec.get("ports") or ()] + [spec.get("healthCheckNodePort")]
    return [each for each in found if each]


def claim_of_volume(claim: ObjView, present: Present) -> ObjView | None:
    """Return the volume that a deleted claim was bound to, if it is still kept for it."""
    name = (claim.get("spec") or {}).get("volumeName")
    volume = present.find("v1", "PersistentVolume", "", name) if isinstance(name, str) else None
    if volume is None or (volume.get("status") or {}).get("phase") != "Released":
        return None
    spec = volume.get("spec") or {}
    kept = spec.get("persistentVolumeReclaimPolicy") == "Retain"
    return volume if kept and (spec.get("claimRef") or {}).get("uid") == claim["metadata"].get("uid") else None


def _claim(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    spec = anew.body["spec"]
    name = spec.get("volumeName")
    if not name or claim_of_volume(obj, present) is not None:
        return
    if is_created("", "PersistentVolume", "", name):
        return
    del spec["volumeName"]
    for each in _BINDING:
        (anew.body["metadata"].get("annotations") or {}).pop(each, None)
    anew.warnings.append(f"comes back empty: its volume {name} was not kept")


def _volume(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    """The claim's uid is left out: the volume is reserved for the claim of that name."""
    for name in ("uid", "resourceVersion"):
        (anew.body["spec"].get("claimRef") or {}).pop(name, None)
    anew.warnings.append("the data of the volume is not restored")


def _secret(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    if obj.get("type") == _TOKEN_TYPE:
        anew.body.pop("data", None)
        anew.warnings.append("gets a new token: issued tokens are not restored")


def _account(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    anew.may_exist = obj["metadata"]["name"] == "default"


def _definition(anew: MadeAnew, obj: ObjView, present: Present, is_created: _IsCreated) -> None:
    finalizers = anew.body["metadata"].get("finalizers") or []
    if _CLEANUP in finalizers:
        finalizers.remove(_CLEANUP)  # the API server adds it
    if not finalizers:
        anew.body["metadata"].pop("finalizers", None)


_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_SPECIAL: dict[tuple[str, str], Callable[[MadeAnew, ObjView, Present, _IsCreated], None]] = {
    ("", "namespaces"): _namespace,
    ("", "pods"): _pod,
    ("batch", "jobs"): _job,
    ("", "services"): _service,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume,
    ("", "secrets"): _secret,
    ("", "serviceaccounts"): _account,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _definition,
}
