"""The common steps of all `set` commands: find objects, change each, send the difference, print the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import Flag, switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, SELECTORS, Target, choose, fetch, local_targets
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, DryRun, Results, dry_run, field_manager, recorded
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj

FLAGS: tuple[Flag, ...] = (
    *OUTPUT,
    *FILES,
    *DRY_RUN,
    *field_manager("kubectl-set"),
    switch("all", help="Select all resources, in the namespace of the specified resource types"),
    switch("local", help="Do not ask a server: change what the files say, and print it."),
)
SELECTED: tuple[Flag, ...] = SELECTORS[:1]
RECORDED: tuple[Flag, ...] = RECORD
_LOCAL = """you must specify resources by --filename when --local is set.
Example resource specifications include:
   '-f rsrc.yaml'
   '--filename=rsrc.json'"""
_TEMPLATED = (
    ("", "ReplicationController"),
    ("apps", "Deployment"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
)


Change = Callable[[Obj], Obj]
"""Returns the changed object. Raises Failed if that is not possible."""


def check_local(invocation: Invocation) -> None:
    if invocation.flags.local and dry_run(invocation) is DryRun.SERVER:
        raise Failed("cannot specify --local and --dry-run=server - did you mean --dry-run=client?")


def check_all(invocation: Invocation) -> None:
    if invocation.flags.all and invocation.flags.selector:
        raise Failed("cannot set --all and --selector at the same time")


async def items(invocation: Invocation, args: Sequence[str]) -> list[Target]:
    """Return the current state of the selected objects."""
    if invocation.flags.local:
        if args:
            raise Failed(_LOCAL)
        return list(local_targets(invocation))
    errors: list[Exception] = []
    found = await fetch(invocation, await choose(invocation, args, everything=invocation.flags.all), errors)
    raise_all(errors)
    return found


async def carry_out(
    invocation: Invocation,
    found: Sequence[Target],
    change: Change,
    done: str,
    *,
    failed: str = "",
    errors: Sequence[Exception] = (),
    even_unchanged: bool = False,
) -> None:
    """Change the objects and print the results.

    `failed` is the prefix of the server's error. Unchanged objects are skipped unless `even_unchanged`. `errors` are
    reported at the end with new ones.
    """
    dry = dry_run(invocation)
    results, problems = Results(invocation, dry), list[Exception]()
    for target in found:
        old = target.obj or {}
        try:
            new = change(old)
        except Failed as error:
            problems.append(Failed(f"error: {target.resource.plural}/{target.name} {error}\n"))
            continue
        if new != old and getattr(invocation.flags, "record", False):
            new = recorded(invocation, new)
        if new == old and not even_unchanged:
            continue
        if invocation.flags.local or dry is DryRun.CLIENT:
            results.add(new, done, typed=True)
            continue
        try:
            actual = await _sent(invocation, target, old, new, dry)
        except ApiError as error:
            problems.append(Failed(f"{failed}{error.message}") if failed else error)
            continue
        results.add(actual, done, typed=True)
    raise_all([*errors, *problems])


async def _sent(invocation: Invocation, target: Target, old: Obj, new: Obj, dry: DryRun) -> Obj:
    # Imported here because `--local` and dry runs do not need it.
    from setpoint.kinds.tables import definition_for, type_of
    from setpoint.meta.patch.strategic_diff import two_way_strategic

    resource = target.resource
    type_ = type_of(definition_for(resource.group, resource.version, resource.kind))
    return await invocation.client.patch(
        resource,
        target.name,
        two_way_strategic(type_, old, new),
        target.namespace,
        kind="strategic",
        dry_run=dry is DryRun.SERVER,
        field_manager=invocation.flags.field_manager,
    )


def with_pod_spec(obj: Obj, change: Change) -> Obj:
    """Return the object with a changed Pod spec. Raise Failed if it has none."""
    return _inside(obj, pod_spec_path(obj), change)


def pod_spec_path(obj: Obj) -> tuple[str, ...]:
    group, kind = str(obj.get("apiVersion") or "").rpartition("/")[0], obj.get("kind")
    if (group, kind) == ("", "Pod"):
        return ("spec",)
    if (group, kind) == ("batch", "CronJob"):
        return ("spec", "jobTemplate", "spec", "template", "spec")
    if (group, kind) in _TEMPLATED:
        return ("spec", "template", "spec")
    version = str(obj.get("apiVersion") or "").rpartition("/")[2]
    raise Failed(f"the object is not a pod or does not have a pod template: *{version}.{kind}")


def with_containers(spec: Obj, change: Callable[[Obj], Obj]) -> Obj:
    """Change all containers, including init containers."""
    changed = {key: [change(one) for one in spec[key]] for key in ("initContainers", "containers") if spec.get(key)}
    return {**spec, **changed}


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern with `*`; as in kubectl, also for text before the first part of the
    pattern."""
    if pattern == "*" or "*" not in pattern:
        return pattern in ("*", name)
    parts, at = pattern.split("*"), 0
    for index, part in enumerate(parts):
        if part:
            found = name[at:].find(part)
            if found < at or (index == len(parts) - 1 and len(name) != len(part) + found):
                return False
            at = found
    return True


def _inside(obj: Obj, path: tuple[str, ...], change: Change) -> Obj:
    if not path:
        return change(obj)
    return {**obj, path[0]: _inside(obj.get(path[0]) or {}, path[1:], change)}
