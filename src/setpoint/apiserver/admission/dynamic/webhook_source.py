"""The webhooks that are configured now, by the requests that they can concern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from setpoint.apiserver.admission.dynamic.by_sort import BySort
from setpoint.apiserver.admission.dynamic.exempt import GROUP, from_webhooks, is_review
from setpoint.apiserver.admission.dynamic.matching import Criteria
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.dynamic.webhook_review import review_version
from setpoint.apiserver.admission.plugin import Attributes, Obj, Reader
from setpoint.kinds.catalog import Resource

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.expressions import Expression
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests


class Webhook:
    def __init__(self, configuration: str, at: int, hook: Obj, origin: str = "") -> None:
        self.hook = hook
        self.name: str = hook["name"]
        self.configuration = configuration
        self.id = f"{origin}{configuration}/{self.name}/{at}"
        self.criteria = Criteria.of_webhook(hook)
        self.ignores_failure = hook.get("failurePolicy") == "Ignore"
        self.has_side_effects = hook.get("sideEffects") not in ("None", "NoneOnDryRun")
        self.timeout: int = hook.get("timeoutSeconds", 10)
        self.review_version = review_version(hook)
        self.reinvoked = hook.get("reinvocationPolicy") == "IfNeeded"
        self.has_conditions = bool(hook.get("matchConditions"))
        self._conditions: list[Expression] | None = None

    @property
    def conditions(self) -> list[Expression]:
        if self._conditions is None:
            # The expression language is loaded for the first webhook that has conditions: most have none.
            from setpoint.apiserver.admission.dynamic.expressions import Context
            from setpoint.kinds.expressions import Purpose

            context = Context()
            self._conditions = [
                context.expression(one["expression"], Purpose.MATCH_CONDITION)
                for one in self.hook.get("matchConditions") or ()
            ]
        return self._conditions


class WebhookSource:
    def __init__(self, plural: str, reader: Reader, served: Served, static: StaticManifests | None = None) -> None:
        """`static`: those from files. They come before the others, and see what the others do not get to see."""
        self._plural = plural
        self._static = static
        self._static_by_sort: BySort[Webhook] = BySort(served)
        self._static_seen = 0
        self._followed = served.followed(f"{GROUP}/{plural}/")
        self._reader = reader
        self._known: dict[str, tuple[Obj, list[Webhook]]] = {}
        self._by_sort: BySort[Webhook] = BySort(served)

    def for_request(self, attrs: Attributes) -> tuple[Webhook, ...]:
        """Those that the request could match: by the names of their configurations, then as they stand there."""
        static = self._static
        if self._followed.changed() or (static is not None and static.revision != self._static_seen):
            first = self._read_static(static) if static is not None else []
            self._by_sort.replace(first + self._read())
        if static is not None and from_webhooks(attrs.resource):
            return self._static_by_sort.for_request(attrs)
        return self._by_sort.for_request(attrs)

    def sees(self, resource: Resource) -> bool:
        return not from_webhooks(resource) or (self._static is not None and not is_review(resource))

    def _read_static(self, static: StaticManifests) -> list[Webhook]:
        self._static_seen = static.revision
        found = [
            webhook
            for obj in static.of(self._plural)
            for webhook in _webhooks(obj["metadata"]["name"], obj, "manifest/")
        ]
        self._static_by_sort.replace(found)
        return found

    def _read(self) -> list[Webhook]:
        found: dict[str, tuple[Obj, list[Webhook]]] = {}
        for obj in self._reader.list(GROUP, self._plural):
            name: str = obj["metadata"]["name"]
            known = self._known.get(name)
            found[name] = known if known is not None and known[0] is obj else (obj, _webhooks(name, obj))
        self._known = found
        return [webhook for name in sorted(found) for webhook in found[name][1]]


def _webhooks(name: str, configuration: dict[str, Any], origin: str = "") -> list[Webhook]:
    return [Webhook(name, at, hook, origin) for at, hook in enumerate(configuration.get("webhooks") or ())]
