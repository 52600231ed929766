"""Functions that mutating webhooks and mutating policies share: replacing the object of a write, and reinvocation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from setpoint.apiserver.admission.dynamic.served_resources import ServedResources, kind_of
from setpoint.apiserver.admission.plugin import Attributes, Reinvocation
from setpoint.kinds.catalog import Resource
from setpoint.kinds.tables import definition_for, type_of
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Type


class InvalidMutation(ValueError):
    """The changed object is no valid object of its kind."""


def matched_type(attrs: Attributes, matched: Resource) -> Type:
    """Return the type of the object in the version of `matched`."""
    kind = kind_of(matched, attrs.subresource)
    return matched.type if kind.kind == matched.kind else type_of(definition_for(*kind))


async def replace_object(
    attrs: Attributes, whole: Any, matched: Resource, served: ServedResources, *, strict: bool = False
) -> bool:
    """Decode and default `whole`, and make it the object of the write. Return whether the object changed. With
    `strict`, unknown fields are an error. Raises InvalidMutation, or ApiError if the object cannot be converted."""
    assert attrs.obj is not None
    if not isinstance(whole, dict):
        raise InvalidMutation("couldn't get version/kind; json parse error: not an object")
    try:
        unknown: list[str] = []
        new = await _decoded(attrs, whole, matched, served, unknown)
    except DecodeError as error:
        raise InvalidMutation(str(error)) from None
    if strict and unknown:
        raise InvalidMutation(f"strict decoding error: {', '.join(unknown)}")
    if not isinstance(new.get("metadata"), dict) and "metadata" in attrs.obj:
        new["metadata"] = {}
    if new == attrs.obj:
        return False
    # The caller continues with the same dict.
    attrs.obj.clear()
    attrs.obj.update(new)
    return True


async def _decoded(
    attrs: Attributes, whole: Obj, matched: Resource, served: ServedResources, unknown: list[str]
) -> Obj:
    kind = kind_of(matched, attrs.subresource)
    given = (whole.get("apiVersion"), whole.get("kind"))
    if given != (kind.api_version, kind.kind):
        raise InvalidMutation(f"unable to decode {given[0]}, Kind={given[1]} into {kind}")
    assert attrs.obj is not None
    if attrs.view is not None:
        return attrs.view.apply(attrs.obj, whole)
    if kind.kind != matched.kind or served.registry(matched) is None:
        typed: Obj = decode(type_of(definition_for(*kind)), whole, strict=unknown)
        return {name: value for name, value in typed.items() if name not in ("kind", "apiVersion")}
    return await served.from_version(whole, attrs.resource, matched, unknown)


@dataclass(slots=True)
class InvocationState:
    """The state of one plugin between its first invocation and its reinvocation."""

    output: bytes = b""
    """The encoded object at the end of the plugin's last pass."""
    called: set[str] = field(default_factory=set)
    """Hooks that may be reinvoked, called since the last change."""
    reinvoke: set[str] = field(default_factory=set)
    """Hooks to reinvoke: the object changed after they were called."""

    def changed(self) -> None:
        """Record that the object changed."""
        self.reinvoke |= self.called
        self.called = set()


def begin_pass(attrs: Attributes, plugin: str) -> tuple[Reinvocation, InvocationState]:
    """Return the reinvocation state of the write and of the plugin."""
    if attrs.reinvocation is None:
        attrs.reinvocation = Reinvocation()
    state: InvocationState = attrs.reinvocation.state.setdefault(plugin, InvocationState())
    if attrs.reinvocation.running and state.output != _encoded(attrs):
        state.changed()
    return attrs.reinvocation, state


def end_pass(attrs: Attributes, state: InvocationState) -> None:
    """Record the object at the end of a pass."""
    state.output = _encoded(attrs)


def _encoded(attrs: Attributes) -> bytes:
    return orjson.dumps(attrs.obj, option=orjson.OPT_SORT_KEYS)
