"""The modes of editing: what is edited, and how it is saved."""

from __future__ import annotations

import json

from setpoint.cli.editing.loop import ANNOTATIONS, OBJECTS, Editing, Obj, Outcome
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target, choose, fetch, from_files
from setpoint.cli.resources.choosing import placed
from setpoint.cli.resources.manifests import Document
from setpoint.cli.writing import Results, recorded, validation
from setpoint.cli.writing.annotation import ANNOTATION, annotated, encoded, original
from setpoint.client.resources import BY_KIND
from setpoint.meta.errors import ApiError
from setpoint.meta.gojson import compact
from setpoint.meta.patch import PatchError, merge_patch_between, two_way_strategic


async def edit_objects(call: Invocation) -> None:
    """Edit objects of the server and send the changes as patches."""
    results, directive = Results(call, apart=True), validation(call)
    targets = await _current(call)
    if not targets:
        raise Failed("edit cancelled, no objects found")

    async def save(edited: list[Target], outcome: Outcome) -> None:
        for one in edited:
            before = _same(targets, one).obj or {}
            after = _with_managed_fields(one.obj or {}, before)
            if getattr(call.flags, "save_config", False):
                after = annotated(after)
            after = recorded(call, after)
            if after == before:
                results.add(after, "skipped")
                continue
            patch, kind = _patch(one, before, after)
            if call.flags.output_patch:
                call.print(f"Patch: {compact(patch)}")
            try:
                found = await call.client.patch(
                    one.resource,
                    one.name,
                    patch,
                    one.namespace,
                    kind=kind,
                    subresource=call.flags.subresource,
                    field_manager=call.flags.field_manager,
                    field_validation=directive,
                )
            except ApiError as error:
                call.print_err(outcome.add(error, one))
            else:
                results.add(found, "edited")

    await Editing(call, OBJECTS).edit(targets, save)


async def edit_before_create(call: Invocation) -> None:
    """Edit objects of files one after another and create them."""
    results, directive = Results(call, apart=True), validation(call)
    errors: list[Exception] = []

    async def save(edited: list[Target], _: Outcome) -> None:
        for one in edited:
            obj = one.obj or {}
            if call.flags.save_config:
                obj = annotated(obj)
            found = await call.client.create(
                recorded(call, obj),
                resource=one.resource,
                namespace=one.namespace,
                field_manager="kubectl-create",
                field_validation=directive,
            )
            results.add(found, "created")

    async for target in from_files(call, errors):
        await Editing(call, OBJECTS).edit([target], save)
    raise_all(errors)


async def edit_last_applied(call: Invocation) -> None:
    """Edit the last-applied annotations of objects."""
    results = Results(call, apart=True)
    targets = [
        (await placed(call, Document(json.loads(text), "STDIN")))
        for target in await _current(call)
        if (text := original(target.obj or {})) is not None
    ]
    if not targets:
        raise Failed(
            "no last-applied-configuration annotation found on resources, to create the annotation, use command "
            "`setpoint apply set-last-applied --create-annotation`"
        )

    async def save(edited: list[Target], _: Outcome) -> None:
        for one in edited:
            obj = one.obj or {}
            if obj == _same(targets, one).obj:
                results.add(obj, "skipped")
                continue
            await call.client.patch(
                one.resource,
                one.name,
                {"metadata": {"annotations": {ANNOTATION: encoded(obj)}}},
                one.namespace,
                field_manager=call.flags.field_manager,
            )
            results.add(obj, "edited")

    await Editing(call, ANNOTATIONS).edit(targets, save)


async def _current(call: Invocation) -> list[Target]:
    chosen = await choose(call, lists=True)
    part = getattr(call.flags, "subresource", "")
    if not part:
        return await fetch(call, chosen)
    if chosen.selections:
        raise Failed("subresource cannot be used when bulk resources are specified")
    return [
        one.with_object(await call.client.get(one.resource, one.name, one.namespace, subresource=part))
        for one in chosen.targets
    ]


def _same(targets: list[Target], edited: Target) -> Target:
    """Return the original of an edited object, by uid if it has one, because the name may be edited."""

    def uid(target: Target) -> str:
        found: str = ((target.obj or {}).get("metadata") or {}).get("uid") or ""
        return found

    for target in targets:
        if uid(target) == uid(edited) and (uid(target) or target.path == edited.path or len(targets) == 1):
            return target
    raise Failed(f"no original object found for {edited.shown}")


def _with_managed_fields(obj: Obj, before: Obj) -> Obj:
    """Restore the managed fields, which are hidden from the editor."""
    fields = (before.get("metadata") or {}).get("managedFields")
    return obj if fields is None else {**obj, "metadata": {**(obj.get("metadata") or {}), "managedFields": fields}}


def _patch(target: Target, before: Obj, after: Obj) -> tuple[Obj, str]:
    known = BY_KIND.get((before.get("apiVersion") or "", before.get("kind") or ""))
    try:
        patch = two_way_strategic(known.type, before, after) if known else merge_patch_between(before, after)
    except PatchError as error:
        raise Failed(error.message) from None
    if {"apiVersion", "kind"} & patch.keys() or "name" in (patch.get("metadata") or {}):
        raise Failed("At least one of apiVersion, kind and name was changed")
    return patch, "strategic" if known else "merge"
