"""Describe the environment of a container: its values, their sources, and the values that can be resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.cli.describe.context import meta
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj
from setpoint.meta.goformat import plain
from setpoint.meta.quantity import Quantity, parse

Item = Mapping[str, Any]
Resolve = Callable[[str, str], str]
"""Returns the value of a field, from the API version of the reference and the field path."""


def resolve_in(pod: Obj) -> Resolve:
    """Return a resolver for a Pod's name and namespace; kubectl does not resolve other fields either."""

    def resolve(api_version: str, path: str) -> str:
        if api_version.count("/") > 1 or path not in ("metadata.name", "metadata.namespace"):
            return ""
        return str(meta(pod).get(path.removeprefix("metadata."), ""))

    return resolve


def write_environment(w: Writer, container: Item, resolve: Resolve | None) -> None:
    if container.get("envFrom"):
        w.write(2, "Environment Variables from:\n")
        for source in container["envFrom"]:
            _write_source(w, source)
    w.write(2, f"Environment:{'' if container.get('env') else chr(9) + '<none>'}\n")
    for variable in container.get("env") or ():
        _write_variable(w, container, variable, resolve)


def _write_source(w: Writer, source: Item) -> None:
    origin, named = "", {}
    if source.get("configMapRef") is not None:
        origin, named = "ConfigMap", source["configMapRef"]
    elif source.get("secretRef") is not None:
        origin, named = "Secret", source["secretRef"]
    if source.get("prefix"):
        origin += f" with prefix '{source['prefix']}'"
    w.row(3, named.get("name", ""), origin, f"Optional: {optional(named)}")


def _write_variable(w: Writer, container: Item, variable: Item, resolve: Resolve | None) -> None:
    name, origin = variable.get("name", ""), variable.get("valueFrom")
    if origin is None:
        for at, line in enumerate(variable.get("value", "").split("\n")):
            w.write(3, f"\t{line}\n" if at else f"{name}:\t{line}\n")
    elif origin.get("fieldRef") is not None:
        version, path = origin["fieldRef"].get("apiVersion", ""), origin["fieldRef"].get("fieldPath", "")
        value = resolve(version, path) if resolve is not None else ""
        w.field(name, f"{value} ({version}:{path})", 3)
    elif origin.get("resourceFieldRef") is not None:
        which = origin["resourceFieldRef"].get("resource", "")
        value = resource_value(container, origin["resourceFieldRef"])
        if value == "0" and which in ("limits.cpu", "limits.memory"):
            value = "node allocatable"
        w.field(name, f"{value} ({which})", 3)
    elif origin.get("secretKeyRef") is not None:
        key = origin["secretKeyRef"]
        message = f"<set to the key '{key.get('key', '')}' in secret '{key.get('name', '')}'>"
        w.row(3, f"{name}:", message, f"Optional: {optional(key)}")
    elif origin.get("configMapKeyRef") is not None:
        key = origin["configMapKeyRef"]
        message = f"<set to the key '{key.get('key', '')}' of config map '{key.get('name', '')}'>"
        w.row(3, f"{name}:", message, f"Optional: {optional(key)}")


def optional(reference: Item) -> str:
    return plain(bool(reference.get("optional")))


def resource_value(container: Item, field: Item) -> str:
    """Return a container's request or limit, in units of the divisor, rounded up."""
    which, _, name = field.get("resource", "").partition(".")
    if which not in ("limits", "requests"):
        return ""
    if name not in ("cpu", "memory", "ephemeral-storage") and not name.startswith("hugepages-"):
        return ""
    amount = parse(((container.get("resources") or {}).get(which) or {}).get(name, "0"))
    divisor = parse(field.get("divisor") or "0")
    if divisor.nano == 0:
        divisor = parse("1")
    measure = Quantity.milli_value if name == "cpu" else Quantity.value
    return str(-(-measure(amount) // measure(divisor)))
