from __future__ import annotations

import pytest
from admission_attributes import FixedIds, ManualClock, ObjectReader

from setpoint.apiserver.admission.builtin import PluginDependencies, UnknownPlugin, build
from setpoint.apiserver.admission.dynamic.served_resources import ServedResources
from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.remote_servers import NoRemoteServers
from setpoint.apiserver.webhook_client import WebhookClient
from setpoint.store.memory import MemoryStore


async def nothing(*_: object) -> None:
    return None


@pytest.fixture
def dependencies(reader: ObjectReader, clock: ManualClock, ids: FixedIds) -> PluginDependencies:
    api = ApiResources(MemoryStore(), clock, ids)
    client = WebhookClient(NoRemoteServers(), CacheReader(api), clock)
    chain = AuthorizerChain(())
    return PluginDependencies(reader, chain, clock, ids, nothing, nothing, lambda: (), ServedResources(api), client)


def names(*args: object) -> list[str]:
    return [plugin.name for plugin in build(*args)]  # type: ignore[arg-type]


def test_the_default_plugins_in_upstreams_order(dependencies: PluginDependencies) -> None:
    assert names(dependencies) == [
        "NamespaceLifecycle",
        "LimitRanger",
        "ServiceAccount",
        "TaintNodesByCondition",
        "PodSecurity",
        "Priority",
        "DefaultTolerationSeconds",
        "DefaultStorageClass",
        "StorageObjectInUseProtection",
        "PersistentVolumeClaimResize",
        "RuntimeClass",
        "CertificateApproval",
        "CertificateSigning",
        "ClusterTrustBundleAttest",
        "CertificateSubjectRestriction",
        "DefaultIngressClass",
        "PodTopologyLabels",
        "NodeDeclaredFeatureValidator",
        "PodResizeValidator",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
        "ResourceQuota",
    ]


def test_enabled_and_disabled_plugins_keep_the_order(dependencies: PluginDependencies) -> None:
    found = names(dependencies, ["NodeRestriction", "NamespaceExists"], ["ServiceAccount", "PodSecurity"])
    assert found[:5] == [
        "NamespaceLifecycle",
        "NamespaceExists",
        "LimitRanger",
        "NodeRestriction",
        "TaintNodesByCondition",
    ]
    assert "PodSecurity" not in found


def test_plugins_without_effect_may_be_named(dependencies: PluginDependencies) -> None:
    """Without the features that they belong to, upstream's plugins do nothing."""
    for enable, disable in ((["PodGroupProtection"], []), ([], ["PodGroupProtection"])):
        assert names(dependencies, enable, disable) == names(dependencies)
    with pytest.raises(UnknownPlugin, match=r"PodGroupProtection\] in enable-admission-plugins and disable"):
        build(dependencies, ["PodGroupProtection"], ["PodGroupProtection"])


@pytest.mark.parametrize(("enable", "disable"), [(["Nope"], []), ([], ["Nope"]), (["Priority"], ["Priority"])])
def test_unknown_names(dependencies: PluginDependencies, enable: list[str], disable: list[str]) -> None:
    with pytest.raises(UnknownPlugin, match=r"Nope|Priority"):
        build(dependencies, enable, disable)
