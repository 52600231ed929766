"""An object of a kustomization, with its former names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from setpoint.meta.objects import Obj

NO_NAMESPACE = "_non_namespaceable_"


class Id(NamedTuple):
    group: str
    version: str
    kind: str
    name: str
    namespace: str
    """The effective namespace: `default` for an empty one, NO_NAMESPACE for cluster-scoped kinds."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        kind = ".".join((self.kind or "[noKind]", self.version or "[noVer]", self.group or "[noGrp]"))
        namespace = "[noNs]" if self.namespace in (NO_NAMESPACE, "default") else self.namespace
        return f"{kind}/{self.name or '[noName]'}.{namespace}"


class Gvk(NamedTuple):
    """A selector of kinds; an empty field matches everything."""

    kind: str = ""
    group: str = ""
    version: str = ""

    def selects(self, found: Id) -> bool:
        return all(
            not wanted or wanted == got
            for wanted, got in ((self.kind, found.kind), (self.group, found.group), (self.version, found.version))
        )

    def __str__(self) -> str:
        return ".".join((self.kind or "[noKind]", self.version or "[noVer]", self.group or "[noGrp]"))


def split_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


_CLUSTER_SCOPED: dict[str, tuple[str, ...]] = {
    "": ("ComponentStatus", "Namespace", "Node", "NodeProxyOptions", "PersistentVolume"),
    "admissionregistration.k8s.io": ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    "apiextensions.k8s.io": ("CustomResourceDefinition",),
    "apiregistration.k8s.io": ("APIService",),
    "certificates.k8s.io": ("CertificateSigningRequest",),
    "networking.k8s.io": ("IngressClass",),
    "node.k8s.io": ("RuntimeClass",),
    "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding"),
    "scheduling.k8s.io": ("PriorityClass",),
    "storage.k8s.io": ("CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"),
}
"""The kinds that kustomize takes for cluster-scoped, in versions v1 and v1beta1. It does not know kinds added after
1.21, and gives them a namespace."""
_ONLY_BETA = {
    "flowcontrol.apiserver.k8s.io": ("FlowSchema", "PriorityLevelConfiguration"),
    "policy": ("PodSecurityPolicy",),
}


def cluster_scoped(api_version: str, kind: str) -> bool:
    group, version = split_version(api_version)
    if version == "v1beta1" and kind in _ONLY_BETA.get(group, ()):
        return True
    return version in ("v1", "v1beta1") and kind in _CLUSTER_SCOPED.get(group, ())


def id_of(obj: Obj) -> Id:
    api_version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
    meta = obj.get("metadata") or {}
    namespace = str(meta.get("namespace") or "default")
    if cluster_scoped(api_version, kind):
        namespace = NO_NAMESPACE
    return Id(*split_version(api_version), kind, str(meta.get("name") or ""), namespace)


@dataclass
class Resource:
    obj: Obj
    """The object, which is changed in place."""
    before: list[Id] = field(default_factory=list)
    """The former ids, oldest first."""
    prefixes: list[str] = field(default_factory=list)
    suffixes: list[str] = field(default_factory=list)
    behavior: str = ""
    hashed: bool = False
    """Whether a hash of the content is appended to the name."""
    variables: list[str] = field(default_factory=list)
    """Names of the variables that take their value from this object."""
    origin: dict[str, Any] | None = None
    transformations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> Id:
        return id_of(self.obj)

    @property
    def first_id(self) -> Id:
        return self.before[0] if self.before else self.id

    @property
    def ids(self) -> list[Id]:
        return [*self.before, self.id]

    @property
    def name(self) -> str:
        return self.id.name

    @property
    def namespace(self) -> str:
        """The namespace as it is in the object."""
        return str((self.obj.get("metadata") or {}).get("namespace") or "")

    @property
    def meta(self) -> Obj:
        found = self.obj.get("metadata")
        if not isinstance(found, dict):
            found = self.obj["metadata"] = {}
        return found

    def remember_id(self) -> None:
        self.before.append(self.id)
