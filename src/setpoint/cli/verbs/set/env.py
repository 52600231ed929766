"""`set env`: set, remove, import and list environment variables of containers."""

from __future__ import annotations

import re
from base64 import b64decode
from math import ceil

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target
from setpoint.cli.verbs.set.changing import (
    FLAGS,
    SELECTED,
    Change,
    carry_out,
    check_all,
    check_local,
    items,
    matches,
    pod_spec_path,
    with_containers,
    with_pod_spec,
)
from setpoint.client.resources import builtin
from setpoint.meta import quantity
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote
from setpoint.meta.names import env_var_name
from setpoint.meta.objects import Obj


async def listed(invocation: Invocation, found: list[Target], change: Change) -> None:
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
            if matches(container.get("name") or "", invocation.flags.containers):
                await _list(invocation, obj, container)


async def _list(invocation: Invocation, obj: Obj, container: Obj) -> None:
    invocation.print(f"# {obj.get('kind')} {obj['metadata'].get('name')}, container {container.get('name')}")
    problems: dict[str, list[str]] = {}
    for one in container.get("env") or ():
        name, source = one["name"], one.get("valueFrom")
        if source is None:
            invocation.print(f"{name}={one.get('value', '')}")
            continue
        if invocation.flags.resolve:
            try:
                invocation.print(f"{name}={await _value(invocation, source, obj, container)}")
                continue
            except (Failed, ApiError) as error:
                problems.setdefault(str(error), []).append(name)
        invocation.print(f"# {name} from {_shown(source)}")
    for line in sorted(
        f"error retrieving reference for {', '.join(sorted(names))}: {error}" for error, names in problems.items()
    ):
        invocation.print_err(line)


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


async def _value(invocation: Invocation, source: Obj, obj: Obj, container: Obj) -> str:
    if found := source.get("secretKeyRef"):
        data = (await invocation.client.get(builtin("secrets"), found["name"], invocation.namespace)).get("data") or {}
        if found["key"] not in data:
            raise Failed(f"key {found['key']} not found in secret {found['name']}")
        return b64decode(data[found["key"]]).decode("utf-8", "surrogateescape")
    if found := source.get("configMapKeyRef"):
        data = (await invocation.client.get(builtin("configmaps"), found["name"], invocation.namespace)).get(
            "data"
        ) or {}
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


_ODD = re.compile("[^a-zA-Z0-9_]")


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    check_all(invocation)
    resources, given = _split(invocation.args)
    check_local(invocation)
    if not (resources or flags.filename):
        raise Failed("one or more resources must be specified as <resource> <name> or <resource>/<name>")
    if flags.list and flags.output:
        raise Failed("--list and --output may not be specified together")
    if flags.keys and not getattr(flags, "from"):
        raise Failed("when specifying --keys, a configmap or secret must be provided with --from")
    new, gone = _parsed(invocation, [*flags.env, *given])
    new += await _imported(invocation)
    new = [{**one, "name": flags.prefix + one["name"]} for one in new]
    found = await items(invocation, resources)

    def change(obj: Obj) -> Obj:
        return with_pod_spec(obj, lambda spec: _changed(invocation, obj, spec, new, gone))

    if flags.list:
        # Imported here because listing is rare.

        await listed(invocation, found, change)
        return
    await carry_out(invocation, found, change, "env updated", failed="failed to patch env update to pod template: ")


def _changed(invocation: Invocation, obj: Obj, spec: Obj, new: list[Obj], gone: list[str]) -> Obj:
    pattern = invocation.flags.containers
    names = [one.get("name") or "" for key in ("initContainers", "containers") for one in spec.get(key) or ()]
    if not any(matches(name, pattern) for name in names):
        where = f"{obj.get('kind')}/{(obj.get('metadata') or {}).get('name')}"
        invocation.print_err(f"Warning: {where} does not have any containers matching {quote(pattern)}")
        return spec

    def change(container: Obj) -> Obj:
        if not matches(container.get("name") or "", pattern):
            return container
        there: list[Obj] = container.get("env") or []
        if not invocation.flags.overwrite:
            _check_overwriting(there, new)
        env = updated(there, new, gone)
        if env == there:
            return container
        remaining = {key: value for key, value in container.items() if key != "env"}
        return {**remaining, "env": env} if env else remaining

    return with_containers(spec, change)


def updated(there: list[Obj], new: list[Obj], gone: list[str]) -> list[Obj]:
    """Return the variables; changed ones stay in place, and new ones are appended."""
    first: dict[str, Obj] = {}
    for one in new:
        first.setdefault(one["name"], one)
    covered = set(gone)
    found: list[Obj] = []
    for one in there:
        if one["name"] not in covered:
            if one["name"] in first:
                covered.add(one["name"])
            found.append(first.get(one["name"], one))
    return found + [one for name, one in first.items() if name not in covered]


def _check_overwriting(there: list[Obj], new: list[Obj]) -> None:
    values = {one["name"]: one.get("value", "") for one in reversed(there)}
    for one in new:
        if values.get(one["name"], one.get("value", "")) != one.get("value", ""):
            raise Failed(f"'{one['name']}' already has a value ({values[one['name']]}), and --overwrite is false")


def _split(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the objects and the changes."""
    at = next((at for at, word in enumerate(args) if _is_change(word)), len(args))
    if not all(map(_is_change, args[at:])):
        raise Failed(f"all resources must be specified before environment changes: {' '.join(args)}")
    return args[:at], args[at:]


def _is_change(word: str) -> bool:
    return "=" in word[1:] or word.endswith("-")


def _parsed(invocation: Invocation, given: list[str]) -> tuple[list[Obj], list[str]]:
    new: list[Obj] = []
    gone: list[str] = []
    for word in given:
        name, equals, value = word.partition("=")
        if word == "-":
            new += _from_lines(invocation.io.stdin.read().decode("utf-8", "surrogateescape"))
        elif equals:
            if problems := env_var_name(name):
                raise Failed(f"{quote(name)} is not a valid key name: {';'.join(problems)}")
            new.append(_variable(name, value))
        elif word.endswith("-"):
            gone.append(word[:-1])
        else:
            raise Failed(f"unknown environment variable: {word}")
    if {one["name"] for one in new} & set(gone):
        raise Failed("can not both modify and remove the same environment variable in the same command")
    return new, gone


def _from_lines(text: str) -> list[Obj]:
    pairs = (line.partition("#")[0].partition("=") for line in text.splitlines())
    return [_variable(name, value) for name, equals, value in pairs if equals]


def _variable(name: str, value: str) -> Obj:
    return {"name": name, "value": value} if value else {"name": name}


async def _imported(invocation: Invocation) -> list[Obj]:
    """Return references to the keys of a ConfigMap or Secret."""
    origin = getattr(invocation.flags, "from")
    if not origin:
        return []
    found: list[Obj] = []
    for target in await items(invocation, [origin]):
        obj = target.obj or {}
        kinds = {"Secret": "secretKeyRef", "ConfigMap": "configMapKeyRef"}
        reference = kinds.get(obj.get("kind") or "")
        if reference is None:
            raise Failed("unsupported resource specified in --from")
        for key in sorted(obj.get("data") or {}):
            if not invocation.flags.keys or key in invocation.flags.keys:
                source = {"name": obj["metadata"]["name"], "key": key}
                found.append({"name": _env_name(invocation, key), "valueFrom": {reference: source}})
    return found


def _env_name(invocation: Invocation, key: str) -> str:
    name = _ODD.sub("_", key).upper()
    if name != key:
        invocation.print_err(f"Warning: key {key} transferred to {name}")
    return name


COMMAND = Command(
    "Update environment variables on a pod template",
    run,
    (
        *FLAGS,
        *SELECTED,
        text("containers", "c", default="*", help="Which containers, by name; * stands for any letters."),
        text("from", help="The name of a resource from which to inject environment variables"),
        text("prefix", help="Prefix to append to variable names"),
        array("env", "e", help="A variable to set in each container: key=value"),
        texts("keys", help="Comma-separated list of keys to import from specified resource"),
        switch("list", help="Print the variables of each container, with the changes, and change nothing."),
        switch("resolve", help="When listing, print the values that references stand for."),
        switch("overwrite", default=True, help="If false, refuse to change a variable that is there."),
    ),
    usage="RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N",
    examples="""
    # Set one, take another away
    setpoint set env deployment/web MODE=test DEBUG-

    # All keys of a config map
    setpoint set env deployment/web --from=configmap/settings

    # What is there
    setpoint set env deployment/web --list
    """,
)
