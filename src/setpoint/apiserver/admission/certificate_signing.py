"""CertificateSigning: issuing a certificate takes the right to sign for the signer."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.apiserver.admission.signer_permission import may
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.kinds.catalog import Resource

_WRITE = ("UPDATE", "certificates.k8s.io", "certificatesigningrequests", "status")


class CertificateSigning(Plugin):
    name = "CertificateSigning"

    def __init__(self, authorizer: AuthorizerChain) -> None:
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return (operation, resource.group, resource.plural, subresource) == _WRITE

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None and attrs.old is not None
        now, before = attrs.obj.get("status") or {}, attrs.old.get("status") or {}
        if all(now.get(key) == before.get(key) for key in ("certificate", "conditions")):
            return
        # The stored signer counts, whatever the request makes of it.
        signer = attrs.old["spec"].get("signerName", "")
        if not await may(self._authorizer, attrs.user, "sign", signer):
            raise attrs.forbidden(f'user not permitted to sign requests with signerName "{signer}"')
