"""The steps that complete the start of a server, each of which is a health check of upstream's name.

A step that is not finished fails its check: clients that wait for readiness find the first objects made and the loops
of the server running. A step that was finished stays so; what fails later has checks of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from setpoint.apiserver.health import Check

_HOOK: Final = "poststarthook/"

ADMISSION: Final = "start-apiserver-admission-initializer"
INFORMERS: Final = "generic-apiserver-start-informers"
FLOW_CONSUMER: Final = "priority-and-fairness-config-consumer"
FLOW_FILTER: Final = "priority-and-fairness-filter"
OBJECT_COUNTS: Final = "storage-object-count-tracker-hook"
CUSTOM_INFORMERS: Final = "start-apiextensions-informers"
CUSTOM_CONTROLLERS: Final = "start-apiextensions-controllers"
CUSTOM_SYNCED: Final = "crd-informer-synced"
NAMESPACES: Final = "start-system-namespaces-controller"
PEERS: Final = "peer-endpoint-reconciler-controller"
AUTHENTICATION_INFO: Final = "start-cluster-authentication-info-controller"
IDENTITY: Final = "start-kube-apiserver-identity-lease-controller"
IDENTITY_COLLECTION: Final = "start-kube-apiserver-identity-lease-garbage-collector"
STORAGE: Final = "storage-readiness"
TOKEN_TRACKING: Final = "start-legacy-token-tracking-controller"
SERVICE_REPAIR: Final = "start-service-ip-repair-controllers"
ROLES: Final = "rbac/bootstrap-roles"
PRIORITY_CLASSES: Final = "scheduling/bootstrap-system-priority-classes"
FLOW_PRODUCER: Final = "priority-and-fairness-config-producer"
OWN_SERVICE: Final = "bootstrap-controller"
SERVICE_RANGE: Final = "start-kubernetes-service-cidr-controller"
AGGREGATOR: Final = "start-kube-aggregator-informers"
LOCAL_SERVICES: Final = "apiservice-status-local-available-controller"
REMOTE_SERVICES: Final = "apiservice-status-remote-available-controller"
REGISTRATION: Final = "apiservice-registration-controller"
REMOTE_DISCOVERY: Final = "apiservice-discovery-controller"
AUTOREGISTRATION: Final = "kube-apiserver-autoregistration"
OPENAPI_V2: Final = "apiservice-openapi-controller"
OPENAPI_V3: Final = "apiservice-openapiv3-controller"

_COMPLETION: Final = "autoregister-completion"
"""No hook upstream, but a check that the APIServices of built-in groups are there."""

_ORDER: Final = (
    ADMISSION, INFORMERS, FLOW_CONSUMER, FLOW_FILTER, OBJECT_COUNTS, CUSTOM_INFORMERS, CUSTOM_CONTROLLERS,
    CUSTOM_SYNCED, NAMESPACES, PEERS, AUTHENTICATION_INFO, IDENTITY, IDENTITY_COLLECTION, STORAGE, TOKEN_TRACKING,
    SERVICE_REPAIR, ROLES, PRIORITY_CLASSES, FLOW_PRODUCER, OWN_SERVICE, SERVICE_RANGE, AGGREGATOR, LOCAL_SERVICES,
    REMOTE_SERVICES, REGISTRATION, REMOTE_DISCOVERY, AUTOREGISTRATION, _COMPLETION, OPENAPI_V2, OPENAPI_V3,
)  # fmt: skip
FLOW_CONTROL: Final = frozenset({FLOW_CONSUMER, FLOW_FILTER, FLOW_PRODUCER})
"""The steps that a server without priority and fairness does not have."""
SERVED: Final = (
    ADMISSION, INFORMERS, FLOW_FILTER, OBJECT_COUNTS, CUSTOM_INFORMERS, CUSTOM_SYNCED, AUTHENTICATION_INFO, STORAGE,
    AGGREGATOR, REMOTE_DISCOVERY, OPENAPI_V2, OPENAPI_V3,
)  # fmt: skip
"""The steps that are finished when the server answers requests: its caches are filled, and the definitions and
APIServices that are stored are served."""

BOOTSTRAPPED: Final = (ROLES, PRIORITY_CLASSES, FLOW_PRODUCER, SERVICE_RANGE, AUTOREGISTRATION)
"""The steps that are finished when the objects that every cluster begins with are there."""


class PostStart:
    def __init__(self) -> None:
        self._pending = set(_ORDER)
        self.finished = asyncio.Event()
        """Set when no step is left."""

    def finish(self, *steps: str) -> None:
        """Record that these steps are finished."""
        self._pending.difference_update(steps)
        if AUTOREGISTRATION in steps:
            self._pending.discard(_COMPLETION)
        if not self._pending:
            self.finished.set()

    def finish_all(self) -> None:
        self.finish(*_ORDER)

    def checks(self, without: Iterable[str] = ()) -> dict[str, Check]:
        """Health checks by name, in upstream's order."""
        left_out = frozenset(without)
        return {
            step if step == _COMPLETION else _HOOK + step: partial(self._check, step)
            for step in _ORDER
            if step not in left_out
        }

    def _check(self, step: str) -> str:
        return "not finished" if step in self._pending else ""
