"""Deletes PodCertificateRequests after 15 minutes, by which time they are completed."""

from __future__ import annotations

import logging
from datetime import timedelta

from setpoint.client import Unreachable
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import ApiError
from setpoint.meta.times import parse_time
from setpoint.reconcile import Manager

log = logging.getLogger("setpoint.controllers")

REQUESTS = builtin("podcertificaterequests", "certificates.k8s.io")
_EVERY = 300.0
_LONGEST = timedelta(minutes=15)


def pod_request_cleaning_controller(manager: Manager, _: ControllerOptions) -> PodRequestCleaner:
    return PodRequestCleaner(manager)


class PodRequestCleaner:
    def __init__(self, manager: Manager) -> None:
        self._client = manager.client_for("podcertificaterequestcleaner")
        self._requests = manager.informer(REQUESTS)
        self._clock = manager.clock

    async def run(self) -> None:
        while True:
            for request in tuple(self._requests.items.values()):
                meta = request["metadata"]
                if self._clock.now() - parse_time(meta["creationTimestamp"]) >= _LONGEST:
                    try:
                        await self._client.delete(REQUESTS, meta["name"], meta["namespace"], uid=meta["uid"])
                    except (ApiError, Unreachable) as error:
                        log.info("cannot clean up %s/%s: %s", meta["namespace"], meta["name"], error)
            await self._clock.sleep(_EVERY)
