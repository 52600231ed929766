"""Approves certificate signing requests of nodes, signs approved requests, and deletes old ones.

`kubelet_serving` says which requests for serving certificates are approved.

The modules that parse certificates are imported with the first request, because loading them is slow.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.conditions import conditions_of
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time, parse_time
from setpoint.reconcile import Controller, Informer, Manager, RateLimitingQueue, Result, key_of
from setpoint.reconcile.manager import ControllerGroup, Runnable
from setpoint.reconcile.run import because, current_run, periodic_run
from setpoint.reconcile.workqueue import Bucket, ExponentialBackoff

if TYPE_CHECKING:
    from setpoint.controllers.certificate_issuing import Authority


REQUESTS = builtin("certificatesigningrequests", "certificates.k8s.io")
ACCOUNT = "certificate-controller"
_WORKERS = 5
_INITIAL_BACKOFF = 0.2
_SERIALS = 1 << 127
_MIN_SERVING_RETRY, _MAX_SERVING_RETRY = 1.0, 300.0
"""Seconds until a request for a serving certificate is considered again; in between as long as it has waited."""
_SIGNERS = frozenset(
    f"kubernetes.io/{name}"
    for name in ("kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown")
)
log = logging.getLogger("setpoint.controllers")
_SIGNING_REQUESTS_EVERY = 3600.0
_COMPLETED_LIFETIME, _PENDING_LIFETIME = timedelta(hours=1), timedelta(hours=24)
_POD_REQUESTS = builtin("podcertificaterequests", "certificates.k8s.io")
_POD_REQUESTS_EVERY = 300.0
_POD_REQUEST_LIFETIME = timedelta(minutes=15)


def _is_decided(csr: ObjView) -> bool:
    return any(found["type"] in ("Approved", "Denied") for found in conditions_of(csr))


def _is_to_be_signed(csr: ObjView) -> bool:
    kinds = {found["type"] for found in conditions_of(csr)}
    failed = any(found["type"] == "Failed" and found.get("status", "True") == "True" for found in conditions_of(csr))
    return "Approved" in kinds and "Denied" not in kinds and not failed


def is_issued(csr: ObjView) -> bool:
    return bool((csr.get("status") or {}).get("certificate"))


def _with_csr_condition(csr: Obj, condition: Obj) -> Obj:
    status = csr.get("status") or {}
    return {**csr, "status": {**status, "conditions": [*conditions_of(csr), condition]}}


# -- approving --------------------------------------------------------------------------------------------------------


class NotAllowed(Exception):
    """The request is a valid node request, but the requester lacks the permission."""


def _request_controller(name: str, manager: Manager, reconcile: Any) -> Controller:
    """Return a controller that reconciles every changed request."""
    queue = RateLimitingQueue(manager.clock, (ExponentialBackoff(_INITIAL_BACKOFF), Bucket(manager.clock)))
    controller = Controller(name, reconcile, manager.clock, workers=_WORKERS, queue=queue)

    def changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(key_of(new))

    manager.informer(REQUESTS).add_handler(changed)
    return controller


def approving_controller(manager: Manager, _: ControllerOptions) -> Controller:
    approver = Approver(manager.client_for(ACCOUNT), manager.informer(REQUESTS), manager.clock)
    return _request_controller("csrapproving", manager, approver.reconcile)


class Approver:
    """Approves the requests of nodes for client and serving certificates automatically."""

    def __init__(self, client: Client, requests: Informer[Obj], clock: Clock) -> None:
        self._client = client
        self._requests = requests
        self._clock = clock

    async def reconcile(self, name: str) -> Result | None:
        csr = self._requests.get(name)
        if csr is None or is_issued(csr) or _is_decided(csr):
            return None
        # Imported here: parsing certificates is slow to load, and most clusters never see a request.
        from setpoint.controllers.certificate_issuing import KUBELET_CLIENT, KUBELET_SERVING

        if csr["spec"]["signerName"] == KUBELET_SERVING:
            return await self._reconcile_serving(csr)
        if csr["spec"]["signerName"] == KUBELET_CLIENT:
            await self._reconcile_client(name, csr)
        return None

    async def _reconcile_serving(self, csr: Obj) -> Result | None:
        from setpoint.controllers.certificate_issuing import KUBELET_SERVING, parsed, refusal
        from setpoint.controllers.kubelet_serving import SELF_NODE_SERVER, requested_by, serving_problem

        spec, request = csr["spec"], parsed(csr)
        node = requested_by(spec, request)
        if refusal(KUBELET_SERVING, request, spec.get("usages") or ()) or not node:
            return None
        if not await self._may(spec, SELF_NODE_SERVER):
            return None
        problem = await serving_problem(self._client, node, request)
        if not problem:
            await self._approve(csr, "Auto approving kubelet serving certificate after SubjectAccessReview.")
            return None
        # The node may report its addresses later.
        age = (self._clock.now() - parse_time(csr["metadata"]["creationTimestamp"])).total_seconds()
        log.info("certificate request %s is not approved: %s", csr["metadata"]["name"], problem)
        return Result(requeue_after=min(max(age, _MIN_SERVING_RETRY), _MAX_SERVING_RETRY))

    async def _reconcile_client(self, name: str, csr: Obj) -> None:
        from setpoint.controllers.certificate_issuing import KUBELET_CLIENT, parsed, refusal

        spec = csr["spec"]
        parsed_request = parsed(csr)
        if refusal(KUBELET_CLIENT, parsed_request, spec.get("usages") or ()):
            return
        attempts = []
        if spec.get("username") == parsed_request.common_name:
            attempts.append(("selfnodeclient", "Auto approving self kubelet client certificate"))
        attempts.append(("nodeclient", "Auto approving kubelet client certificate"))
        for permission, message in attempts:
            if await self._may(spec, permission):
                await self._approve(csr, f"{message} after SubjectAccessReview.")
                return
        kinds = " ".join(permission for permission, _ in attempts)
        raise NotAllowed(f'recognized csr "{name}" as [{kinds}] but subject access review was not approved')

    async def _may(self, spec: Obj, permission: str) -> bool:
        who = {
            "user": spec.get("username"),
            "uid": spec.get("uid"),
            "groups": spec.get("groups"),
            "extra": spec.get("extra"),
        }
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
        await self._client.update(_with_csr_condition(csr, approved), subresource="approval")


# -- signing ----------------------------------------------------------------------------------------------------------


def signing_controller(manager: Manager, options: ControllerOptions) -> Runnable:
    if not options.cluster_signing_cert or not options.cluster_signing_key:
        return ControllerGroup()  # no signing key is configured
    signer = Signer(manager.client_for(ACCOUNT), manager.informer(REQUESTS), manager.clock, manager.ids, options)
    return _request_controller("csrsigning", manager, signer.reconcile)


class Signer:
    """Signs approved certificate requests."""

    def __init__(
        self, client: Client, requests: Informer[Obj], clock: Clock, ids: Ids, options: ControllerOptions
    ) -> None:
        self._client = client
        self._requests = requests
        self._clock = clock
        self._ids = ids
        self._options = options
        self._authority: Authority | None = None

    async def reconcile(self, name: str) -> None:
        csr = self._requests.get(name)
        if csr is None or is_issued(csr) or not _is_to_be_signed(csr) or csr["spec"]["signerName"] not in _SIGNERS:
            return
        # Imported here: parsing certificates is slow to load, and most clusters never see a request.
        from setpoint.controllers.certificate_issuing import parsed, refusal

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
            await self._client.update(_with_csr_condition(csr, failed), subresource="status")
            return
        serial = self._ids.below(_SERIALS - 1) + 1
        certificate = self._trusted().sign(parsed_request, usages, spec.get("expirationSeconds"), serial, now)
        status = {**csr["status"], "certificate": b64encode(certificate).decode()}
        await self._client.update({**csr, "status": status}, subresource="status")

    def _trusted(self) -> Authority:
        if self._authority is None:
            from setpoint.controllers.certificate_issuing import Authority

            options = self._options
            longest = timedelta(seconds=options.cluster_signing_duration)
            self._authority = Authority(options.cluster_signing_cert, options.cluster_signing_key, longest)
        return self._authority


def cleaning_controller(manager: Manager, _: ControllerOptions) -> SigningRequestCleaner:
    return SigningRequestCleaner(manager.client_for(ACCOUNT), manager.informer(REQUESTS), manager.clock)


class SigningRequestCleaner:
    """Deletes old CertificateSigningRequests: completed ones after an hour, pending ones after a day."""

    def __init__(self, client: Client, requests: Informer[Obj], clock: Clock) -> None:
        self._client = client
        self._requests = requests
        self._clock = clock

    async def run(self) -> None:
        name, besides = "certificatesigningrequest-cleaner-controller", f"timer:{_SIGNING_REQUESTS_EVERY:g}"
        current_run.set(periodic_run(name, self._clock.now(), besides))
        because("the request has ended or expired")
        while True:
            for csr in tuple(self._requests.items.values()):
                if is_over(csr, self._clock.now()):
                    await self._delete(csr)
            await self._clock.sleep(_SIGNING_REQUESTS_EVERY)

    async def _delete(self, csr: Obj) -> None:
        meta = csr["metadata"]
        try:
            await self._client.delete(REQUESTS, meta["name"], uid=meta["uid"])
        except (ApiError, Unreachable) as error:
            log.info("cannot clean up certificate request %s: %s", meta["name"], error)


def is_over(csr: Obj, now: datetime) -> bool:
    def passed(stamp: str | None, time: timedelta) -> bool:
        return bool(stamp) and now - parse_time(str(stamp)) > time

    conditions = conditions_of(csr)
    if not conditions:
        return passed(csr["metadata"].get("creationTimestamp"), _PENDING_LIFETIME)
    for found in conditions:
        since, issued = found.get("lastUpdateTime"), is_issued(csr)
        if found["type"] in ("Denied", "Failed") and passed(since, _COMPLETED_LIFETIME):
            return True
        if found["type"] == "Approved" and (
            passed(since, _COMPLETED_LIFETIME if issued else _PENDING_LIFETIME) or (issued and _has_expired(csr, now))
        ):
            return True
    return False


def _has_expired(csr: Obj, now: datetime) -> bool:
    # Imported here: parsing certificates is slow to load, and most clusters never see a request.
    from setpoint.kinds.certificates.requests import parse_certificate
    from setpoint.meta.x509.pem import blocks

    block = next(blocks(b64decode(csr["status"]["certificate"])), None)
    certificate = parse_certificate(block.data) if block is not None else None
    return certificate is not None and now > certificate.not_valid_after_utc


# -- PodCertificateRequests -------------------------------------------------------------------------------------------


def pod_request_cleaning_controller(manager: Manager, _: ControllerOptions) -> PodRequestCleaner:
    return PodRequestCleaner(manager)


class PodRequestCleaner:
    """Deletes PodCertificateRequests after 15 minutes, by which time they are completed."""

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client_for("podcertificaterequestcleaner")
        self._requests = manager.informer(_POD_REQUESTS)
        self._clock = manager.clock

    async def run(self) -> None:
        name, besides = "podcertificaterequest-cleaner-controller", f"timer:{_POD_REQUESTS_EVERY:g}"
        current_run.set(periodic_run(name, self._clock.now(), besides))
        because("the request is too old")
        while True:
            for request in tuple(self._requests.items.values()):
                meta = request["metadata"]
                if self._clock.now() - parse_time(meta["creationTimestamp"]) >= _POD_REQUEST_LIFETIME:
                    try:
                        await self._client.delete(_POD_REQUESTS, meta["name"], meta["namespace"], uid=meta["uid"])
                    except (ApiError, Unreachable) as error:
                        log.info("cannot clean up %s/%s: %s", meta["namespace"], meta["name"], error)
            await self._clock.sleep(_POD_REQUESTS_EVERY)
