"""Server-side apply, with the migration of field ownership from client-side apply."""

from __future__ import annotations

from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.resources import Target
from setpoint.cli.verbs.apply.session import Session
from setpoint.cli.writing import DryRun, recorded
from setpoint.cli.writing.annotation import ANNOTATION, original
from setpoint.meta.apply.field_set import BadFieldSet, FieldSet, contains, parse, union
from setpoint.meta.errors import ApiError, Conflict, UnsupportedMediaType
from setpoint.meta.objects import Obj

_KUBECTL, _KEEPER = "kubectl", "kubectl-last-applied"
_ANNOTATION_PATH = ("f:metadata", "f:annotations", f"f:{ANNOTATION}")
_MAX_RETRIES = 5
_LATER = "This is non-fatal and will be retried next time you apply. Error:"
_ADVICE = """
Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
* If you do not intend to manage all of the fields, please edit your
  manifest to remove references to the fields that should keep their
  current managers.
* You may co-own fields by updating your manifest to match the existing
  value; in this case, you'll become the manager if the other manager(s)
  stop managing the field (remove it from their configuration).
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts"""


async def apply_one(session: Session, target: Target) -> Obj:
    invocation = session.invocation
    assert target.obj is not None
    config = recorded(invocation, target.obj)
    try:
        found = await _apply(session, target, config, session.manager, invocation.flags.subresource)
    except UnsupportedMediaType as error:
        raise Failed(f"Server-side apply not available on the server: ({error})") from None
    except Conflict as error:
        raise Failed(f"{error.message}{_ADVICE}") from None
    found = await _migrated(session, target, config, found)
    session.warn_if_deleting(found)
    session.results.line(found, "serverside-applied")
    return found


async def _apply(session: Session, target: Target, config: Obj, manager: str, subresource: str = "") -> Obj:
    return await session.invocation.client.apply(
        config,
        resource=target.resource,
        field_manager=manager,
        force=session.invocation.flags.force_conflicts,
        subresource=subresource,
        dry_run=session.dry is DryRun.SERVER,
        field_validation=session.directive,
    )


async def _migrated(session: Session, target: Target, config: Obj, found: Obj) -> Obj:
    print_err = session.invocation.print_err
    try:
        found = await _with_last_applied(session, target, found)
    except ApiError as error:
        print_err(f"Warning: failed to migrate {ANNOTATION} for Server-Side Apply. {_LATER} {error.message}")
        return found
    try:
        migrated = await _with_migrated_owners(session, target, found)
    except ApiError as error:
        print_err(f"Warning: server rejected managed fields migration to Server-Side Apply. {_LATER} {error.message}")
        return found
    if migrated is None:
        return found
    try:
        return await _apply(session, target, config, session.manager)
    except ApiError as error:
        print_err(
            "Warning: failed to re-apply configuration after performing Server-Side Apply migration. "
            f"{_LATER} {error.message}"
        )
        return migrated


async def _with_last_applied(session: Session, target: Target, found: Obj) -> Obj:
    """Assign the last-applied annotation to its own manager, so that the ownership migration does not remove it.

    The object can then be applied client-side again.
    """
    text = original(found)
    if session.manager != _KUBECTL or text is None or _owners(found, "Apply"):
        return found
    meta = {"name": target.name, "annotations": {ANNOTATION: text}}
    if target.namespace:
        meta["namespace"] = target.namespace
    just = {"apiVersion": target.resource.api_version, "kind": target.resource.kind, "metadata": meta}
    return await session.invocation.client.apply(
        just,
        resource=target.resource,
        field_manager=_KEEPER,
        dry_run=session.dry is DryRun.SERVER,
        field_validation=session.directive,
    )


async def _with_migrated_owners(session: Session, target: Target, found: Obj) -> Obj | None:
    """Transfer the fields of client-side apply to this manager; return None if there are none."""
    names = sorted({entry.get("manager") or "" for entry in _owners(found, "Update")})
    for attempt in range(_MAX_RETRIES):
        before = found["metadata"].get("managedFields") or []
        after = before
        for name in names:
            after = upgraded(after, name, session.manager)
        if after == before:
            return None
        patch = [
            {"op": "replace", "path": "/metadata/managedFields", "value": after},
            # Another client may have changed the object: this is then a conflict, and is retried.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
        ]
        try:
            return await session.patch(target, patch, "json")
        except Conflict:
            if attempt == _MAX_RETRIES - 1:
                raise
            found = await session.invocation.client.get(target.resource, target.name, target.namespace)
    return None


def _owners(obj: Obj, operation: str) -> list[Obj]:
    """Return the managers of the annotation."""
    return [
        entry
        for entry in obj["metadata"].get("managedFields") or ()
        if entry.get("operation") == operation and contains(_fields(entry), _ANNOTATION_PATH)
    ]


def _fields(entry: Obj) -> FieldSet:
    try:
        return parse(entry.get("fieldsV1"))
    except BadFieldSet:
        return {}


def upgraded(entries: list[Obj], updater: str, applier: str) -> list[Obj]:
    """Return the entries with the fields that `updater` manages by updates added to those of `applier`."""

    def updates(entry: Obj) -> bool:
        return (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (updater, "Update", "")

    def applies(entry: Obj) -> bool:
        return (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (applier, "Apply", "")

    copied: list[dict[str, Any]] = list(entries)
    at = next((at for at, entry in enumerate(copied) if applies(entry)), -1)
    if at < 0:
        at = next((at for at, entry in enumerate(copied) if updates(entry)), -1)
        if at < 0:
            return entries
        copied[at] = {**copied[at], "operation": "Apply", "manager": applier}
    version = copied[at].get("apiVersion")
    fields = _fields(copied[at])
    for entry in copied:
        if updates(entry) and entry.get("apiVersion") == version:
            fields = union(fields, _fields(entry))
            break
    copied[at] = {**copied[at], "fieldsV1": fields}
    return [entry for entry in copied if not updates(entry)]
