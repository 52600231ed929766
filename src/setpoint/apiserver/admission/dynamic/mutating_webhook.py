"""MutatingAdmissionWebhook: others may change what is written, one after the other.

Whoever asked for it (reinvocationPolicy IfNeeded) gets to see the object once more if somebody changed it afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from setpoint.apiserver.admission.dynamic.changes import ChangeProblem, replace_object
from setpoint.apiserver.admission.dynamic.reinvocation import end_round, round_of
from setpoint.apiserver.admission.dynamic.webhook_calls import Caller, CallFailed, Invocation
from setpoint.apiserver.admission.dynamic.webhook_review import Verdict
from setpoint.apiserver.admission.dynamic.webhook_source import Webhook, WebhookSource
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import InternalError
from setpoint.meta.goformat import quote
from setpoint.meta.json_syntax import syntax_error
from setpoint.meta.patch.errors import PatchError
from setpoint.meta.patch.json_patch import apply_json_patch, decode_json_patch

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests

_ANNOTATION = "mutation.webhook.admission.k8s.io"
_DEEPEST = 10_000
_FAILED_OPEN = f"failed-open.{_ANNOTATION}"
_PATCH = "patch.webhook.admission.k8s.io"


class MutatingAdmissionWebhook(Plugin):
    name = "MutatingAdmissionWebhook"

    def __init__(self, reader: Reader, caller: Caller, static: StaticManifests | None = None) -> None:
        self._source = WebhookSource("mutatingwebhookconfigurations", reader, caller.served, static)
        self._caller = caller

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return self._source.sees(resource)

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
            changed = await replace_object(attrs, patched, invocation.matched, self._caller.served)
        except (PatchError, ChangeProblem) as error:
            raise InternalError.of(str(error)) from None
        if attrs.audit_objects:
            sent = [dict(sorted(operation.items())) for operation in orjson.loads(verdict.patch)]
            note = {"configuration": webhook.configuration, "webhook": webhook.name, "patch": sent}
            note["patchType"] = "JSONPatch"
            attrs.audit[f"{_PATCH}/{place}"] = orjson.dumps(note).decode()
        return changed


def _operations(webhook: Webhook, verdict: Verdict) -> list[Any]:
    """Raises CallFailed."""
    if not verdict.patch:
        return []
    failed = f"failed calling webhook {quote(webhook.name)}"
    try:
        operations = decode_json_patch(orjson.loads(verdict.patch), strict=False)
    except (orjson.JSONDecodeError, PatchError) as error:
        why = syntax_error(verdict.patch, _DEEPEST) or str(error)
        raise CallFailed(f"{failed}: received undecodable patch in webhook response: {why}") from None
    if operations and verdict.patch_type != "JSONPatch":
        raise CallFailed(f"{failed}: unsupported patch type {quote(verdict.patch_type)}")
    return operations
