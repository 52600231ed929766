"""`--overrides`: patch a generated object before it is sent."""

from __future__ import annotations

from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.writing.typed import typed
from setpoint.meta.body import BodyError, parse_json
from setpoint.meta.patch.errors import PatchError

Obj = dict[str, Any]
_KINDS = ("json", "merge", "strategic")


def overriding(default: str) -> tuple[Any, ...]:
    return (
        text("overrides", help="A patch to the object that is made, as JSON."),
        text("override-type", default=default, help=f"What kind of patch it is: {', '.join(_KINDS)}.", choices=_KINDS),
    )


def overridden(call: Invocation, obj: Obj) -> Obj:
    """Return the patched object. Raise Failed."""
    given = call.flags.overrides
    if not given:
        return obj
    kind = call.flags.override_type or "merge"
    if kind not in _KINDS:
        raise Failed(f"invalid override type: {kind}")
    try:
        patch, _ = parse_json(given.encode("utf-8", "surrogateescape"))
        return typed(_patched(kind, obj, patch))
    except (BodyError, PatchError) as error:
        raise Failed(str(error)) from None


def _patched(kind: str, obj: Obj, patch: Any) -> Obj:
    # Imported here because overrides are rare.
    from setpoint.kinds.tables import definition_for, type_of
    from setpoint.meta.patch.json_patch import apply_json_patch
    from setpoint.meta.patch.merge_patch import apply_merge_patch
    from setpoint.meta.patch.strategic import apply_strategic

    if kind == "json":
        found = apply_json_patch(obj, patch)
    elif kind == "merge":
        found = apply_merge_patch(obj, patch)
    else:
        group, _, version = obj["apiVersion"].rpartition("/")
        found = apply_strategic(type_of(definition_for(group, version, obj["kind"])), obj, patch)
    if not isinstance(found, dict):
        raise Failed("what is left of the object is none")
    return found
