"""`set env --list`: list the variables of containers and, with `--resolve`, the values of references."""

from __future__ import annotations

from base64 import b64decode
from math import ceil

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.set.changing import Change, Obj, matches, pod_spec_path
from setpoint.client.resources import builtin
from setpoint.meta import quantity
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote


async def listed(call: Invocation, found: list[Target], change: Change) -> None:
    """List the variables; objects without containers are skipped, as in kubectl."""
    for target in found:
        try:
            obj = change(target.obj or {})
        except Failed:
            continue
        spec = obj
        for key in pod_spec_path(obj):
            spec = spec.get(key) or {}
        for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
            if matches(container.get("name") or "", call.flags.containers):
                await _list(call, obj, container)


async def _list(call: Invocation, obj: Obj, container: Obj) -> None:
    call.print(f"# {obj.get('kind')} {obj['metadata'].get('name')}, container {container.get('name')}")
    problems: dict[str, list[str]] = {}
    for one in container.get("env") or ():
        name, source = one["name"], one.get("valueFrom")
        if source is None:
            call.print(f"{name}={one.get('value', '')}")
            continue
        if call.flags.resolve:
            try:
                call.print(f"{name}={await _value(call, source, obj, container)}")
                continue
            except (Failed, ApiError) as error:
                problems.setdefault(str(error), []).append(name)
        call.print(f"# {name} from {_shown(source)}")
    for line in sorted(
        f"error retrieving reference for {', '.join(sorted(names))}: {error}" for error, names in problems.items()
    ):
        call.print_err(line)


def _shown(source: Obj) -> str:
    if found := source.get("configMapKeyRef"):
        return f"configmap {found.get('name', '')}, key {found.get('key', '')}"
    if found := source.get("secretKeyRef"):
        return f"secret {found.get('name', '')}, key {found.get('key', '')}"
    if found := source.get("fieldRef"):
        return f"field path {found.get('fieldPath', '')}"
    if found := source.get("resourceFieldRef"):
        container = f"{found['containerName']}/" if found.get("containerName") else ""
        return f"resource field {container}{found.get('resource', '')}"
    return "invalid valueFrom"


async def _value(call: Invocation, source: Obj, obj: Obj, container: Obj) -> str:
    if found := source.get("secretKeyRef"):
        data = (await call.client.get(builtin("secrets"), found["name"], call.namespace)).get("data") or {}
        if found["key"] not in data:
            raise Failed(f"key {found['key']} not found in secret {found['name']}")
        return b64decode(data[found["key"]]).decode("utf-8", "surrogateescape")
    if found := source.get("configMapKeyRef"):
        data = (await call.client.get(builtin("configmaps"), found["name"], call.namespace)).get("data") or {}
        if found["key"] not in data:
            raise Failed(f"key {found['key']} not found in config map {found['name']}")
        return str(data[found["key"]])
    if found := source.get("fieldRef"):
        return _field(obj["metadata"], found.get("fieldPath") or "")
    if found := source.get("resourceFieldRef"):
        return _amount(found, container.get("resources") or {})
    raise Failed("invalid valueFrom")


def _field(meta: Obj, path: str) -> str:
    base, bracket, key = path.removesuffix("']").partition("['")
    if bracket and path.endswith("']"):
        if base not in ("metadata.annotations", "metadata.labels"):
            raise Failed(f"fieldPath {quote(path)} does not support subscript")
        return str((meta.get(base.removeprefix("metadata.")) or {}).get(key, ""))
    if path in ("metadata.annotations", "metadata.labels"):
        pairs = meta.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f"{name}={quote(pairs[name])}" for name in sorted(pairs))
    if path in ("metadata.name", "metadata.namespace", "metadata.uid"):
        return str(meta.get(path.removeprefix("metadata."), ""))
    raise Failed(f"unsupported fieldPath: {path}")


def _amount(reference: Obj, resources: Obj) -> str:
    wanted = reference.get("resource") or ""
    kind, _, name = wanted.partition(".")
    if kind not in ("limits", "requests") or not (
        name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-")
    ):
        raise Failed(f"Unsupported container resource : {wanted}")
    read = quantity.milli_value if name == "cpu" else quantity.value
    divisor = str(reference.get("divisor") or "0")
    divisor = "1" if quantity.compare(divisor, "0") == 0 else divisor
    return str(ceil(read(str((resources.get(kind) or {}).get(name, "0"))) / read(divisor)))
