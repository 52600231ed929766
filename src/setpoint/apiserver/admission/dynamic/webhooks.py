"""The configured admission webhooks, and calls to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from setpoint.apiserver.admission.dynamic.admission_review import (
    MalformedReview,
    ReviewResponse,
    UndecodableReview,
    build_review,
    denial,
    read_response,
    review_version,
)
from setpoint.apiserver.admission.dynamic.matching import (
    GROUP,
    Criteria,
    HookIndex,
    Matcher,
    exempt_from_webhooks,
    is_review,
)
from setpoint.apiserver.admission.dynamic.served_resources import ServedResources
from setpoint.apiserver.admission.plugin import Attributes, Reader
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.webhook_client import NoIdentity, WebhookClient, WebhookError
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Ids
from setpoint.meta.errors import BadRequest, Forbidden
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.expressions import Expression
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests


class Webhook:
    """One webhook of a configuration."""

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
    """The stored and static webhooks of one kind."""

    def __init__(
        self, plural: str, reader: Reader, served: ServedResources, static: StaticManifests | None = None
    ) -> None:
        """`static` holds webhooks from files: they precede the stored ones, and also apply to resources that are exempt
        from those."""
        self._plural = plural
        self._static = static
        self._static_index: HookIndex[Webhook] = HookIndex(served)
        self._static_seen = 0
        self._changes = served.track_changes(f"{GROUP}/{plural}/")
        self._reader = reader
        self._known: dict[str, tuple[Obj, list[Webhook]]] = {}
        self._index: HookIndex[Webhook] = HookIndex(served)

    def for_request(self, attrs: Attributes) -> tuple[Webhook, ...]:
        """Return the webhooks that the request could match, by the names of their configurations and in their order
        there."""
        static = self._static
        if self._changes.changed() or (static is not None and static.revision != self._static_seen):
            first = self._read_static(static) if static is not None else []
            self._index.replace(first + self._read())
        if static is not None and exempt_from_webhooks(attrs.resource):
            return self._static_index.for_request(attrs)
        return self._index.for_request(attrs)

    def handles(self, resource: Resource) -> bool:
        """Return whether a webhook may apply to the resource."""
        return not exempt_from_webhooks(resource) or (self._static is not None and not is_review(resource))

    def _read_static(self, static: StaticManifests) -> list[Webhook]:
        self._static_seen = static.revision
        found = [
            webhook
            for obj in static.objects_of(self._plural)
            for webhook in _webhooks(obj["metadata"]["name"], obj, "manifest/")
        ]
        self._static_index.replace(found)
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


class WebhookCallFailed(Exception):
    """A webhook gave no usable response; its failure policy decides what follows."""


@dataclass(slots=True)
class Invocation:
    """A webhook that matched a write."""

    webhook: Webhook
    matched: Resource
    obj: Obj | None
    old: Obj | None
    """The object and the old object in the version that the webhook matched."""


@dataclass(frozen=True, slots=True)
class WebhookCaller:
    """Matches and calls webhooks."""

    client: WebhookClient
    served: ServedResources
    matcher: Matcher
    authorizer: AuthorizerChain
    ids: Ids

    async def invocation(self, webhook: Webhook, attrs: Attributes) -> Invocation | None:
        """Return the invocation, or None if the webhook does not match this write. Raises NotFound, Forbidden."""
        matched = self.matcher.match(webhook.criteria, attrs)
        if matched is None:
            return None
        obj = await self.served.object_of(attrs, attrs.obj, matched)
        old = await self.served.object_of(attrs, attrs.old, matched)
        found = Invocation(webhook, matched, obj, old)
        return found if not webhook.has_conditions or await self._conditions_hold(found, attrs) else None

    async def _conditions_hold(self, invocation: Invocation, attrs: Attributes) -> bool:
        from setpoint.apiserver.admission.dynamic.expressions import ConditionError, WriteBindings, conditions_hold

        webhook = invocation.webhook
        write = WriteBindings(attrs, invocation.matched, invocation.obj, invocation.old, self.authorizer)
        bindings = write.with_params(None, None, matched=attrs.resource)
        try:
            return await write.resolve(
                lambda: conditions_hold(webhook.conditions, bindings, None, webhook.ignores_failure)
            )
        except ConditionError as error:
            raise Forbidden.of(attrs.resource.group, attrs.resource.plural, attrs.name, str(error)) from None

    async def call(self, invocation: Invocation, attrs: Attributes, mutating: bool) -> ReviewResponse:
        """Call the webhook and return its allowing response. Raises WebhookCallFailed, or ApiError if it denies the
        write."""
        webhook = invocation.webhook
        if attrs.dry_run and webhook.has_side_effects:
            raise BadRequest(f"admission webhook {quote(webhook.name)} does not support dry run")
        if not webhook.review_version:
            raise _failed(
                webhook,
                "could not create admission objects: "
                "webhook does not accept known AdmissionReview versions (v1, v1beta1)",
            )
        uid = self.ids.uid()
        review = build_review(attrs, invocation.matched, invocation.obj, invocation.old, webhook.review_version, uid)
        try:
            answer = await self.client.call(webhook.hook["clientConfig"], orjson.dumps(review), webhook.timeout)
            response = read_response(answer, webhook.review_version, uid, mutating)
        except (WebhookError, UndecodableReview) as problem:
            raise _failed(webhook, f"failed to call webhook: {problem}") from None
        except NoIdentity as problem:
            raise _failed(webhook, f"could not get REST client: {problem}") from None
        except MalformedReview as problem:
            raise _failed(webhook, f"received invalid webhook response: {problem}") from None
        for key, value in response.annotations.items():
            attrs.audit[f"{webhook.name}/{key}"] = value
        for text in response.warnings:
            attrs.warn(text)
        if not response.allowed:
            raise denial(webhook.name, response.result)
        return response


def _failed(webhook: Webhook, why: str) -> WebhookCallFailed:
    return WebhookCallFailed(f"failed calling webhook {quote(webhook.name)}: {why}")
