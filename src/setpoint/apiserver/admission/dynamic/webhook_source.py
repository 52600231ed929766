"""The webhooks that are configured now, by the requests that they can concern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from setpoint.apiserver.admission.dynamic.by_sort import BySort
from setpoint.apiserver.admission.dynamic.exempt import GROUP
from setpoint.apiserver.admission.dynamic.matching import Criteria
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.dynamic.webhook_review import review_version
from setpoint.apiserver.admission.plugin import Attributes, Obj, Reader

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.expressions import Expression


class Webhook:
    def __init__(self, configuration: str, at: int, hook: Obj) -> None:
        self.hook = hook
        self.name: str = hook["name"]
        self.configuration = configuration
        self.id = f"{configuration}/{self.name}/{at}"
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
    def __init__(self, plural: str, reader: Reader, served: Served) -> None:
        self._plural = plural
        self._followed = served.followed(f"{GROUP}/{plural}/")
        self._reader = reader
        self._known: dict[str, tuple[Obj, list[Webhook]]] = {}
        self._by_sort: BySort[Webhook] = BySort(served)

    def for_request(self, attrs: Attributes) -> tuple[Webhook, ...]:
        """Those that the request could match: by the names of their configurations, then as they stand there."""
        if self._followed.changed():
            self._by_sort.replace(self._read())
        return self._by_sort.for_request(attrs)

    def _read(self) -> list[Webhook]:
        found: dict[str, tuple[Obj, list[Webhook]]] = {}
        for obj in self._reader.list(GROUP, self._plural):
            name: str = obj["metadata"]["name"]
            known = self._known.get(name)
            found[name] = known if known is not None and known[0] is obj else (obj, _webhooks(name, obj))
        self._known = found
        return [webhook for name in sorted(found) for webhook in found[name][1]]


def _webhooks(name: str, configuration: dict[str, Any]) -> list[Webhook]:
    return [Webhook(name, at, hook) for at, hook in enumerate(configuration.get("webhooks") or ())]
