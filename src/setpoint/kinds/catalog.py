"""The catalog of built-in resources: names, scope, verbs, subresources. Their strategies are imported on first use.

Resources are in the order of discovery: groups by priority, resources by name.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from setpoint.kinds.tables import definition_for, type_of
from setpoint.meta.schema import Type

if TYPE_CHECKING:
    from setpoint.kinds.strategy import Strategy

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Subresource(NamedTuple):
    name: str
    kind: str
    """Kind of the subresource; empty if it is the parent's."""
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    """Version of the kind; empty if it is the parent's."""


STATUS = Subresource("status", "", ("get", "patch", "update"))
SCALE = Subresource("scale", "Scale", ("get", "patch", "update"), group="autoscaling", version="v1")

# Kinds that are served in several groups or versions are stored in one form.
_STORED_AS = {
    ("events.k8s.io", "v1", "Event"): ("", "v1"),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): ("autoscaling", "v2"),
}

_IN_SEVERAL_VERSIONS = {(storage, kind) for (_, _, kind), storage in _STORED_AS.items()}

# Kinds whose storage version upstream lags behind the served one.
_HASHED_AS = {
    ("apiextensions.k8s.io", "CustomResourceDefinition"): ("apiextensions.k8s.io", "v1beta1"),
    ("certificates.k8s.io", "ClusterTrustBundle"): ("certificates.k8s.io", "v1beta1"),
    ("certificates.k8s.io", "PodCertificateRequest"): ("certificates.k8s.io", "v1beta1"),
    ("resource.k8s.io", "DeviceTaintRule"): ("resource.k8s.io", "v1beta2"),
    ("storagemigration.k8s.io", "StorageVersionMigration"): ("storagemigration.k8s.io", "v1beta1"),
}

# Modules with the rules of several kinds that have most of them in common.
_SHARED_MODULES = {
    "admissionregistration.bindings": ("MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"),
    "admissionregistration.policies": ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"),
    "admissionregistration.webhooks": ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    "flowcontrol": ("FlowSchema", "PriorityLevelConfiguration"),
    "rbac": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "reviews": (
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
        "TokenReview",
    ),
}
_MODULE_OF_KIND = {kind: module for module, kinds in _SHARED_MODULES.items() for kind in kinds}


@dataclass(frozen=True)
class Resource:
    """One resource in one version; also used for a custom resource once its definition is established."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str = ""
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()

    is_custom = False
    """Whether the resource is defined by a CustomResourceDefinition."""
    deprecation = ""
    """Warning for clients that use this deprecated version; empty if it is not deprecated."""

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular_name(self) -> str:
        return self.singular or self.kind.lower()

    @property
    def discovery_verbs(self) -> tuple[str, ...]:
        """Return the verbs that discovery lists; the server may support more."""
        return self.verbs

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def is_stored(self) -> bool:
        """Return whether objects of this resource are stored, rather than answered directly (reviews, bindings)."""
        return "get" in self.verbs

    @cached_property
    def storage(self) -> tuple[str, str]:
        """Return the (group, version) in which objects are stored."""
        return _STORED_AS.get((self.group, self.version, self.kind), (self.group, self.version))

    @cached_property
    def storage_prefix(self) -> str:
        """Return the prefix of this resource's keys, with a trailing slash so that prefixes cannot overlap."""
        group = self.storage[0]
        return f"{group}/{self.plural}/" if group else f"core/{self.plural}/"

    @property
    def has_versions(self) -> bool:
        """Return whether the same objects are also served in another version or group."""
        return (self.storage, self.kind) in _IN_SEVERAL_VERSIONS

    @property
    def storage_version_hash(self) -> str:
        """Return the hash of upstream's storage version of the kind. Clients only compare it."""
        group, version = _HASHED_AS.get((self.group, self.kind), self.storage)
        return b64encode(sha256(f"{group}/{version}/{self.kind}".encode()).digest()[:8]).decode()

    @cached_property
    def type(self) -> Type:
        return type_of(definition_for(self.group, self.version, self.kind))

    @cached_property
    def strategy(self) -> Strategy:
        """Return the kind's rules from `kinds/<group>/<kind>.py`, or from the module that several kinds share.

        The module is imported on first use, because a server that serves only Pods need not load the rules of ninety
        other kinds."""
        strategy = self._load_strategy()
        strategy.type = self.type
        for part in strategy.subresources.values():
            part.type = self.type
        return strategy

    def _load_strategy(self) -> Strategy:
        strategy: Strategy
        if shared := _MODULE_OF_KIND.get(self.kind):
            strategy = import_module(f"setpoint.kinds.{shared}").STRATEGIES[self.kind]
            return strategy
        folder = self.group.split(".")[0] if self.group else "core"
        name = "STRATEGY_V1" if (self.group, self.version) == ("autoscaling", "v1") else "STRATEGY"
        strategy = getattr(import_module(f"setpoint.kinds.{folder}.{self.kind.lower()}"), name)
        return strategy

    def subresource(self, name: str) -> Subresource | None:
        for candidate in self.subresources:
            if candidate.name == name:
                return candidate
        return None


RESOURCES: tuple[Resource, ...] = (
    # v1
    Resource("", "v1", "Binding", "bindings", verbs=("create",)),
    Resource("", "v1", "ComponentStatus", "componentstatuses", namespaced=False, short=("cs",), verbs=("get", "list")),
    Resource("", "v1", "ConfigMap", "configmaps", short=("cm",)),
    Resource("", "v1", "Endpoints", "endpoints", short=("ep",)),
    Resource("", "v1", "Event", "events", short=("ev",)),
    Resource("", "v1", "LimitRange", "limitranges", short=("limits",)),
    Resource(
        "",
        "v1",
        "Namespace",
        "namespaces",
        namespaced=False,
        short=("ns",),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(
            Subresource("finalize", "Namespace", ("update",)),
            STATUS,
        ),
    ),
    Resource(
        "",
        "v1",
        "Node",
        "nodes",
        namespaced=False,
        short=("no",),
        subresources=(
            Subresource("proxy", "NodeProxyOptions", ("create", "delete", "get", "patch", "update")),
            STATUS,
        ),
    ),
    Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",), subresources=(STATUS,)),
    Resource(
        "", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, short=("pv",), subresources=(STATUS,)
    ),
    Resource(
        "",
        "v1",
        "Pod",
        "pods",
        short=("po",),
        categories=("all",),
        subresources=(
            Subresource("attach", "PodAttachOptions", ("create", "get")),
            Subresource("binding", "Binding", ("create",)),
            Subresource("ephemeralcontainers", "Pod", ("get", "patch", "update")),
            Subresource("eviction", "Eviction", ("create",), group="policy", version="v1"),
            Subresource("exec", "PodExecOptions", ("create", "get")),
            Subresource("log", "Pod", ("get",)),
            Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
            Subresource("proxy", "PodProxyOptions", ("create", "delete", "get", "patch", "update")),
            Subresource("resize", "Pod", ("get", "patch", "update")),
            STATUS,
        ),
    ),
    Resource("", "v1", "PodTemplate", "podtemplates"),
    Resource(
        "",
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        short=("rc",),
        categories=("all",),
        subresources=(
            SCALE,
            STATUS,
        ),
    ),
    Resource("", "v1", "ResourceQuota", "resourcequotas", short=("quota",), subresources=(STATUS,)),
    Resource("", "v1", "Secret", "secrets"),
    Resource(
        "",
        "v1",
        "ServiceAccount",
        "serviceaccounts",
        short=("sa",),
        subresources=(Subresource("token", "TokenRequest", ("create",), group="authentication.k8s.io", version="v1"),),
    ),
    Resource(
        "",
        "v1",
        "Service",
        "services",
        short=("svc",),
        categories=("all",),
        subresources=(
            Subresource("proxy", "ServiceProxyOptions", ("create", "delete", "get", "patch", "update")),
            STATUS,
        ),
    ),
    # apiregistration.k8s.io/v1
    Resource(
        "apiregistration.k8s.io",
        "v1",
        "APIService",
        "apiservices",
        namespaced=False,
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    # apps/v1
    Resource("apps", "v1", "ControllerRevision", "controllerrevisions"),
    Resource("apps", "v1", "DaemonSet", "daemonsets", short=("ds",), categories=("all",), subresources=(STATUS,)),
    Resource(
        "apps",
        "v1",
        "Deployment",
        "deployments",
        short=("deploy",),
        categories=("all",),
        subresources=(
            SCALE,
            STATUS,
        ),
    ),
    Resource(
        "apps",
        "v1",
        "ReplicaSet",
        "replicasets",
        short=("rs",),
        categories=("all",),
        subresources=(
            SCALE,
            STATUS,
        ),
    ),
    Resource(
        "apps",
        "v1",
        "StatefulSet",
        "statefulsets",
        short=("sts",),
        categories=("all",),
        subresources=(
            SCALE,
            STATUS,
        ),
    ),
    # events.k8s.io/v1
    Resource("events.k8s.io", "v1", "Event", "events", short=("ev",)),
    # authentication.k8s.io/v1
    Resource(
        "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False, verbs=("create",)
    ),
    Resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False, verbs=("create",)),
    # authorization.k8s.io/v1
    Resource("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=("create",)),
    Resource(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        namespaced=False,
        verbs=("create",),
    ),
    Resource(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        namespaced=False,
        verbs=("create",),
    ),
    Resource(
        "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False, verbs=("create",)
    ),
    # autoscaling/v2
    Resource(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short=("hpa",),
        categories=("all",),
        subresources=(STATUS,),
    ),
    # autoscaling/v1
    Resource(
        "autoscaling",
        "v1",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short=("hpa",),
        categories=("all",),
        subresources=(STATUS,),
    ),
    # batch/v1
    Resource("batch", "v1", "CronJob", "cronjobs", short=("cj",), categories=("all",), subresources=(STATUS,)),
    Resource("batch", "v1", "Job", "jobs", categories=("all",), subresources=(STATUS,)),
    # certificates.k8s.io/v1
    Resource(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        namespaced=False,
        short=("csr",),
        subresources=(
            Subresource("approval", "CertificateSigningRequest", ("get", "patch", "update")),
            STATUS,
        ),
    ),
    Resource("certificates.k8s.io", "v1", "ClusterTrustBundle", "clustertrustbundles", namespaced=False),
    Resource("certificates.k8s.io", "v1", "PodCertificateRequest", "podcertificaterequests", subresources=(STATUS,)),
    # networking.k8s.io/v1
    Resource("networking.k8s.io", "v1", "IngressClass", "ingressclasses", namespaced=False),
    Resource("networking.k8s.io", "v1", "Ingress", "ingresses", short=("ing",), subresources=(STATUS,)),
    Resource("networking.k8s.io", "v1", "IPAddress", "ipaddresses", namespaced=False, short=("ip",)),
    Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", short=("netpol",)),
    Resource("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", namespaced=False, subresources=(STATUS,)),
    # policy/v1
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", short=("pdb",), subresources=(STATUS,)),
    # rbac.authorization.k8s.io/v1
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    # storage.k8s.io/v1
    Resource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False),
    Resource("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False, subresources=(STATUS,)),
    Resource("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False, short=("sc",)),
    Resource("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", namespaced=False, subresources=(STATUS,)),
    Resource(
        "storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", namespaced=False, short=("vac",)
    ),
    # admissionregistration.k8s.io/v1
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        namespaced=False,
        categories=("api-extensions",),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        namespaced=False,
        categories=("api-extensions",),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
        categories=("api-extensions",),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        namespaced=False,
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
        categories=("api-extensions",),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
        categories=("api-extensions",),
    ),
    # apiextensions.k8s.io/v1
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        short=("crd", "crds"),
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    # scheduling.k8s.io/v1
    Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, short=("pc",)),
    # coordination.k8s.io/v1
    Resource("coordination.k8s.io", "v1", "Lease", "leases"),
    # node.k8s.io/v1
    Resource("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False),
    # discovery.k8s.io/v1
    Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    # resource.k8s.io/v1
    Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False),
    Resource("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules", namespaced=False, subresources=(STATUS,)),
    Resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", subresources=(STATUS,)),
    Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    Resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False),
    # flowcontrol.apiserver.k8s.io/v1
    Resource(
        "flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", namespaced=False, subresources=(STATUS,)
    ),
    Resource(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        namespaced=False,
        subresources=(STATUS,),
    ),
    # storagemigration.k8s.io/v1
    Resource(
        "storagemigration.k8s.io",
        "v1",
        "StorageVersionMigration",
        "storageversionmigrations",
        namespaced=False,
        subresources=(STATUS,),
    ),
)
