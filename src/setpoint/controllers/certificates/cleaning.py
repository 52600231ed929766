"""Deletes old requests: completed ones after an hour, pending ones after a day."""

from __future__ import annotations

import logging
from base64 import b64decode
from datetime import datetime, timedelta
from typing import Any

from setpoint.client import Client, Unreachable
from setpoint.controllers.certificates.approving import ACCOUNT, REQUESTS
from setpoint.controllers.certificates.conditions import conditions_of, is_issued
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.times import parse_time
from setpoint.reconcile import Informer, Manager

Obj = dict[str, Any]

log = logging.getLogger("setpoint.controllers")

_EVERY = 3600.0
_DONE_WITH, _UNANSWERED = timedelta(hours=1), timedelta(hours=24)


def cleaning_controller(manager: Manager, _: ControllerOptions) -> Cleaner:
    return Cleaner(manager.client_for(ACCOUNT), manager.informer(REQUESTS), manager.clock)


class Cleaner:
    def __init__(self, client: Client, requests: Informer, clock: Clock) -> None:
        self._client = client
        self._requests = requests
        self._clock = clock

    async def run(self) -> None:
        while True:
            for csr in tuple(self._requests.items.values()):
                if is_over(csr, self._clock.now()):
                    await self._delete(csr)
            await self._clock.sleep(_EVERY)

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
        return passed(csr["metadata"].get("creationTimestamp"), _UNANSWERED)
    for found in conditions:
        since, issued = found.get("lastUpdateTime"), is_issued(csr)
        if found["type"] in ("Denied", "Failed") and passed(since, _DONE_WITH):
            return True
        if found["type"] == "Approved" and (
            passed(since, _DONE_WITH if issued else _UNANSWERED) or (issued and _has_expired(csr, now))
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
