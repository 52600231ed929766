"""`set env`: set, remove, import and list environment variables of containers."""

from __future__ import annotations

import re

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.set.changing import (
    FLAGS,
    SELECTED,
    Obj,
    carry_out,
    check_all,
    check_local,
    items,
    matches,
    with_containers,
    with_pod_spec,
)  # fmt: skip
from setpoint.meta.goformat import quote
from setpoint.meta.names import env_var_name

_ODD = re.compile("[^a-zA-Z0-9_]")


async def run(call: Invocation) -> None:
    flags = call.flags
    check_all(call)
    resources, given = _split(call.args)
    check_local(call)
    if not (resources or flags.filename):
        raise Failed("one or more resources must be specified as <resource> <name> or <resource>/<name>")
    if flags.list and flags.output:
        raise Failed("--list and --output may not be specified together")
    if flags.keys and not getattr(flags, "from"):
        raise Failed("when specifying --keys, a configmap or secret must be provided with --from")
    new, gone = _parsed(call, [*flags.env, *given])
    new += await _imported(call)
    new = [{**one, "name": flags.prefix + one["name"]} for one in new]
    found = await items(call, resources)

    def change(obj: Obj) -> Obj:
        return with_pod_spec(obj, lambda spec: _changed(call, obj, spec, new, gone))

    if flags.list:
        # Imported here because listing is rare.
        from setpoint.cli.verbs.set.env_listing import listed

        await listed(call, found, change)
        return
    await carry_out(call, found, change, "env updated", failed="failed to patch env update to pod template: ")


def _changed(call: Invocation, obj: Obj, spec: Obj, new: list[Obj], gone: list[str]) -> Obj:
    pattern = call.flags.containers
    names = [one.get("name") or "" for key in ("initContainers", "containers") for one in spec.get(key) or ()]
    if not any(matches(name, pattern) for name in names):
        where = f"{obj.get('kind')}/{(obj.get('metadata') or {}).get('name')}"
        call.print_err(f"Warning: {where} does not have any containers matching {quote(pattern)}")
        return spec

    def change(container: Obj) -> Obj:
        if not matches(container.get("name") or "", pattern):
            return container
        there: list[Obj] = container.get("env") or []
        if not call.flags.overwrite:
            _check_overwriting(there, new)
        env = updated(there, new, gone)
        if env == there:
            return container
        kept = {key: value for key, value in container.items() if key != "env"}
        return {**kept, "env": env} if env else kept

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


def _parsed(call: Invocation, given: list[str]) -> tuple[list[Obj], list[str]]:
    new: list[Obj] = []
    gone: list[str] = []
    for word in given:
        name, equals, value = word.partition("=")
        if word == "-":
            new += _from_lines(call.io.stdin.read().decode("utf-8", "surrogateescape"))
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


async def _imported(call: Invocation) -> list[Obj]:
    """Return references to the keys of a ConfigMap or Secret."""
    origin = getattr(call.flags, "from")
    if not origin:
        return []
    found: list[Obj] = []
    for target in await items(call, [origin]):
        obj = target.obj or {}
        kinds = {"Secret": "secretKeyRef", "ConfigMap": "configMapKeyRef"}
        reference = kinds.get(obj.get("kind") or "")
        if reference is None:
            raise Failed("unsupported resource specified in --from")
        for key in sorted(obj.get("data") or {}):
            if not call.flags.keys or key in call.flags.keys:
                source = {"name": obj["metadata"]["name"], "key": key}
                found.append({"name": _env_name(call, key), "valueFrom": {reference: source}})
    return found


def _env_name(call: Invocation, key: str) -> str:
    name = _ODD.sub("_", key).upper()
    if name != key:
        call.print_err(f"Warning: key {key} transferred to {name}")
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
