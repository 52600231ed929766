"""ClusterTrustBundleAttest: who publishes anchors for a signer must be allowed to attest for it."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Obj, Plugin
from setpoint.apiserver.admission.signer_permission import may
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.kinds.catalog import Resource

# The garbage collector and storage migrations change no more than these.
_HOUSEKEEPING = frozenset({"ownerReferences", "finalizers", "managedFields", "resourceVersion"})


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
        if not signer or (attrs.old is not None and _same(attrs.obj, attrs.old)):
            return
        if not await may(self._authorizer, attrs.user, "attest", signer):
            raise attrs.forbidden(f'user not permitted to attest for signerName "{signer}"')


def _same(obj: Obj, old: Obj) -> bool:
    """But for housekeeping."""
    new_meta, old_meta = (
        {key: value for key, value in each["metadata"].items() if key not in _HOUSEKEEPING} for each in (obj, old)
    )
    return {**obj, "metadata": new_meta} == {**old, "metadata": old_meta}
