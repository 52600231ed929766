"""The plugins for the API group certificates.k8s.io.

CertificateApproval, CertificateSigning and ClusterTrustBundleAttest check that the user may act for the signer.
CertificateSubjectRestriction denies requests for client certificates of the group system:masters.
"""

from __future__ import annotations

from base64 import b64decode

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.objects import Obj

_APPROVAL = ("UPDATE", "certificates.k8s.io", "certificatesigningrequests", "approval")
_SIGNING = ("UPDATE", "certificates.k8s.io", "certificatesigningrequests", "status")
# The garbage collector and storage migrations change only these fields.
_IGNORED_METADATA = frozenset({"ownerReferences", "finalizers", "managedFields", "resourceVersion"})
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


async def _may_act_for(authorizer: AuthorizerChain, user: UserInfo, verb: str, signer: str) -> bool:
    """Return whether the user has this verb on the signer, or on all signers of its domain."""
    for name in (signer, signer.split("/")[0] + "/*"):
        if await authorizer.allows(Access(user, verb, "certificates.k8s.io", "*", "signers", name=name)):
            return True
    return False


class CertificateApproval(Plugin):
    name = "CertificateApproval"

    def __init__(self, authorizer: AuthorizerChain) -> None:
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return (operation, resource.group, resource.plural, subresource) == _APPROVAL

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.old is not None
        # The signer of the stored object counts: the request may name another one.
        signer = attrs.old["spec"].get("signerName", "")
        if not await _may_act_for(self._authorizer, attrs.user, "approve", signer):
            raise attrs.forbidden(f'user not permitted to approve requests with signerName "{signer}"')


class CertificateSigning(Plugin):
    name = "CertificateSigning"

    def __init__(self, authorizer: AuthorizerChain) -> None:
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return (operation, resource.group, resource.plural, subresource) == _SIGNING

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None and attrs.old is not None
        now, before = attrs.obj.get("status") or {}, attrs.old.get("status") or {}
        if all(now.get(key) == before.get(key) for key in ("certificate", "conditions")):
            return
        # The signer of the stored object counts: the request may name another one.
        signer = attrs.old["spec"].get("signerName", "")
        if not await _may_act_for(self._authorizer, attrs.user, "sign", signer):
            raise attrs.forbidden(f'user not permitted to sign requests with signerName "{signer}"')


class ClusterTrustBundleAttest(Plugin):
    name = "ClusterTrustBundleAttest"

    def __init__(self, authorizer: AuthorizerChain) -> None:
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural)
        return operation in ("CREATE", "UPDATE") and kind == ("certificates.k8s.io", "clustertrustbundles")

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        signer = attrs.obj["spec"].get("signerName", "")
        if not signer or (attrs.old is not None and _is_unchanged(attrs.obj, attrs.old)):
            return
        if not await _may_act_for(self._authorizer, attrs.user, "attest", signer):
            raise attrs.forbidden(f'user not permitted to attest for signerName "{signer}"')


def _is_unchanged(obj: Obj, old: Obj) -> bool:
    """Return whether the objects are equal, apart from the metadata that maintenance changes."""
    new_meta, old_meta = (
        {key: value for key, value in each["metadata"].items() if key not in _IGNORED_METADATA} for each in (obj, old)
    )
    return {**obj, "metadata": new_meta} == {**old, "metadata": old_meta}


class CertificateSubjectRestriction(Plugin):
    name = "CertificateSubjectRestriction"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation == "CREATE" and kind == ("certificates.k8s.io", "certificatesigningrequests", "")

    async def validate(self, attrs: Attributes) -> None:
        # Certificates are slow to import and rarely needed.
        from setpoint.kinds.certificates.requests import subject_of

        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        if spec.get("signerName") != _CLIENT_SIGNER:
            return
        try:
            subject = subject_of(b64decode(spec.get("request") or ""))
        except ValueError as error:
            raise attrs.forbidden(f"failed to parse CSR: {error}") from None
        if "system:masters" in subject.organizations:
            raise attrs.forbidden(f"use of {_CLIENT_SIGNER} signer with system:masters group is not allowed")
