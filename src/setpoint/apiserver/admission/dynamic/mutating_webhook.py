"""MutatingAdmissionWebhook: others may change what is written, one after the other.

Whoever asked for it (reinvocationPolicy IfNeeded) gets to see the object once more if somebody changed it afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from setpoint.apiserver.admission.dynamic.changes import ChangeProblem, replace_object
from setpoint.apiserver.admission.dynamic.exempt import from_webhooks
from setpoint.apiserver.admission.dynamic.webhook_calls import Caller, CallFailed, Invocation
from setpoint.apiserver.admission.dynamic.webhook_review import Verdict
from setpoint.apiserver.admission.dynamic.webhook_source import Webhook, WebhookSource
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader, Reinvocation
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import InternalError
from setpoint.meta.goformat import quote
from setpoint.meta.patch.errors import PatchError
from setpoint.meta.patch.json_patch import apply_json_patch, decode_json_patch

_ANNOTATION = "mutation.webhook.admission.k8s.io"
_FAILED_OPEN = f"failed-open.{_ANNOTATION}"


@dataclass(slots=True)
class Round:
    """What the second round needs to know of the first."""

    output: bytes = b""
    called: set[str] = field(default_factory=set)
    """Those that want to be called again, since the last change."""
    again: set[str] = field(default_factory=set)
    """Those after whom something changed."""

    def changed(self) -> None:
        self.again |= self.called
        self.called = set()


def round_of(attrs: Attributes, plugin: str) -> tuple[Reinvocation, Round]:
    if attrs.reinvocation is None:
        attrs.reinvocation = Reinvocation()
    state: Round = attrs.reinvocation.state.setdefault(plugin, Round())
    if attrs.reinvocation.running and state.output != _text(attrs):
        state.changed()
    return attrs.reinvocation, state


def end_round(attrs: Attributes, state: Round) -> None:
    state.output = _text(attrs)


def _text(attrs: Attributes) -> bytes:
    return orjson.dumps(attrs.obj, option=orjson.OPT_SORT_KEYS)


class MutatingAdmissionWebhook(Plugin):
    name = "MutatingAdmissionWebhook"

    def __init__(self, reader: Reader, caller: Caller) -> None:
        self._source = WebhookSource("mutatingwebhookconfigurations", reader, caller.served)
        self._caller = caller

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return not from_webhooks(resource)

    async def mutate(self, attrs: Attributes) -> None:
        webhooks = self._source.for_request(attrs)
        if not webhooks:
            return
        again, state = round_of(attrs, self.name)
        for at, webhook in enumerate(webhooks):
            if again.running and webhook.id not in state.again:
                continue
            invocation = await self._caller.invocation(webhook, attrs)
            if invocation is None:
                continue
            place = f"round_{int(again.running)}_index_{at}"
            changed = await self._call(invocation, attrs, place)
            note = {"configuration": webhook.configuration, "webhook": webhook.name, "mutated": changed}
            attrs.audit[f"{_ANNOTATION}/{place}"] = orjson.dumps(note).decode()
            if changed:
                state.changed()
                again.wanted = True
            if webhook.reinvoked:
                state.called.add(webhook.id)
        end_round(attrs, state)

    async def _call(self, invocation: Invocation, attrs: Attributes, place: str) -> bool:
        """Whether the object was changed."""
        webhook = invocation.webhook
        try:
            verdict = await self._caller.ask(invocation, attrs, mutating=True)
            operations = _operations(webhook, verdict)
            if not operations:
                return False
        except CallFailed as failure:
            if not webhook.ignores_failure:
                raise InternalError.of(str(failure)) from None
            attrs.audit[f"{_FAILED_OPEN}/{place}"] = webhook.name
            return False
        if invocation.obj is None:
            raise InternalError.of(
                f"admission webhook {quote(webhook.name)} attempted to modify the object, "
                "which is not supported for this operation"
            )
        try:
            patched = apply_json_patch(orjson.loads(orjson.dumps(invocation.obj)), operations)
            return await replace_object(attrs, patched, invocation.matched, self._caller.served)
        except (PatchError, ChangeProblem) as error:
            raise InternalError.of(str(error)) from None


def _operations(webhook: Webhook, verdict: Verdict) -> list[Any]:
    """Raises CallFailed."""
    if not verdict.patch:
        return []
    if verdict.patch_type != "JSONPatch":
        raise CallFailed(
            f"failed calling webhook {quote(webhook.name)}: unsupported patch type {quote(verdict.patch_type)}"
        )
    try:
        return decode_json_patch(orjson.loads(verdict.patch), strict=False)
    except (orjson.JSONDecodeError, PatchError) as error:
        raise CallFailed(
            f"failed calling webhook {quote(webhook.name)}: received undecodable patch in webhook response: {error}"
        ) from None
