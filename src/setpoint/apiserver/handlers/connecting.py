"""Admission of connections: exec, attach, port forwards and proxies are looked at like writes, by their options."""

from __future__ import annotations

from typing import Any

from setpoint.apiserver.call import Call
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request import truthy
from setpoint.meta.errors import BadRequest

_FLAGS = ("stdin", "stdout", "stderr", "tty")


async def admit_connection(call: Call, registry: Registry) -> None:
    """Raises BadRequest and what admission raises."""
    if "dryRun" in call.query:
        raise BadRequest("dryRun is not supported")
    attrs = registry.attributes(call, "CONNECT", options_of(call), None, call.target.name)
    await registry.env.admission.mutate(attrs)
    await registry.env.admission.validate(attrs)


def options_of(call: Call) -> dict[str, Any]:
    """The options as an object of their kind has them; what is empty is left out."""
    name, query = call.target.subresource, call.query
    if name == "proxy":
        path = call.target.rest
        if path and not path.startswith("/"):
            path = f"/{path}"
        if call.request.path.endswith("/") and not path.endswith("/"):
            path += "/"
        return {"path": path} if path else {}
    if name == "portforward":
        ports = [int(port) for port in query.get("ports", ()) if port.isdecimal() and len(port) < 6]
        return {"ports": ports} if ports else {}
    options: dict[str, Any] = {flag: True for flag in _FLAGS if flag in query and truthy(call.option(flag))}
    if call.option("container"):
        options["container"] = call.option("container")
    if name == "exec" and query.get("command"):
        options["command"] = list(query["command"])
    return options
