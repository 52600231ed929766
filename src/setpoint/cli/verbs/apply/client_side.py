"""Client-side apply: a patch computed from the last applied, the desired and the current object."""

from __future__ import annotations

import json

from setpoint.cli.failures import Failed, with_source
from setpoint.cli.resources import Target
from setpoint.cli.verbs.apply.session import Session
from setpoint.cli.waiting import FOREVER, TIMED_OUT, TimedOut, within
from setpoint.cli.writing import DryRun, recorded
from setpoint.cli.writing.annotation import ANNOTATION, annotated, original
from setpoint.client.resources import BY_KIND
from setpoint.meta.errors import ApiError, Conflict, Invalid, NotFound
from setpoint.meta.gojson import compact
from setpoint.meta.objects import Obj
from setpoint.meta.patch import (
    PatchError,
    apply_merge_patch,
    apply_strategic,
    three_way_merge,
    three_way_strategic,
)

_MAX_RETRIES = 5
_PAUSE = 1.0


async def apply_one(session: Session, target: Target) -> Obj:
    """Apply one object and return its new state."""
    invocation = session.invocation
    assert target.obj is not None
    wanted = recorded(invocation, target.obj)
    modified = annotated(wanted)
    try:
        current = await invocation.client.get(target.resource, target.name, target.namespace)
    except NotFound:
        return await _created(session, target, modified)
    except (ApiError, ValueError) as error:
        doing = f"retrieving current configuration of:\n{_described(target)}\nfrom server for:"
        raise with_source(error, doing, target.source) from None
    if original(current) is None:
        invocation.print_err(
            f"Warning: resource {target.resource.plural}/{target.name} is missing the {ANNOTATION} annotation which is "
            "required by setpoint apply. setpoint apply should only be used on resources created declaratively by "
            "either setpoint create --save-config or setpoint apply. The missing annotation will be patched "
            "automatically."
        )
    patch, found = await _patched(session, target, current, modified)
    session.warn_if_deleting(found)
    session.results.line(found, "configured" if patch else "unchanged")
    return found


async def _created(session: Session, target: Target, modified: Obj) -> Obj:
    found: Obj = _without_nulls(modified)
    if session.dry is not DryRun.CLIENT:
        try:
            found = await session.create(target, found)
        except (ApiError, ValueError) as error:
            raise with_source(error, "creating", target.source) from None
    session.results.line(found, "created")
    return found


async def _patched(session: Session, target: Target, current: Obj, modified: Obj) -> tuple[Obj, Obj]:
    """Return the patch and the object; retry on conflicts."""
    patch: Obj | None = None
    for attempt in range(_MAX_RETRIES + 1):
        try:
            patch, kind = three_way(target, current, modified, overwrite=session.invocation.flags.overwrite)
            if not patch:
                return patch, current
            if session.dry is DryRun.CLIENT:
                return patch, locally_patched(target, current, patch, kind)
            return patch, await session.patch(target, patch, kind)
        except Conflict as error:
            if attempt < _MAX_RETRIES:
                if attempt:
                    await session.invocation.io.clock.sleep(_PAUSE)
                current = await session.invocation.client.get(target.resource, target.name, target.namespace)
                continue
            failure: Exception = error
        except (ApiError, ValueError, Failed) as error:
            failure = error
        break
    if session.invocation.flags.force and isinstance(failure, Conflict | Invalid):
        return modified, await _recreated(session, target, current, modified)
    failure = with_source(failure, "patching", target.source)
    doing = f"applying patch:\n{compact(patch) if patch is not None else ''}\nto:\n{_described(target)}\nfor:"
    raise with_source(failure, doing, target.source)


def three_way(target: Target, current: Obj, modified: Obj, *, overwrite: bool = True) -> tuple[Obj, str]:
    """Return the three-way patch and its type. Lists of built-in kinds are merged strategically. Raise Failed."""
    last = original(current)
    try:
        before = json.loads(last) if last else {}
    except ValueError:
        raise Failed("Invalid JSON document") from None
    known = BY_KIND.get((target.resource.api_version, target.resource.kind))
    try:
        if known is None:
            return three_way_merge(before, modified, current), "merge"
        return three_way_strategic(known.type, before, modified, current, overwrite=overwrite), "strategic"
    except PatchError as error:
        raise Failed(error.message) from None


def locally_patched(target: Target, current: Obj, patch: Obj, kind: str) -> Obj:
    if kind == "strategic":
        known = BY_KIND[target.resource.api_version, target.resource.kind]
        return apply_strategic(known.type, current, patch)
    found: Obj = apply_merge_patch(current, patch)
    return found


async def _recreated(session: Session, target: Target, current: Obj, modified: Obj) -> Obj:
    """Delete and create the object; if that fails, restore the previous one."""
    invocation = session.invocation
    await session.delete(target.resource, target.name, target.namespace)

    async def gone() -> bool:
        while True:
            try:
                await invocation.client.get(target.resource, target.name, target.namespace)
            except NotFound:
                return True
            await invocation.io.clock.sleep(_PAUSE)

    try:
        await within(invocation.io, invocation.flags.timeout or FOREVER, gone())
    except TimedOut:
        raise Failed(TIMED_OUT) from None
    try:
        return await session.create(target, _fresh(modified))
    except (ApiError, ValueError) as error:
        try:
            await session.create(target, _fresh(current))
        except (ApiError, ValueError) as second:
            raise Failed(
                "An error occurred force-replacing the existing object with the newly provided one:\n\n"
                f"{error}.\n\nAdditionally, an error occurred attempting to restore the original object:\n\n{second}"
            ) from None
        raise


def _fresh(obj: Obj) -> Obj:
    return {**obj, "metadata": {key: one for key, one in obj["metadata"].items() if key != "resourceVersion"}}


def _described(target: Target) -> str:
    of, kind = target.resource, f"{target.resource.group}/{target.resource.version}"
    return (
        f'Resource: "{kind}, Resource={of.plural}", GroupVersionKind: "{kind}, Kind={of.kind}"\n'
        f'Name: "{target.name}", Namespace: "{target.namespace}"'
    )


def _without_nulls(value: Obj) -> Obj:
    """Return the value without null members; items of lists stay."""

    def kept(one: object) -> object:
        if isinstance(one, dict):
            return {key: kept(member) for key, member in one.items() if member is not None}
        return [kept(item) for item in one] if isinstance(one, list) else one

    return {key: kept(member) for key, member in value.items() if member is not None}
