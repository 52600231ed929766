"""Signs approved certificate requests."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from setpoint.client import Client
from setpoint.controllers.certificates.approving import ACCOUNT, REQUESTS, request_controller
from setpoint.controllers.certificates.conditions import is_issued, is_to_be_signed, with_condition
from setpoint.controllers.controller_group import ControllerGroup
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.times import format_time
from setpoint.reconcile import Informer, Manager
from setpoint.reconcile.manager import Runnable

if TYPE_CHECKING:
    from setpoint.controllers.certificates.authority import Authority

Obj = dict[str, Any]

_SERIALS = 1 << 127
_SIGNERS = frozenset(
    f"kubernetes.io/{name}"
    for name in ("kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown")
)


def signing_controller(manager: Manager, options: ControllerOptions) -> Runnable:
    if not options.cluster_signing_cert or not options.cluster_signing_key:
        return ControllerGroup()  # no signing key is configured
    signer = Signer(manager.client_for(ACCOUNT), manager.informer(REQUESTS), manager.clock, manager.ids, options)
    return request_controller("csrsigning", manager, signer.reconcile)


class Signer:
    def __init__(self, client: Client, requests: Informer, clock: Clock, ids: Ids, options: ControllerOptions) -> None:
        self._client = client
        self._requests = requests
        self._clock = clock
        self._ids = ids
        self._options = options
        self._authority: Authority | None = None

    async def reconcile(self, name: str) -> None:
        csr = self._requests.get(name)
        if csr is None or is_issued(csr) or not is_to_be_signed(csr) or csr["spec"]["signerName"] not in _SIGNERS:
            return
        # Imported here: parsing certificates is slow to load, and most clusters never see a request.
        from setpoint.controllers.certificates.requests import parsed, refusal

        spec, now = csr["spec"], self._clock.now()
        usages, parsed_request = spec.get("usages") or [], parsed(csr)
        if why := refusal(spec["signerName"], parsed_request, usages):
            failed = {
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": why,
                "lastUpdateTime": format_time(now),
            }
            await self._client.update(with_condition(csr, failed), subresource="status")
            return
        serial = self._ids.below(_SERIALS - 1) + 1
        certificate = self._trusted().sign(parsed_request, usages, spec.get("expirationSeconds"), serial, now)
        status = {**csr["status"], "certificate": b64encode(certificate).decode()}
        await self._client.update({**csr, "status": status}, subresource="status")

    def _trusted(self) -> Authority:
        if self._authority is None:
            from setpoint.controllers.certificates.authority import Authority

            options = self._options
            longest = timedelta(seconds=options.cluster_signing_duration)
            self._authority = Authority(options.cluster_signing_cert, options.cluster_signing_key, longest)
        return self._authority
