"""Taking back an object that webhooks or policies changed, in the version in which they saw it."""

from __future__ import annotations

from typing import Any

from setpoint.apiserver.admission.dynamic.served import Served, kind_of
from setpoint.apiserver.admission.plugin import Attributes, Obj
from setpoint.kinds.catalog import Resource
from setpoint.kinds.tables import definition_for, type_of
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.schema import Type


class ChangeProblem(ValueError):
    """What came of the change is no object of its kind."""


def type_shown(attrs: Attributes, matched: Resource) -> Type:
    """The type of the object as it is shown to whom it matched as `matched`."""
    kind = kind_of(matched, attrs.subresource)
    return matched.type if kind.kind == matched.kind else type_of(definition_for(*kind))


async def replace_object(
    attrs: Attributes, whole: Any, matched: Resource, served: Served, *, strict: bool = False
) -> bool:
    """Makes `whole` the object of the write, typed and defaulted. Returns whether that changed anything. `strict`:
    unknown fields are a problem. Raises ChangeProblem, and ApiError where it cannot be converted."""
    assert attrs.obj is not None
    if not isinstance(whole, dict):
        raise ChangeProblem("couldn't get version/kind; json parse error: not an object")
    try:
        unknown: list[str] = []
        new = await _taken(attrs, whole, matched, served, unknown)
    except DecodeError as error:
        raise ChangeProblem(str(error)) from None
    if strict and unknown:
        raise ChangeProblem(f"strict decoding error: {', '.join(unknown)}")
    if not isinstance(new.get("metadata"), dict) and "metadata" in attrs.obj:
        new["metadata"] = {}
    if new == attrs.obj:
        return False
    # Whoever handed the object in goes on with the same one.
    attrs.obj.clear()
    attrs.obj.update(new)
    return True


async def _taken(attrs: Attributes, whole: Obj, matched: Resource, served: Served, unknown: list[str]) -> Obj:
    kind = kind_of(matched, attrs.subresource)
    given = (whole.get("apiVersion"), whole.get("kind"))
    if given != (kind.api_version, kind.kind):
        raise ChangeProblem(f"unable to decode {given[0]}, Kind={given[1]} into {kind}")
    assert attrs.obj is not None
    if attrs.shape is not None:
        return attrs.shape.take(attrs.obj, whole)
    if kind.kind != matched.kind or served.registry(matched) is None:
        typed: Obj = decode(type_of(definition_for(*kind)), whole, strict=unknown)
        return {name: value for name, value in typed.items() if name not in ("kind", "apiVersion")}
    return await served.taken(whole, attrs.resource, matched, unknown)
