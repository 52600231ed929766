"""Health checks at `/healthz`, `/livez` and `/readyz`, among them the post-start hooks of a server.

A post-start hook that has not finished fails its check, which has upstream's name: clients that wait for readiness find
the first objects created and the loops of the server running. A finished hook stays finished; later failures have
checks of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from setpoint.meta.exposition import Family, counter, gauge
from setpoint.meta.goformat import quote
from setpoint.wire.message import Response

log = logging.getLogger("setpoint.apiserver")

Check = Callable[[], str]
"""Returns what is wrong, or "" if the check passes."""

HEALTH_PATHS: Final = ("/healthz", "/livez", "/readyz")
_TEXT = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
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
"""A check that the APIServices of built-in groups exist; it is no hook upstream."""
_ORDER: Final = (
    ADMISSION,
    INFORMERS,
    FLOW_CONSUMER,
    FLOW_FILTER,
    OBJECT_COUNTS,
    CUSTOM_INFORMERS,
    CUSTOM_CONTROLLERS,
    CUSTOM_SYNCED,
    NAMESPACES,
    PEERS,
    AUTHENTICATION_INFO,
    IDENTITY,
    IDENTITY_COLLECTION,
    STORAGE,
    TOKEN_TRACKING,
    SERVICE_REPAIR,
    ROLES,
    PRIORITY_CLASSES,
    FLOW_PRODUCER,
    OWN_SERVICE,
    SERVICE_RANGE,
    AGGREGATOR,
    LOCAL_SERVICES,
    REMOTE_SERVICES,
    REGISTRATION,
    REMOTE_DISCOVERY,
    AUTOREGISTRATION,
    _COMPLETION,
    OPENAPI_V2,
    OPENAPI_V3,
)
FLOW_CONTROL: Final = frozenset({FLOW_CONSUMER, FLOW_FILTER, FLOW_PRODUCER})
"""Hooks that a server without priority and fairness does not have."""
SERVED: Final = (
    ADMISSION,
    INFORMERS,
    FLOW_FILTER,
    OBJECT_COUNTS,
    CUSTOM_INFORMERS,
    CUSTOM_SYNCED,
    AUTHENTICATION_INFO,
    STORAGE,
    AGGREGATOR,
    REMOTE_DISCOVERY,
    OPENAPI_V2,
    OPENAPI_V3,
)
"""Hooks that are finished when the server answers requests: its caches are filled, and stored definitions and
APIServices are served."""
BOOTSTRAPPED: Final = (ROLES, PRIORITY_CLASSES, FLOW_PRODUCER, SERVICE_RANGE, AUTOREGISTRATION)
"""Hooks that are finished when the initial objects of a cluster exist."""


@dataclass(slots=True)
class _Results:
    """The results of a check when all checks were requested."""

    healthy: bool = True
    """The last result."""
    successes: int = 0
    failures: int = 0

    def add(self, healthy: bool) -> None:
        self.healthy = healthy
        self.successes += healthy
        self.failures += not healthy


class Health:
    """The health checks of a server."""

    def __init__(self, checks: Mapping[str, Mapping[str, Check]]) -> None:
        """`checks` are checks by name, for each of `healthz`, `livez` and `readyz`."""
        self._checks = {root: dict(named) for root, named in checks.items()}
        self._results: dict[tuple[str, str], _Results] = {}
        """Results of the checks, by (name of the check, root)."""

    def add(self, root: str, name: str, check: Check) -> None:
        """Add a check to `healthz`, `livez` or `readyz`."""
        self._checks.setdefault(root, {})[name] = check

    def paths(self) -> list[str]:
        return [
            path for root, checks in self._checks.items() for path in (f"/{root}", *(f"/{root}/{c}" for c in checks))
        ]

    def answer(self, path: str, query: dict[str, list[str]]) -> Response | None:
        root, more, name = path[1:].partition("/")
        checks = self._checks.get(root)
        if checks is None:
            return None
        if more:
            check = checks.get(name)
            if check is None:
                return Response(404, b"404 page not found\n", list(_TEXT))
            problem = check()
            if problem:
                return Response(500, f"internal server error: {problem}\n".encode(), list(_TEXT))
            return Response(200, b"ok", list(_TEXT))
        excluded = set(query.get("exclude", []))
        lines: list[str] = []
        failures: list[str] = []
        for check_name, check in checks.items():
            if check_name in excluded:
                lines.append(f"[+]{check_name} excluded: ok\n")
                continue
            problem = check()
            results = self._results.setdefault((check_name, root), _Results())
            results.add(not problem)
            if problem:
                # The summary is public; the reason is only in the log and in the response to the single check.
                failures.append(f"{check_name}: {problem}")
                lines.append(f"[-]{check_name} failed: reason withheld\n")
            else:
                lines.append(f"[+]{check_name} ok\n")
        if unknown := sorted(excluded.difference(checks)):
            names = ",".join(map(quote, unknown))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if failures:
            log.debug("%s check failed: %s", root, "; ".join(failures))
            return Response(500, ("".join(lines) + f"{root} check failed\n").encode(), list(_TEXT))
        if "verbose" in query:
            return Response(200, ("".join(lines) + f"{root} check passed\n").encode(), list(_TEXT))
        return Response(200, b"ok", list(_TEXT))

    def families(self) -> list[Family]:
        """Return the service level indicators of `/metrics/slis`."""
        last = [({"name": name, "type": root}, float(result.healthy)) for (name, root), result in self._results.items()]
        counts = [
            ({"name": name, "type": root, "status": status}, float(count))
            for (name, root), result in self._results.items()
            for status, count in (("error", result.failures), ("success", result.successes))
            if count
        ]
        return [
            gauge("kubernetes_healthcheck", "The last result of a health check.", last),
            counter("kubernetes_healthchecks_total", "Number of results of health checks.", counts),
        ]


class PostStart:
    """The state of the post-start hooks."""

    def __init__(self) -> None:
        self._unfinished = set(_ORDER)
        self.finished = asyncio.Event()
        """Set when all hooks have finished."""

    def finish(self, *hooks: str) -> None:
        """Mark these hooks as finished."""
        self._unfinished.difference_update(hooks)
        if AUTOREGISTRATION in hooks:
            self._unfinished.discard(_COMPLETION)
        if not self._unfinished:
            self.finished.set()

    def finish_all(self) -> None:
        self.finish(*_ORDER)

    def checks(self, without: Iterable[str] = ()) -> dict[str, Check]:
        """Health checks by name, in upstream's order."""
        excluded = frozenset(without)
        return {
            hook if hook == _COMPLETION else _HOOK + hook: partial(self._check, hook)
            for hook in _ORDER
            if hook not in excluded
        }

    def _check(self, hook: str) -> str:
        return "not finished" if hook in self._unfinished else ""
