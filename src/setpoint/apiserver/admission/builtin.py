"""The built-in plugins: their order, which of them are enabled by default, and how each is constructed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from setpoint.apiserver.admission.always import AlwaysAdmit, AlwaysDeny
from setpoint.apiserver.admission.always_pull_images import AlwaysPullImages
from setpoint.apiserver.admission.certificates import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
)
from setpoint.apiserver.admission.default_classes import DefaultIngressClass, DefaultStorageClass
from setpoint.apiserver.admission.default_toleration_seconds import (
    DEFAULT_TOLERATION_SECONDS,
    DefaultTolerationSeconds,
)
from setpoint.apiserver.admission.deny_service_external_ips import DenyServiceExternalIPs
from setpoint.apiserver.admission.dynamic.matching import Matcher
from setpoint.apiserver.admission.dynamic.mutating_policy import MutatingAdmissionPolicy
from setpoint.apiserver.admission.dynamic.mutating_webhook import MutatingAdmissionWebhook
from setpoint.apiserver.admission.dynamic.served_resources import ServedResources
from setpoint.apiserver.admission.dynamic.validating_policy import ValidatingAdmissionPolicy
from setpoint.apiserver.admission.dynamic.validating_webhook import ValidatingAdmissionWebhook
from setpoint.apiserver.admission.dynamic.webhooks import WebhookCaller
from setpoint.apiserver.admission.event_rate_limit import EventRateLimit, read_event_limits
from setpoint.apiserver.admission.extended_resource_toleration import ExtendedResourceToleration
from setpoint.apiserver.admission.limit_pod_hard_anti_affinity_topology import LimitPodHardAntiAffinityTopology
from setpoint.apiserver.admission.limit_ranger import LimitRanger
from setpoint.apiserver.admission.namespaces import (
    CreateNamespace,
    NamespaceAutoProvision,
    NamespaceExists,
    NamespaceLifecycle,
)
from setpoint.apiserver.admission.node_declared_feature_validator import NodeDeclaredFeatureValidator
from setpoint.apiserver.admission.node_restriction import NodeRestriction
from setpoint.apiserver.admission.owner_references_permission_enforcement import OwnerReferencesPermissionEnforcement
from setpoint.apiserver.admission.persistent_volume_claim_resize import PersistentVolumeClaimResize
from setpoint.apiserver.admission.plugin import Plugin, Reader
from setpoint.apiserver.admission.pod_node_selector import PodNodeSelector, read_node_selectors
from setpoint.apiserver.admission.pod_resize_validator import PodResizeValidator
from setpoint.apiserver.admission.pod_security.plugin import PodSecurity
from setpoint.apiserver.admission.pod_security.policy import read_pod_security
from setpoint.apiserver.admission.pod_toleration_restriction import PodTolerationRestriction, read_tolerations
from setpoint.apiserver.admission.pod_topology_labels import PodTopologyLabels
from setpoint.apiserver.admission.priority import Priority
from setpoint.apiserver.admission.resource_quota import ResourceQuota, WriteUsage, read_limited_resources
from setpoint.apiserver.admission.runtime_class import RuntimeClass
from setpoint.apiserver.admission.service_account import ServiceAccount
from setpoint.apiserver.admission.storage_object_in_use_protection import StorageObjectInUseProtection
from setpoint.apiserver.admission.taint_nodes_by_condition import TaintNodesByCondition
from setpoint.apiserver.config_files import TEXT, FileProblem, document, read_config
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.webhook_client import WebhookClient
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.field import invalid
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests
    from setpoint.apiserver.kubeconfig_webhooks import ReviewWebhook
    from setpoint.apiserver.webhook_client import WebhookIdentities

_IMAGE_POLICY = "ImagePolicyWebhook"
_MANIFESTS = "staticManifestsDir"
_WEBHOOK_CONFIGURATIONS = {
    ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"): document(
        "v1.WebhookAdmission", kubeConfigFile=TEXT, staticManifestsDir=TEXT
    )
}
_DISABLED_BY_DEFAULT = frozenset({_IMAGE_POLICY}) | frozenset(
    plugin.name
    for plugin in (
        AlwaysAdmit,
        AlwaysDeny,
        AlwaysPullImages,
        DenyServiceExternalIPs,
        EventRateLimit,
        ExtendedResourceToleration,
        LimitPodHardAntiAffinityTopology,
        NamespaceAutoProvision,
        NamespaceExists,
        NodeRestriction,
        OwnerReferencesPermissionEnforcement,
        PodNodeSelector,
        PodTolerationRestriction,
    )
)
_NO_OPERATION = frozenset({"PodGroupProtection"})
"""Upstream's plugins that may be named but do nothing: they depend on a feature that is off by default, whose kinds are
not served here."""


def _no_configuration(plugin: str) -> None:
    return None


def _no_webhook(kubeconfig: str, backoff: float) -> ReviewWebhook:
    raise FileProblem("this server does not call webhooks")


class NotInitialized(FileProblem):
    """The configuration of a plugin is valid, but what it refers to cannot be used."""


def _no_manifests(what: str, directory: str, plurals: Sequence[str]) -> StaticManifests:
    raise FileProblem("this server does not read static manifests")


def _no_identities(kubeconfig: str) -> WebhookIdentities:
    raise FileProblem("this server does not call webhooks")


@dataclass(slots=True)
class PluginDependencies:
    """The dependencies with which plugins are constructed."""

    reader: Reader
    authorizer: AuthorizerChain
    clock: Clock
    ids: Ids
    create_namespace: CreateNamespace
    write_usage: WriteUsage
    resources: Callable[[], Iterable[Resource]]
    """Returns all resources that are served now."""
    served: ServedResources
    webhooks: WebhookClient
    toleration_seconds: tuple[int, int] = (DEFAULT_TOLERATION_SECONDS, DEFAULT_TOLERATION_SECONDS)
    """Default tolerationSeconds of Pods on a node that is not ready, and on one that is unreachable."""
    configuration: Callable[[str], bytes | None] = _no_configuration
    """Returns the configuration of the plugin with this name, or None if it has none. Raises FileProblem."""
    review_webhook: Callable[[str, float], ReviewWebhook] = _no_webhook
    """Returns the webhook of a kubeconfig, given its path and the delay in seconds before the first retry. Raises
    FileProblem."""
    webhook_identities: Callable[[str], WebhookIdentities] = _no_identities
    """Returns the credentials in a kubeconfig, given its path. Raises FileProblem."""
    manifests: Callable[[str, str, Sequence[str]], StaticManifests] = _no_manifests
    """Returns the manifests in a directory, given what they are (webhook or policy), the directory, and the plurals of
    the resources. Raises FileProblem, NotInitialized."""

    def document(self, plugin: type[Plugin]) -> bytes | None:
        return self.configuration(plugin.name)


class _WebhookSettings(NamedTuple):
    """The configuration of MutatingAdmissionWebhook or ValidatingAdmissionWebhook."""

    kubeconfig: str = ""
    """Path of the kubeconfig with the credentials for webhooks; empty means no credentials."""
    manifests: str = ""
    """Directory of static webhook configurations; empty means none."""


def _read_webhook_settings(data: bytes | None) -> _WebhookSettings:
    """Read the configuration of a webhook plugin. Raises FileProblem."""
    if data is None:
        return _WebhookSettings()
    found = read_config(data, _WEBHOOK_CONFIGURATIONS)
    return _WebhookSettings(_absolute_path(found, "kubeConfigFile"), _absolute_path(found, _MANIFESTS))


def _read_policy_manifests(data: bytes | None, kind: str) -> str:
    """Return the directory of static policies; empty means none. Raises FileProblem."""
    if data is None:
        return ""
    known = {("apiserver.config.k8s.io/v1", kind): document(f"v1.{kind}", staticManifestsDir=TEXT)}
    return _absolute_path(read_config(data, known), _MANIFESTS)


def _absolute_path(found: Obj, field: str) -> str:
    path: str = found.get(field, "")
    if path and not path.startswith("/"):
        raise FileProblem(invalid(field, path, "must be an absolute file path").message())
    return path


def _webhook(
    s: PluginDependencies, plugin: type[MutatingAdmissionWebhook] | type[ValidatingAdmissionWebhook], plural: str
) -> Plugin:
    settings = _read_webhook_settings(s.document(plugin))
    client = s.webhooks
    if settings.kubeconfig:
        client = client.with_identities(s.webhook_identities(settings.kubeconfig))
    caller = WebhookCaller(client, s.served, Matcher(s.reader, s.served), s.authorizer, s.ids)
    return plugin(
        s.reader, caller, s.manifests("webhook", settings.manifests, [plural]) if settings.manifests else None
    )


def _policy(
    s: PluginDependencies, plugin: type[MutatingAdmissionPolicy] | type[ValidatingAdmissionPolicy], plurals: list[str]
) -> Plugin:
    directory = _read_policy_manifests(s.document(plugin), f"{plugin.name}Configuration")
    static = s.manifests("policy", directory, plurals) if directory else None
    return plugin(s.reader, s.served, s.authorizer, static)


def _image_policy(s: PluginDependencies) -> Plugin:
    # Few servers enable this plugin.
    from setpoint.apiserver.admission.image_policy_webhook import ImagePolicyWebhook, read_image_policy

    settings = read_image_policy(s.document(ImagePolicyWebhook))
    return ImagePolicyWebhook(s.review_webhook(settings.kubeconfig, settings.backoff), settings, s.clock)


# In the order in which they are called.
_FACTORIES: dict[str, Callable[[PluginDependencies], Plugin]] = {
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
        s.reader, s.clock, s.write_usage, read_limited_resources(s.document(ResourceQuota))
    ),
    AlwaysDeny.name: lambda s: AlwaysDeny(),
}


class UnknownPlugin(ValueError):
    """A flag names plugins that do not exist, or both enables and disables one; the message names flag and plugin."""


def build(
    dependencies: PluginDependencies, enable: Collection[str] = (), disable: Collection[str] = ()
) -> list[Plugin]:
    """Construct the enabled plugins in order: the default ones and those of `enable`, without those of `disable`.
    Raises UnknownPlugin, or FileProblem if the configuration of a plugin is invalid."""
    enabled, disabled = tuple(enable), frozenset(disable)
    problems = [
        f"{flag} plugin {quote(name)} is unknown"
        for flag, names in (("enable-admission-plugins", enable), ("disable-admission-plugins", disable))
        for name in names
        if name not in _FACTORIES and name not in _NO_OPERATION
    ]
    both = sorted(disabled.intersection(enabled))
    if both:
        problems.append(f"[{' '.join(both)}] in enable-admission-plugins and disable-admission-plugins overlapped")
    if problems:
        raise UnknownPlugin(aggregate(problems))
    wanted = (_FACTORIES.keys() - _DISABLED_BY_DEFAULT).union(enabled) - disabled
    return [_create(name, factory, dependencies) for name, factory in _FACTORIES.items() if name in wanted]


def _create(name: str, factory: Callable[[PluginDependencies], Plugin], dependencies: PluginDependencies) -> Plugin:
    try:
        return factory(dependencies)
    except NotInitialized as problem:
        raise FileProblem(f'failed to initialize admission plugin "{name}": {problem}') from None
    except FileProblem as problem:
        raise FileProblem(f'couldn\'t init admission plugin "{name}": {problem}') from None
