"""GET of one object."""

from __future__ import annotations

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import parse_revision
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.waiting import wait_for_revision
from setpoint.meta.errors import PlainServerError


async def get(call: Call, registry: Registry, form: Form) -> Answer:
    given = call.option("resourceVersion")
    if given:
        try:
            revision = parse_revision(given)
        except ValueError as error:
            raise PlainServerError(str(error)) from None
        await wait_for_revision(registry, revision)
    entry = registry.get(call.target.namespace, call.target.name)
    if registry.encoding.remote:
        await registry.encoding.ready((entry,))
    return await respond_object(call, form, registry, entry)
