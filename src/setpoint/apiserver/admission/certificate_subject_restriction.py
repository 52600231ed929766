"""CertificateSubjectRestriction: nobody becomes a member of system:masters by a signed certificate."""

from __future__ import annotations

from base64 import b64decode

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource

_SIGNER = "kubernetes.io/kube-apiserver-client"


class CertificateSubjectRestriction(Plugin):
    name = "CertificateSubjectRestriction"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation == "CREATE" and kind == ("certificates.k8s.io", "certificatesigningrequests", "")

    async def validate(self, attrs: Attributes) -> None:
        # Certificates take long to import and are rarely asked for.
        from setpoint.apiserver.admission.request_subject import subject_of

        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        if spec.get("signerName") != _SIGNER:
            return
        try:
            subject = subject_of(b64decode(spec.get("request") or ""))
        except ValueError as error:
            raise attrs.forbidden(f"failed to parse CSR: {error}") from None
        if "system:masters" in subject.organizations:
            raise attrs.forbidden(f"use of {_SIGNER} signer with system:masters group is not allowed")
