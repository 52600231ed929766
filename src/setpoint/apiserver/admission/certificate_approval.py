"""CertificateApproval: approving a signing request takes the right to approve for its signer."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.apiserver.admission.signer_permission import may
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.kinds.catalog import Resource

_WRITE = ("UPDATE", "certificates.k8s.io", "certificatesigningrequests", "approval")


class CertificateApproval(Plugin):
    name = "CertificateApproval"

    def __init__(self, authorizer: AuthorizerChain) -> None:
        self._authorizer = authorizer

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return (operation, resource.group, resource.plural, subresource) == _WRITE

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.old is not None
        # The stored signer counts, whatever the request makes of it.
        signer = attrs.old["spec"].get("signerName", "")
        if not await may(self._authorizer, attrs.user, "approve", signer):
            raise attrs.forbidden(f'user not permitted to approve requests with signerName "{signer}"')
