"""Plugins that require additional permissions."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from admission_attributes import resource, write
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from setpoint.apiserver.admission.certificates import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
)
from setpoint.apiserver.admission.owner_references_permission_enforcement import OwnerReferencesPermissionEnforcement
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, Rules
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden
from setpoint.meta.objects import Obj

GROUP = "certificates.k8s.io"


class Allowed:
    """Allows the listed accesses, by (verb, resource, name)."""

    name = "allowed"

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self.allowed = allowed

    def authorize(self, access: Access) -> tuple[Decision, str]:
        resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        if (access.verb, resource, access.name) in self.allowed:
            return Decision.ALLOW, ""
        return Decision.NO_OPINION, "no rule"

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        return Rules([], [])


def chain(*allowed: tuple[str, str, str]) -> AuthorizerChain:
    return AuthorizerChain([Allowed(*allowed)])


def request(**status: Any) -> Obj:
    return {"metadata": {"name": "x"}, "spec": {"signerName": "example.com/foo"}, "status": status}


@pytest.mark.parametrize("name", ["example.com/foo", "example.com/*"])
async def test_approval_requires_permission_for_the_signer(name: str) -> None:
    attrs = write("certificatesigningrequests", request(), request(), group=GROUP, subresource="approval")
    await CertificateApproval(chain(("approve", "signers", name))).validate(attrs)
    with pytest.raises(Forbidden, match=r'user not permitted to approve requests with signerName "example\.com/foo"'):
        await CertificateApproval(chain(("sign", "signers", name))).validate(attrs)


async def test_signing_requires_permission_for_the_signer() -> None:
    signed = request(certificate="abc")
    attrs = write("certificatesigningrequests", signed, request(), group=GROUP, subresource="status")
    await CertificateSigning(chain(("sign", "signers", "example.com/foo"))).validate(attrs)
    with pytest.raises(Forbidden, match="user not permitted to sign requests"):
        await CertificateSigning(chain()).validate(attrs)
    same = write("certificatesigningrequests", signed, signed, group=GROUP, subresource="status")
    await CertificateSigning(chain()).validate(same)


async def test_attesting_requires_permission_for_the_signer() -> None:
    bundle: Obj = {"metadata": {"name": "x"}, "spec": {"signerName": "example.com/foo", "trustBundle": "t"}}
    with pytest.raises(Forbidden, match=r'user not permitted to attest for signerName "example\.com/foo"'):
        await ClusterTrustBundleAttest(chain()).validate(write("clustertrustbundles", bundle, group=GROUP))
    await ClusterTrustBundleAttest(chain(("attest", "signers", "example.com/*"))).validate(
        write("clustertrustbundles", bundle, group=GROUP)
    )
    finalized = {**bundle, "metadata": {"name": "x", "finalizers": ["a/b"]}}
    await ClusterTrustBundleAttest(chain()).validate(write("clustertrustbundles", finalized, bundle, group=GROUP))
    free = {"metadata": {"name": "x"}, "spec": {"trustBundle": "t"}}
    await ClusterTrustBundleAttest(chain()).validate(write("clustertrustbundles", free, group=GROUP))


@pytest.mark.parametrize(("group", "allowed"), [("system:masters", False), ("developers", True)])
async def test_no_client_certificate_for_system_masters(group: str, allowed: bool) -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "me"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
        ]
    )
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(ed25519.Ed25519PrivateKey.generate(), None)
    spec = {
        "signerName": "kubernetes.io/kube-apiserver-client",
        "request": b64encode(made.public_bytes(Encoding.PEM)).decode(),
    }
    attrs = write("certificatesigningrequests", {"metadata": {"name": "x"}, "spec": spec}, group=GROUP)
    if allowed:
        await CertificateSubjectRestriction().validate(attrs)
        return
    with pytest.raises(Forbidden, match="signer with system:masters group is not allowed"):
        await CertificateSubjectRestriction().validate(attrs)


def owned(block: bool = False, kind: str = "ReplicaSet") -> Obj:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "rs", "uid": "u", "blockOwnerDeletion": block}
    return {"metadata": {"name": "x", "ownerReferences": [owner]}}


def enforcing(*allowed: tuple[str, str, str]) -> OwnerReferencesPermissionEnforcement:
    return OwnerReferencesPermissionEnforcement(chain(*allowed), lambda: [resource("apps", "replicasets")])


async def test_setting_owners_requires_delete_permission() -> None:
    bare: Obj = {"metadata": {"name": "x"}}
    await enforcing().validate(write("configmaps", owned()))
    await enforcing().validate(write("configmaps", owned(), owned()))
    with pytest.raises(Forbidden, match="an ownerRef on a resource you can't delete: allowed: no rule, <nil>"):
        await enforcing().validate(write("configmaps", owned(), bare))
    await enforcing(("delete", "configmaps", "x")).validate(write("configmaps", owned(), bare))


async def test_blocking_owner_deletion_requires_finalizers_permission() -> None:
    blocking = write("configmaps", owned(block=True))
    with pytest.raises(Forbidden, match="resource you can't set finalizers on: allowed: no rule, <nil>"):
        await enforcing().validate(blocking)
    await enforcing(("update", "replicasets/finalizers", "rs")).validate(blocking)
    await enforcing(("update", "*/finalizers", "*")).validate(blocking)
    with pytest.raises(Forbidden, match='no matches for kind "Nope" in version "apps/v1"'):
        await enforcing().validate(write("configmaps", owned(block=True, kind="Nope")))
