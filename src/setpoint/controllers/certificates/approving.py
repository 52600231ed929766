"""Approves the client certificate requests of nodes automatically."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.certificates.conditions import is_decided, is_issued, with_condition
from setpoint.controllers.options import ControllerOptions
from setpoint.reconcile import Controller, Informer, Manager, RateLimitingQueue, key_of
from setpoint.reconcile.rate_limiting import Bucket, ExponentialBackoff

Obj = dict[str, Any]

REQUESTS = builtin("certificatesigningrequests", "certificates.k8s.io")
ACCOUNT = "certificate-controller"
WORKERS = 5
_FIRST_RETRY = 0.2


class NotAllowed(Exception):
    """The request is a valid node request, but the requester lacks the permission."""


def request_controller(name: str, manager: Manager, reconcile: Any) -> Controller:
    """Return a controller that reconciles every changed request."""
    queue = RateLimitingQueue(manager.clock, (ExponentialBackoff(_FIRST_RETRY), Bucket(manager.clock)))
    controller = Controller(name, reconcile, manager.clock, workers=WORKERS, queue=queue)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(key_of(new))

    manager.informer(REQUESTS).add_handler(changed)
    return controller


def approving_controller(manager: Manager, _: ControllerOptions) -> Controller:
    approver = Approver(manager.client_for(ACCOUNT), manager.informer(REQUESTS))
    return request_controller("csrapproving", manager, approver.reconcile)


class Approver:
    def __init__(self, client: Client, requests: Informer) -> None:
        self._client = client
        self._requests = requests

    async def reconcile(self, name: str) -> None:
        csr = self._requests.get(name)
        if csr is None or is_issued(csr) or is_decided(csr):
            return
        # Imported here: parsing certificates is slow to load, and most clusters never see a request.
        from setpoint.controllers.certificates.requests import KUBELET_CLIENT, parsed, refusal

        spec = csr["spec"]
        if spec["signerName"] != KUBELET_CLIENT:
            return
        parsed_request = parsed(csr)
        if refusal(KUBELET_CLIENT, parsed_request, spec.get("usages") or ()):
            return
        tried = []
        if spec.get("username") == parsed_request.common_name:
            tried.append(("selfnodeclient", "Auto approving self kubelet client certificate"))
        tried.append(("nodeclient", "Auto approving kubelet client certificate"))
        for permission, message in tried:
            if await self._may(spec, permission):
                await self._approve(csr, f"{message} after SubjectAccessReview.")
                return
        kinds = " ".join(permission for permission, _ in tried)
        raise NotAllowed(f'recognized csr "{name}" as [{kinds}] but subject access review was not approved')

    async def _may(self, spec: Obj, permission: str) -> bool:
        who = {"user": spec.get("username"), "uid": spec.get("uid"), "groups": spec.get("groups"),
               "extra": spec.get("extra")}  # fmt: skip
        review = await self._client.create(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    **{name: value for name, value in who.items() if value},
                    "resourceAttributes": {
                        "group": "certificates.k8s.io",
                        "resource": "certificatesigningrequests",
                        "verb": "create",
                        "subresource": permission,
                        "version": "*",
                    },
                },
            }
        )
        return bool((review.get("status") or {}).get("allowed"))

    async def _approve(self, csr: Obj, message: str) -> None:
        approved = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}
        await self._client.update(with_condition(csr, approved), subresource="approval")
