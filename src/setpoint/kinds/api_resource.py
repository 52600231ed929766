"""A resource of the API: names, scope, verbs, subresources. Its strategy is imported on first use."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from setpoint.kinds.strategy import Strategy
    from setpoint.meta.schema import Type

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


class Resource:
    """One resource in one version; also used for a custom resource once its definition is established.

    It is a value, which is never changed. It is not a dataclass, because every command creates the whole catalog."""

    is_custom = False
    """Whether the resource is defined by a CustomResourceDefinition."""
    deprecation = ""
    """Warning for clients that use this deprecated version; empty if it is not deprecated."""

    def __init__(
        self,
        group: str,
        version: str,
        kind: str,
        plural: str,
        singular: str = "",
        namespaced: bool = True,
        short: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        verbs: tuple[str, ...] = ALL_VERBS,
        subresources: tuple[Subresource, ...] = (),
    ) -> None:
        self.group = group
        self.version = version
        self.api_version = f"{group}/{version}" if group else version
        self.kind = kind
        self.plural = plural
        self.singular = singular
        self.namespaced = namespaced
        self.short = short
        self.categories = categories
        self.verbs = verbs
        self.subresources = subresources

    def _value(self) -> tuple[object, ...]:
        """Return what distinguishes this resource from others of its class."""
        names = (self.group, self.version, self.kind, self.plural, self.singular)
        return (*names, self.namespaced, self.short, self.categories, self.verbs, self.subresources)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Resource) and self.__class__ is other.__class__ and self._value() == other._value()

    def __hash__(self) -> int:
        return hash((self.group, self.version, self.plural))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}{self._value()}"

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

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

    @cached_property
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

    @cached_property
    def has_versions(self) -> bool:
        """Return whether the same objects are also served in another version or group."""
        return (self.storage, self.kind) in _IN_SEVERAL_VERSIONS

    @property
    def storage_version_hash(self) -> str:
        """Return the hash of upstream's storage version of the kind. Clients only compare it."""
        # Imported here because only discovery needs them.
        from base64 import b64encode
        from hashlib import sha256

        group, version = _HASHED_AS.get((self.group, self.kind), self.storage)
        return b64encode(sha256(f"{group}/{version}/{self.kind}".encode()).digest()[:8]).decode()

    @cached_property
    def type(self) -> Type:
        # Imported here because clients do not need the types.
        from setpoint.kinds.tables import definition_for, type_of

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
