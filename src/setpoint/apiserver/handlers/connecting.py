"""Admission of connections: exec, attach, port forwards and proxies are looked at like writes, by their options."""

from __future__ import annotations

from typing import Any

from setpoint.apiserver.call import Call
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request import truthy

_FLAGS = {"stdin": False, "stdout": True, "stderr": True, "tty": False}


async def admit_connection(call: Call, registry: Registry) -> None:
    """Raises what admission raises."""
    attrs = registry.attributes(call, "CONNECT", options_of(call), None, call.target.name)
    await registry.env.admission.mutate(attrs)
    await registry.env.admission.validate(attrs)


def options_of(call: Call) -> dict[str, Any]:
    """The options as an object of their kind has them; what is empty is left out."""
    name, query = call.target.subresource, call.query
    if name == "proxy":
        return {"path": call.target.rest} if call.target.rest else {}
    if name == "portforward":
        ports = [int(port) for port in query.get("ports", ()) if port.isdecimal() and len(port) < 6]
        return {"ports": ports} if ports else {}
    options: dict[str, Any] = {
        flag: True for flag, default in _FLAGS.items() if (truthy(call.option(flag)) if flag in query else default)
    }
    if call.option("container"):
        options["container"] = call.option("container")
    if name == "exec" and query.get("command"):
        options["command"] = list(query["command"])
    return options
