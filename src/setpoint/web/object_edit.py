"""Saves an object that was edited as text: only what the user changed is sent, and nothing is overwritten unseen."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import BY_KIND
from setpoint.kinds.catalog import Resource
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.errors import ApiError, BadRequest, Conflict, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.patch import PatchError, merge_patch_between, two_way_strategic
from setpoint.meta.yaml_places import YamlProblem, documents
from setpoint.view.changes import changes, is_bookkeeping, path_text, short_value
from setpoint.view.field_owners import field_text, owned_text
from setpoint.view.manifest_problems import ManifestProblem, problems_of, resolve_path
from setpoint.view.schema_fields import KindSchema

_MAX_CHANGES: Final = 50
_TRIES: Final = 5
_GONE: Final = "the object does not exist any more"
_FIXED: Final = ("apiVersion", "kind")


class Meanwhile(NamedTuple):
    """A field that changed on the server while the object was edited."""

    field: str
    before: str
    now: str
    managers: list[str]
    """The managers that own the field now; empty if no manager does."""
    also_mine: bool
    """Whether the user has changed the field, too."""


class Saved(NamedTuple):
    """The outcome of saving."""

    problems: list[ManifestProblem]
    outcome: str
    """One of `saved`, `unchanged`, `refused`, `conflict` and `deleted`."""
    resource_version: str = ""
    meanwhile: list[Meanwhile] | None = None
    """The changes of others, except those of the status, if the outcome is a conflict."""


class _Edit(NamedTuple):
    before: Obj
    after: Obj
    patch: Obj
    kind: str
    """The patch format."""


async def save_object(
    client: Client,
    resource: Resource,
    before: str,
    after: str,
    *,
    schema: KindSchema | None = None,
    take_over: bool = False,
    dry_run: bool = False,
) -> Saved:
    """Send the difference between two texts of an object. If it has changed on the server since `before`, nothing is
    written, and the changes are returned, unless `take_over`. Raises BadRequest for texts that are no object."""
    try:
        documents_after = documents(after)
        edit = _edit(resource, before, after)
    except YamlProblem as problem:
        return Saved([ManifestProblem(problem.line, problem.column, problem.message)], "refused")
    if not edit.patch:
        return Saved([], "unchanged", edit.before["metadata"].get("resourceVersion", ""))
    close_names = schema.close_names if schema is not None else lambda path: []
    version = "" if take_over or dry_run else edit.before["metadata"].get("resourceVersion", "")
    for attempt in range(_TRIES):
        try:
            found = await _send(client, resource, edit, version, dry_run=dry_run)
            return Saved([], "saved", found["metadata"].get("resourceVersion", ""))
        except Conflict:
            conflict = await _conflict(client, resource, edit)
            if attempt == _TRIES - 1 or conflict.outcome != "conflict" or conflict.meanwhile:
                return conflict
            version = conflict.resource_version  # only the status was written meanwhile
        except NotFound:
            return Saved([ManifestProblem(1, 1, _GONE)], "deleted")
        except ApiError as error:
            return Saved(problems_of(error, documents_after[0], edit.after, close_names), "refused")
    raise AssertionError("the last attempt returns")


async def _send(client: Client, resource: Resource, edit: _Edit, version: str, *, dry_run: bool) -> Obj:
    patch, metadata = edit.patch, edit.before["metadata"]
    if version:
        patch = {**patch, "metadata": {**(patch.get("metadata") or {}), "resourceVersion": version}}
    return await client.patch(
        resource,
        metadata["name"],
        patch,
        metadata.get("namespace", ""),
        kind=edit.kind,
        field_validation="Strict",
        dry_run=dry_run,
    )


def _edit(resource: Resource, before: str, after: str) -> _Edit:
    old, new = _object(before), _object(after)
    for name in _FIXED:
        if old.get(name) != new.get(name):
            raise BadRequest(f"{name} cannot be changed: create another object instead")
    for name in ("name", "namespace"):
        if old["metadata"].get(name) != new["metadata"].get(name):
            raise BadRequest(f"metadata.{name} cannot be changed: create another object instead")
    known = BY_KIND.get((resource.api_version, resource.kind))
    try:
        patch = two_way_strategic(known.type, old, new) if known else merge_patch_between(old, new)
    except PatchError as error:
        raise BadRequest(error.message) from None
    return _Edit(old, new, patch, "strategic" if known else "merge")


def _object(text: str) -> Obj:
    try:
        found: Any = parse_yaml(text.encode())[0]
    except BodyError as error:
        raise BadRequest(str(error)) from None
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict) or not found["metadata"].get("name"):
        raise BadRequest("the text must be one object with metadata.name")
    return found


async def _conflict(client: Client, resource: Resource, edit: _Edit) -> Saved:
    metadata = edit.before["metadata"]
    try:
        live = await client.get(resource, metadata["name"], metadata.get("namespace", ""))
    except NotFound:
        return Saved([ManifestProblem(1, 1, _GONE)], "deleted")
    live = {"apiVersion": resource.api_version, "kind": resource.kind, **live}
    owned = owned_text(live)
    owners = {line.field: line.owners for line in owned.lines}
    mine = {path_text(each.path) for each in changes(edit.before, edit.after)}
    found = [
        Meanwhile(
            path_text(each.path),
            short_value(each.old),
            short_value(each.new),
            [owned.managers[at].shown for at in owners.get(field_text(resolve_path(path_text(each.path), live)), ())],
            path_text(each.path) in mine,
        )
        for each in changes(edit.before, live)
        if each.path[:1] != ("status",) and not is_bookkeeping(each)
    ]
    return Saved([], "conflict", live["metadata"].get("resourceVersion", ""), found[:_MAX_CHANGES])
