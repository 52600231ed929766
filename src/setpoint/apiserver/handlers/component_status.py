"""`componentstatuses`: what is left of an old idea. The store is the only component the server can speak for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import respond_listed, respond_object
from setpoint.apiserver.watch_cache import Entry
from setpoint.meta.errors import NotFound

Check = Callable[[], str]
"""Returns what is wrong; empty: nothing is."""


class ComponentStatuses:
    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks

    async def handle(self, call: Call, registry: Registry, form: Form) -> Answer:
        name = call.target.name
        if name:
            if name not in self._checks:
                raise NotFound.of("", "componentstatus", name)
            return await respond_object(call, form, registry, self._entry(name))
        return await respond_listed(call, form, registry, [self._entry(each) for each in sorted(self._checks)], {})

    def _entry(self, name: str) -> Entry:
        wrong = self._checks[name]()
        condition = {"type": "Healthy", "status": "False" if wrong else "True", "message": wrong or "ok"}
        return Entry(name, orjson.dumps({"metadata": {"name": name}, "conditions": [condition]}), 0)
