"""`scale`: set the number of replicas."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, SELECTORS, Target, choose, fetch
from setpoint.cli.waiting import TIMED_OUT
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, DryRun, Results, dry_run, recorded
from setpoint.meta.errors import Conflict
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_PAUSE, _RETRY_TIMEOUT = 1.0, 300.0


async def run(invocation: Invocation) -> None:
    dry = dry_run(invocation)
    results, flags = Results(invocation, dry), invocation.flags
    if flags.replicas < 0:
        raise Failed("The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0")
    if flags.current_replicas < -1:
        raise Failed("The --current-replicas must specify an integer of -1 or greater")
    errors: list[Exception] = []
    chosen = await choose(invocation, everything=flags.all)
    found = chosen.targets if flags.filename or flags.kustomize else await fetch(invocation, chosen, errors)
    if flags.resource_version and len(found) > 1:
        raise Failed("cannot use --resource-version with multiple resources")
    if not found:
        raise_all(errors)
        raise Failed("no objects passed to scale")
    for target in found:
        size = flags.replicas if dry is DryRun.CLIENT else await _scaled(invocation, target, dry is DryRun.SERVER)
        obj = _resized(target, size)
        if flags.record and dry is DryRun.NONE:
            obj = recorded(invocation, obj)
            cause = {"metadata": {"annotations": obj["metadata"]["annotations"]}}
            await invocation.client.patch(target.resource, target.name, cause, target.namespace)
        results.add(obj, "scaled")
    raise_all(errors)


async def _scaled(invocation: Invocation, target: Target, dry: bool) -> int:
    """Scale and return the new size. Conflicts are retried; failed preconditions are not."""
    clock = invocation.io.clock
    end = clock.monotonic() + _RETRY_TIMEOUT
    while True:
        try:
            size = await _try(invocation, target, dry)
            break
        except Conflict:
            if clock.monotonic() >= end:
                raise Failed(TIMED_OUT) from None
            await clock.sleep(_PAUSE)
    if invocation.flags.timeout and not dry:
        await _reached(invocation, target)
    return size


async def _try(invocation: Invocation, target: Target, dry: bool) -> int:
    flags, client = invocation.flags, invocation.client
    if flags.current_replicas == -1 and not flags.resource_version:
        wanted = {"spec": {"replicas": flags.replicas}}
        scale = await client.patch(
            target.resource, target.name, wanted, target.namespace, subresource="scale", dry_run=dry
        )
        return _replicas(scale)
    scale = await client.get(target.resource, target.name, target.namespace, subresource="scale")
    _check(flags.current_replicas, _replicas(scale), "replicas", -1)
    _check(flags.resource_version, scale["metadata"].get("resourceVersion", ""), "resource version", "")
    wanted = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": flags.replicas}}
    return _replicas(await client.update(wanted, resource=target.resource, subresource="scale", dry_run=dry))


def _check(expected: object, actual: object, what: str, unsaid: object) -> None:
    if expected not in (unsaid, actual):
        raise Failed(f"Expected {what} to be {expected}, was {actual}")


def _replicas(scale: Obj) -> int:
    return int((scale.get("spec") or {}).get("replicas", 0))


async def _reached(invocation: Invocation, target: Target) -> None:
    """Return when the observed replicas equal the desired ones, or another client has changed the desired number."""
    clock, wanted = invocation.io.clock, invocation.flags.replicas
    end = clock.monotonic() + invocation.flags.timeout
    while True:
        scale = await invocation.client.get(target.resource, target.name, target.namespace, subresource="scale")
        if _replicas(scale) != wanted or (scale.get("status") or {}).get("replicas", 0) == wanted:
            return
        if clock.monotonic() + _PAUSE > end:
            raise Failed(f"timed out waiting for {quote(target.name)} to be synced")
        await clock.sleep(_PAUSE)


def _resized(target: Target, size: int) -> Obj:
    obj = target.obj or {}
    if target.resource.group not in ("apps", ""):
        return obj  # only custom kinds themselves define the field of their replicas
    return {**obj, "spec": {**(obj.get("spec") or {}), "replicas": size}}


COMMAND = Command(
    "Set a new size for a deployment, replica set, or replication controller",
    run,
    (
        *OUTPUT,
        *RECORD,
        *FILES,
        *DRY_RUN,
        *SELECTORS[:1],
        switch("all", help="Select all resources in the namespace of the specified resource types"),
        text("resource-version", help="Only if the object is still at this version."),
        number("current-replicas", default=-1, help="Only if this is its size now; -1: whatever it is."),
        number("replicas", help="The new desired number of replicas.", required=True),
        duration("timeout", help="How long to wait until there are as many; 0 means: do not wait."),
    ),
    usage="[--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME)",
    examples="""
    # Three replicas
    setpoint scale deployment/web --replicas=3

    # Three, if there are two now
    setpoint scale --current-replicas=2 --replicas=3 deployment/web

    # Several at once
    setpoint scale --replicas=5 deployment/web statefulset/db
    """,
)
