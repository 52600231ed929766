"""The built-in plugins: their order, which of them are on without being asked for, and how each is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from setpoint.apiserver.admission.always_admit import AlwaysAdmit
from setpoint.apiserver.admission.always_deny import AlwaysDeny
from setpoint.apiserver.admission.always_pull_images import AlwaysPullImages
from setpoint.apiserver.admission.certificate_approval import CertificateApproval
from setpoint.apiserver.admission.certificate_signing import CertificateSigning
from setpoint.apiserver.admission.certificate_subject_restriction import CertificateSubjectRestriction
from setpoint.apiserver.admission.cluster_trust_bundle_attest import ClusterTrustBundleAttest
from setpoint.apiserver.admission.configuration import (
    read_event_limits,
    read_limited_resources,
    read_node_selectors,
    read_policy_manifests,
    read_tolerations,
    read_webhook_settings,
)
from setpoint.apiserver.admission.default_ingress_class import DefaultIngressClass
from setpoint.apiserver.admission.default_storage_class import DefaultStorageClass
from setpoint.apiserver.admission.default_toleration_seconds import (
    DEFAULT_TOLERATION_SECONDS,
    DefaultTolerationSeconds,
)
from setpoint.apiserver.admission.deny_service_external_ips import DenyServiceExternalIPs
from setpoint.apiserver.admission.dynamic.matching import Matcher
from setpoint.apiserver.admission.dynamic.mutating_policy import MutatingAdmissionPolicy
from setpoint.apiserver.admission.dynamic.mutating_webhook import MutatingAdmissionWebhook
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.dynamic.validating_policy import ValidatingAdmissionPolicy
from setpoint.apiserver.admission.dynamic.validating_webhook import ValidatingAdmissionWebhook
from setpoint.apiserver.admission.dynamic.webhook_calls import Caller
from setpoint.apiserver.admission.event_rate_limit import EventRateLimit
from setpoint.apiserver.admission.extended_resource_toleration import ExtendedResourceToleration
from setpoint.apiserver.admission.limit_pod_hard_anti_affinity_topology import LimitPodHardAntiAffinityTopology
from setpoint.apiserver.admission.limit_ranger import LimitRanger
from setpoint.apiserver.admission.namespace_auto_provision import CreateNamespace, NamespaceAutoProvision
from setpoint.apiserver.admission.namespace_exists import NamespaceExists
from setpoint.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from setpoint.apiserver.admission.node_declared_feature_validator import NodeDeclaredFeatureValidator
from setpoint.apiserver.admission.node_restriction import NodeRestriction
from setpoint.apiserver.admission.owner_references_permission_enforcement import OwnerReferencesPermissionEnforcement
from setpoint.apiserver.admission.persistent_volume_claim_resize import PersistentVolumeClaimResize
from setpoint.apiserver.admission.plugin import Plugin, Reader
from setpoint.apiserver.admission.pod_node_selector import PodNodeSelector
from setpoint.apiserver.admission.pod_resize_validator import PodResizeValidator
from setpoint.apiserver.admission.pod_security.plugin import PodSecurity
from setpoint.apiserver.admission.pod_security.settings import read_pod_security
from setpoint.apiserver.admission.pod_toleration_restriction import PodTolerationRestriction
from setpoint.apiserver.admission.pod_topology_labels import PodTopologyLabels
from setpoint.apiserver.admission.priority import Priority
from setpoint.apiserver.admission.resource_quota import ResourceQuota, WriteUsage
from setpoint.apiserver.admission.runtime_class import RuntimeClass
from setpoint.apiserver.admission.service_account import ServiceAccount
from setpoint.apiserver.admission.storage_object_in_use_protection import StorageObjectInUseProtection
from setpoint.apiserver.admission.taint_nodes_by_condition import TaintNodesByCondition
from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.webhook_client import WebhookClient
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.goformat import aggregate, quote

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests
    from setpoint.apiserver.review_webhook import ReviewWebhook
    from setpoint.apiserver.webhook_identities import WebhookIdentities

_IMAGE_POLICY = "ImagePolicyWebhook"


def _nothing(plugin: str) -> None:
    return None


def _no_webhook(kubeconfig: str, pause: float) -> ReviewWebhook:
    raise FileProblem("this server does not call others")


class NotInitialized(FileProblem):
    """What a plugin is told makes sense, and what that leads to does not."""


def _no_manifests(what: str, directory: str, plurals: Sequence[str]) -> StaticManifests:
    raise FileProblem("this server has no files")


def _no_identities(kubeconfig: str) -> WebhookIdentities:
    raise FileProblem("this server does not call others")


@dataclass(slots=True)
class Surroundings:
    """What plugins are given besides the write in hand."""

    reader: Reader
    authorizer: AuthorizerChain
    clock: Clock
    ids: Ids
    create_namespace: CreateNamespace
    write_usage: WriteUsage
    resources: Callable[[], Iterable[Resource]]
    """All that is served now."""
    served: Served
    webhooks: WebhookClient
    toleration_seconds: tuple[int, int] = (DEFAULT_TOLERATION_SECONDS, DEFAULT_TOLERATION_SECONDS)
    """How long Pods stay by default on a node that is not ready, and on one that cannot be reached."""
    told: Callable[[str], bytes | None] = _nothing
    """What the administrator says of a plugin, given by its name. Raises FileProblem."""
    review_webhook: Callable[[str, float], ReviewWebhook] = _no_webhook
    """The one that a kubeconfig, given by its path, leads to, and the pause after its first failure. Raises
    FileProblem."""
    webhook_identities: Callable[[str], WebhookIdentities] = _no_identities
    """Those in a kubeconfig, given by its path. Raises FileProblem."""
    manifests: Callable[[str, str, Sequence[str]], StaticManifests] = _no_manifests
    """What is in a directory, webhooks or policies, of the resources that are given by their plurals. Raises
    FileProblem, NotInitialized."""

    def document(self, plugin: type[Plugin]) -> bytes | None:
        return self.told(plugin.name)


def _webhook(
    s: Surroundings, plugin: type[MutatingAdmissionWebhook] | type[ValidatingAdmissionWebhook], plural: str
) -> Plugin:
    told = read_webhook_settings(s.document(plugin))
    client = s.webhooks.showing(s.webhook_identities(told.kubeconfig)) if told.kubeconfig else s.webhooks
    caller = Caller(client, s.served, Matcher(s.reader, s.served), s.authorizer, s.ids)
    return plugin(s.reader, caller, s.manifests("webhook", told.manifests, [plural]) if told.manifests else None)


def _policy(
    s: Surroundings, plugin: type[MutatingAdmissionPolicy] | type[ValidatingAdmissionPolicy], plurals: list[str]
) -> Plugin:
    directory = read_policy_manifests(s.document(plugin), f"{plugin.name}Configuration")
    static = s.manifests("policy", directory, plurals) if directory else None
    return plugin(s.reader, s.served, s.authorizer, static)


def _image_policy(s: Surroundings) -> Plugin:
    # Few servers have it.
    from setpoint.apiserver.admission.image_policy_settings import read_image_policy
    from setpoint.apiserver.admission.image_policy_webhook import ImagePolicyWebhook

    settings = read_image_policy(s.document(ImagePolicyWebhook))
    return ImagePolicyWebhook(s.review_webhook(settings.kubeconfig, settings.pause), settings, s.clock)


# In the order in which they see a write.
_MAKERS: dict[str, Callable[[Surroundings], Plugin]] = {
    AlwaysAdmit.name: lambda s: AlwaysAdmit(),
    NamespaceAutoProvision.name: lambda s: NamespaceAutoProvision(s.reader, s.create_namespace),
    NamespaceLifecycle.name: lambda s: NamespaceLifecycle(s.reader),
    NamespaceExists.name: lambda s: NamespaceExists(s.reader),
    LimitPodHardAntiAffinityTopology.name: lambda s: LimitPodHardAntiAffinityTopology(),
    LimitRanger.name: lambda s: LimitRanger(s.reader),
    ServiceAccount.name: lambda s: ServiceAccount(s.reader, s.clock, s.ids),
    NodeRestriction.name: lambda s: NodeRestriction(s.reader, s.authorizer),
    TaintNodesByCondition.name: lambda s: TaintNodesByCondition(),
    AlwaysPullImages.name: lambda s: AlwaysPullImages(),
    _IMAGE_POLICY: _image_policy,
    PodSecurity.name: lambda s: PodSecurity(s.reader, s.clock, read_pod_security(s.document(PodSecurity))),
    PodNodeSelector.name: lambda s: PodNodeSelector(s.reader, read_node_selectors(s.document(PodNodeSelector))),
    Priority.name: lambda s: Priority(s.reader),
    DefaultTolerationSeconds.name: lambda s: DefaultTolerationSeconds(*s.toleration_seconds),
    PodTolerationRestriction.name: lambda s: PodTolerationRestriction(
        s.reader, read_tolerations(s.document(PodTolerationRestriction))
    ),
    EventRateLimit.name: lambda s: EventRateLimit(s.clock, read_event_limits(s.document(EventRateLimit))),
    ExtendedResourceToleration.name: lambda s: ExtendedResourceToleration(),
    DefaultStorageClass.name: lambda s: DefaultStorageClass(s.reader),
    StorageObjectInUseProtection.name: lambda s: StorageObjectInUseProtection(),
    OwnerReferencesPermissionEnforcement.name: lambda s: OwnerReferencesPermissionEnforcement(
        s.authorizer, s.resources
    ),
    PersistentVolumeClaimResize.name: lambda s: PersistentVolumeClaimResize(s.reader),
    RuntimeClass.name: lambda s: RuntimeClass(s.reader),
    CertificateApproval.name: lambda s: CertificateApproval(s.authorizer),
    CertificateSigning.name: lambda s: CertificateSigning(s.authorizer),
    ClusterTrustBundleAttest.name: lambda s: ClusterTrustBundleAttest(s.authorizer),
    CertificateSubjectRestriction.name: lambda s: CertificateSubjectRestriction(),
    DefaultIngressClass.name: lambda s: DefaultIngressClass(s.reader),
    DenyServiceExternalIPs.name: lambda s: DenyServiceExternalIPs(),
    PodTopologyLabels.name: lambda s: PodTopologyLabels(s.reader),
    NodeDeclaredFeatureValidator.name: lambda s: NodeDeclaredFeatureValidator(s.reader),
    PodResizeValidator.name: lambda s: PodResizeValidator(s.reader),
    MutatingAdmissionPolicy.name: lambda s: _policy(
        s, MutatingAdmissionPolicy, ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"]
    ),
    MutatingAdmissionWebhook.name: lambda s: _webhook(s, MutatingAdmissionWebhook, "mutatingwebhookconfigurations"),
    ValidatingAdmissionPolicy.name: lambda s: _policy(
        s, ValidatingAdmissionPolicy, ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]
    ),
    ValidatingAdmissionWebhook.name: lambda s: _webhook(
        s, ValidatingAdmissionWebhook, "validatingwebhookconfigurations"
    ),
    ResourceQuota.name: lambda s: ResourceQuota(
        s.reader, s.write_usage, read_limited_resources(s.document(ResourceQuota))
    ),
    AlwaysDeny.name: lambda s: AlwaysDeny(),
}

_OFF = frozenset({_IMAGE_POLICY}) | frozenset(
    plugin.name
    for plugin in (
        AlwaysAdmit, AlwaysDeny, AlwaysPullImages, DenyServiceExternalIPs, EventRateLimit, ExtendedResourceToleration,
        LimitPodHardAntiAffinityTopology, NamespaceAutoProvision, NamespaceExists, NodeRestriction,
        OwnerReferencesPermissionEnforcement, PodNodeSelector, PodTolerationRestriction,
    )
)  # fmt: skip

_IDLE = frozenset({"PodGroupProtection"})
"""Upstream's plugins that do nothing unless a feature is switched on that is off by default, and whose kinds are not
served without it: they may be named."""


class UnknownPlugin(ValueError):
    """The message names the flag and the plugin."""


def build(surroundings: Surroundings, enable: Collection[str] = (), disable: Collection[str] = ()) -> list[Plugin]:
    """The default plugins, those of `enable` besides, without those of `disable`, in order. Raises UnknownPlugin,
    or FileProblem where what is said of one of them makes no sense."""
    enabled, disabled = tuple(enable), frozenset(disable)
    problems = [
        f"{flag} plugin {quote(name)} is unknown"
        for flag, names in (("enable-admission-plugins", enable), ("disable-admission-plugins", disable))
        for name in names
        if name not in _MAKERS and name not in _IDLE
    ]
    both = sorted(disabled.intersection(enabled))
    if both:
        problems.append(f"[{' '.join(both)}] in enable-admission-plugins and disable-admission-plugins overlapped")
    if problems:
        raise UnknownPlugin(aggregate(problems))
    wanted = (_MAKERS.keys() - _OFF).union(enabled) - disabled
    return [_made(name, make, surroundings) for name, make in _MAKERS.items() if name in wanted]


def _made(name: str, make: Callable[[Surroundings], Plugin], surroundings: Surroundings) -> Plugin:
    try:
        return make(surroundings)
    except NotInitialized as problem:
        raise FileProblem(f'failed to initialize admission plugin "{name}": {problem}') from None
    except FileProblem as problem:
        raise FileProblem(f'couldn\'t init admission plugin "{name}": {problem}') from None
