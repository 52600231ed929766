"""ValidatingAdmissionWebhook: webhooks allow or deny a write; they are called concurrently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.apiserver.admission.dynamic.webhooks import Invocation, WebhookCaller, WebhookCallFailed, WebhookSource
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, InternalError
from setpoint.tasks import run_all

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests

_FAILED_OPEN = "failed-open.validating.webhook.admission.k8s.io"


class ValidatingAdmissionWebhook(Plugin):
    name = "ValidatingAdmissionWebhook"

    def __init__(self, reader: Reader, caller: WebhookCaller, static: StaticManifests | None = None) -> None:
        self._source = WebhookSource("validatingwebhookconfigurations", reader, caller.served, static)
        self._caller = caller

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return self._source.handles(resource)

    async def validate(self, attrs: Attributes) -> None:
        webhooks = self._source.for_request(attrs)
        if not webhooks:
            return
        found = [await self._caller.invocation(webhook, attrs) for webhook in webhooks]
        invocations = [one for one in found if one is not None]
        # All of them are awaited, even if one has denied the write: others may return warnings.
        errors = await run_all(*(self._call(at, one, attrs) for at, one in enumerate(invocations)))
        for error in errors:
            if error is not None:
                raise error

    async def _call(self, at: int, invocation: Invocation, attrs: Attributes) -> ApiError | None:
        try:
            await self._caller.call(invocation, attrs, mutating=False)
        except WebhookCallFailed as failure:
            if not invocation.webhook.ignores_failure:
                return InternalError.of(str(failure))
            attrs.audit[f"{_FAILED_OPEN}/round_0_index_{at}"] = invocation.webhook.name
        except ApiError as error:
            return error
        return None
