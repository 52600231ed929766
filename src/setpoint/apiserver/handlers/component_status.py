"""`componentstatuses`, which is deprecated: the store is the only component whose status is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_listed, respond_object
from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.errors import NotFound
from setpoint.wire.message import Answer

Check = Callable[[], str]
"""Returns what is wrong, or "" if the component is healthy."""


class ComponentStatuses:
    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks

    async def handle(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        name = ctx.target.name
        if name:
            if name not in self._checks:
                raise NotFound.of("", "componentstatus", name)
            return await respond_object(ctx, form, registry, self._entry(name))
        return await respond_listed(ctx, form, registry, [self._entry(each) for each in sorted(self._checks)], {})

    def _entry(self, name: str) -> Entry:
        wrong = self._checks[name]()
        condition = {"type": "Healthy", "status": "False" if wrong else "True", "message": wrong or "ok"}
        return Entry.unstored(name, orjson.dumps({"metadata": {"name": name}, "conditions": [condition]}), 0)
