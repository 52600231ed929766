"""ValidatingAdmissionWebhook: others are asked whether they agree, all at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from setpoint.apiserver.admission.dynamic.webhook_calls import Caller, CallFailed, Invocation
from setpoint.apiserver.admission.dynamic.webhook_source import WebhookSource
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, InternalError

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests

_FAILED_OPEN = "failed-open.validating.webhook.admission.k8s.io"


class ValidatingAdmissionWebhook(Plugin):
    name = "ValidatingAdmissionWebhook"

    def __init__(self, reader: Reader, caller: Caller, static: StaticManifests | None = None) -> None:
        self._source = WebhookSource("validatingwebhookconfigurations", reader, caller.served, static)
        self._caller = caller

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return self._source.sees(resource)

    async def validate(self, attrs: Attributes) -> None:
        webhooks = self._source.for_request(attrs)
        if not webhooks:
            return
        found = [await self._caller.invocation(webhook, attrs) for webhook in webhooks]
        invocations = [one for one in found if one is not None]
        # All of them are heard, even if one has refused already: others may have something to warn of.
        errors = await asyncio.gather(*(self._ask(at, one, attrs) for at, one in enumerate(invocations)))
        for error in errors:
            if error is not None:
                raise error

    async def _ask(self, at: int, invocation: Invocation, attrs: Attributes) -> ApiError | None:
        try:
            await self._caller.ask(invocation, attrs, mutating=False)
        except CallFailed as failure:
            if not invocation.webhook.ignores_failure:
                return InternalError.of(str(failure))
            attrs.audit[f"{_FAILED_OPEN}/round_0_index_{at}"] = invocation.webhook.name
        except ApiError as error:
            return error
        return None
