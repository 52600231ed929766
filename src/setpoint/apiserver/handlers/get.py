"""GET: read one object."""

from __future__ import annotations

from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import parse_revision
from setpoint.apiserver.registry import Registry, wait_for_revision
from setpoint.apiserver.rendering import respond_object
from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.errors import PlainServerError
from setpoint.wire.message import Answer


async def get(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    given = ctx.option("resourceVersion")
    if given:
        try:
            revision = parse_revision(given)
        except ValueError as error:
            raise PlainServerError(str(error)) from None
        await wait_for_revision(registry, revision)
    entry = registry.get(ctx.target.namespace, ctx.target.name)
    if registry.encoding.remote:
        await registry.encoding.ready((entry,))
    return await respond_object(ctx, form, registry, entry)
