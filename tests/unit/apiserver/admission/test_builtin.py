from __future__ import annotations

import pytest
from admission_world import FixedIds, ManualClock, World

from setpoint.apiserver.admission.builtin import Surroundings, UnknownPlugin, build
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.far_server import NobodyThere
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.server import ApiServer, Options
from setpoint.apiserver.webhook_client import WebhookClient
from setpoint.store.memory import MemoryStore


async def nothing(*_: object) -> None:
    return None


@pytest.fixture
def surroundings(world: World, clock: ManualClock, ids: FixedIds) -> Surroundings:
    api = ApiServer(MemoryStore(), clock, ids, Options(AuthenticatorChain([], True), AuthorizerChain(())))
    client = WebhookClient(NobodyThere(), CacheReader(api), clock)
    chain = AuthorizerChain(())
    return Surroundings(world, chain, clock, ids, nothing, nothing, lambda: (), Served(api), client)


def names(*args: object) -> list[str]:
    return [plugin.name for plugin in build(*args)]  # type: ignore[arg-type]


def test_the_default_plugins_in_upstreams_order(surroundings: Surroundings) -> None:
    assert names(surroundings) == [
        "NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity", "Priority",
        "DefaultTolerationSeconds", "DefaultStorageClass", "StorageObjectInUseProtection",
        "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval", "CertificateSigning",
        "ClusterTrustBundleAttest", "CertificateSubjectRestriction", "DefaultIngressClass", "PodTopologyLabels",
        "NodeDeclaredFeatureValidator", "PodResizeValidator", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota",
    ]  # fmt: skip


def test_plugins_are_switched_on_and_off_and_keep_their_place(surroundings: Surroundings) -> None:
    found = names(surroundings, ["NodeRestriction", "NamespaceExists"], ["ServiceAccount", "PodSecurity"])
    assert found[:5] == [
        "NamespaceLifecycle", "NamespaceExists", "LimitRanger", "NodeRestriction", "TaintNodesByCondition",
    ]  # fmt: skip
    assert "PodSecurity" not in found


def test_what_has_nothing_to_do_may_be_named(surroundings: Surroundings) -> None:
    """Without the features that they are for, upstream's plugins let everything pass."""
    for enable, disable in ((["PodGroupProtection"], []), ([], ["PodGroupProtection"])):
        assert names(surroundings, enable, disable) == names(surroundings)
    with pytest.raises(UnknownPlugin, match=r"PodGroupProtection\] in enable-admission-plugins and disable"):
        build(surroundings, ["PodGroupProtection"], ["PodGroupProtection"])


@pytest.mark.parametrize(("enable", "disable"), [(["Nope"], []), ([], ["Nope"]), (["Priority"], ["Priority"])])
def test_names_that_make_no_sense(surroundings: Surroundings, enable: list[str], disable: list[str]) -> None:
    with pytest.raises(UnknownPlugin, match=r"Nope|Priority"):
        build(surroundings, enable, disable)
