"""MutatingAdmissionWebhook: webhooks change the object of a write, one after the other.

A webhook with the reinvocation policy IfNeeded is called again if the object changed after its first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from setpoint.apiserver.admission.dynamic.admission_review import ReviewResponse
from setpoint.apiserver.admission.dynamic.mutation import InvalidMutation, begin_pass, end_pass, replace_object
from setpoint.apiserver.admission.dynamic.webhooks import (
    Invocation,
    Webhook,
    WebhookCaller,
    WebhookCallFailed,
    WebhookSource,
)
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
_MAX_PATCH_DEPTH = 10_000
_FAILED_OPEN = f"failed-open.{_ANNOTATION}"
_PATCH = "patch.webhook.admission.k8s.io"


class MutatingAdmissionWebhook(Plugin):
    name = "MutatingAdmissionWebhook"

    def __init__(self, reader: Reader, caller: WebhookCaller, static: StaticManifests | None = None) -> None:
        self._source = WebhookSource("mutatingwebhookconfigurations", reader, caller.served, static)
        self._caller = caller

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return self._source.handles(resource)

    async def mutate(self, attrs: Attributes) -> None:
        webhooks = self._source.for_request(attrs)
        if not webhooks:
            return
        reinvocation, state = begin_pass(attrs, self.name)
        for at, webhook in enumerate(webhooks):
            if reinvocation.running and webhook.id not in state.reinvoke:
                continue
            invocation = await self._caller.invocation(webhook, attrs)
            if invocation is None:
                continue
            annotation_suffix = f"round_{int(reinvocation.running)}_index_{at}"
            changed = await self._call(invocation, attrs, annotation_suffix)
            note = {"configuration": webhook.configuration, "webhook": webhook.name, "mutated": changed}
            attrs.audit[f"{_ANNOTATION}/{annotation_suffix}"] = orjson.dumps(note).decode()
            if changed:
                state.changed()
                reinvocation.wanted = True
            if webhook.reinvoked:
                state.called.add(webhook.id)
        end_pass(attrs, state)

    async def _call(self, invocation: Invocation, attrs: Attributes, annotation_suffix: str) -> bool:
        """Call the webhook and apply its patch. Return whether the object changed."""
        webhook = invocation.webhook
        try:
            response = await self._caller.call(invocation, attrs, mutating=True)
            operations = _operations(webhook, response)
            if not operations:
                return False
        except WebhookCallFailed as failure:
            if not webhook.ignores_failure:
                raise InternalError.of(str(failure)) from None
            attrs.audit[f"{_FAILED_OPEN}/{annotation_suffix}"] = webhook.name
            return False
        if invocation.obj is None:
            raise InternalError.of(
                f"admission webhook {quote(webhook.name)} attempted to modify the object, "
                "which is not supported for this operation"
            )
        try:
            patched = apply_json_patch(orjson.loads(orjson.dumps(invocation.obj)), operations)
            changed = await replace_object(attrs, patched, invocation.matched, self._caller.served)
        except (PatchError, InvalidMutation) as error:
            raise InternalError.of(str(error)) from None
        if attrs.audit_objects:
            sent = [dict(sorted(operation.items())) for operation in orjson.loads(response.patch)]
            note = {"configuration": webhook.configuration, "webhook": webhook.name, "patch": sent}
            note["patchType"] = "JSONPatch"
            attrs.audit[f"{_PATCH}/{annotation_suffix}"] = orjson.dumps(note).decode()
        return changed


def _operations(webhook: Webhook, response: ReviewResponse) -> list[Any]:
    """Decode the patch of the response. Raises WebhookCallFailed."""
    if not response.patch:
        return []
    failed = f"failed calling webhook {quote(webhook.name)}"
    try:
        operations = decode_json_patch(orjson.loads(response.patch), strict=False)
    except (orjson.JSONDecodeError, PatchError) as error:
        why = syntax_error(response.patch, _MAX_PATCH_DEPTH) or str(error)
        raise WebhookCallFailed(f"{failed}: received undecodable patch in webhook response: {why}") from None
    if operations and response.patch_type != "JSONPatch":
        raise WebhookCallFailed(f"{failed}: unsupported patch type {quote(response.patch_type)}")
    return operations
