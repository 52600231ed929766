"""Which fields a write brings into whose ownership: the bridge from requests to `meta.apply`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache

from setpoint.apiserver.call import Call
from setpoint.apiserver.encoding import Converted, Converter, NotConverted
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta import apply
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.decode_custom import restore_nulls
from setpoint.meta.errors import ApiError, InternalError, PlainServerError

_ALWAYS_THERE = ("apiVersion", "kind", "metadata")
_MOST_CONVERSIONS = 64
"""Objects that one write may have converted by a webhook to find out what others own."""

_NOTHING: Converted = {}


async def seeing_versions(
    call: Call, registry: Registry, write: Callable[[], Awaitable[Obj]], *, required: bool = False
) -> Obj:
    """Return the result of a write that looks at what others own in other versions of the kind. Where a webhook
    converts these, the write is tried until it has all that it needs. If the webhook fails, entries of other versions
    stay as they are; if they are `required`, ApiError is raised."""
    encoding = registry.encoding
    if not encoding.remote:
        return await write()
    call.converted = {}
    for _ in range(_MOST_CONVERSIONS):
        try:
            return await write()
        except NotConverted as missing:
            try:
                await encoding.learn(missing, call.converted)
            except ApiError:
                if required:
                    raise
                break
    else:
        if required:
            raise InternalError.of(f"owners of fields need more than {_MOST_CONVERSIONS} conversions")
    call.converted = None
    return await write()


def _converter(call: Call, registry: Registry) -> Converter | None:
    encoding = registry.encoding
    if encoding.remote:
        return encoding.converter(call.converted) if call.converted is not None else None
    return encoding.converter(_NOTHING)


def own(call: Call, registry: Registry, live: Obj | None, new: Obj) -> None:
    """Record in `new` what this create or update changes, under the name of the caller."""
    if call.forget_ownership:
        new["metadata"]["managedFields"] = []
    for part, name in call.emptied:
        if part.get(name) is None:
            part[name] = []  # an empty list is a value to own; stored and shown it is null
    type_ = registry.resource.type
    try:
        entries = apply.update(
            type_,
            live,
            new,
            manager=call.field_manager,
            api_version=registry.resource.api_version,
            subresource=call.target.subresource,
            now=call.moment,
            reset=reset_fields(registry, call.target.subresource),
            convert=_converter(call, registry) if live is not None else None,
        )
    except (apply.TypeMismatch, AttributeError, TypeError):
        # A custom object that does not fit its schema: validation has the word, and owners stay who they are.
        if type_.go:
            raise
        entries = (live["metadata"].get("managedFields") or []) if live is not None else []
    for part, name in call.emptied:
        part[name] = part[name] or None
    if entries:
        new["metadata"]["managedFields"] = entries
    else:
        new["metadata"].pop("managedFields", None)


def apply_config(call: Call, registry: Registry, live: Obj | None, config: Obj, force: bool) -> Obj:
    """`config` applied by the caller over `live` (in the served version): the new object, typed, defaulted, bare."""
    resource = registry.resource
    if live is not None:
        live = {"kind": resource.kind, "apiVersion": resource.api_version, **live}
    try:
        merged = apply.apply(
            resource.type,
            live,
            config,
            manager=call.field_manager,
            force=force,
            api_version=resource.api_version,
            kind=resource.kind,
            subresource=call.target.subresource,
            now=call.moment,
            reset=reset_fields(registry, call.target.subresource),
            convert=_converter(call, registry),
        )
    except apply.TypeMismatch as error:
        raise PlainServerError(str(error)) from None
    try:
        obj: Obj = decode(resource.type, merged, strict=None)
    except DecodeError as error:
        what, why = f"{resource.group}/{resource.version}, Kind={resource.kind}", str(error)
        if why.startswith("illegal base64"):
            why = f"error decoding from json: {why}"
        raise PlainServerError(
            f"failed to convert new object ({config['metadata'].get('namespace') or ''}/{call.target.name}; {what}) to "
            f"proper version: unable to convert unstructured object to {what}: {why}"
        ) from None
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    if resource.is_custom:
        restore_nulls(obj, {key: value for key, value in merged.items() if key not in _ALWAYS_THERE})
    registry.strategy.default(obj)
    registry.strategy.stamp(obj, call.now)
    if resource.namespaced and not obj["metadata"].get("namespace"):
        obj["metadata"]["namespace"] = call.target.namespace
    return obj


def reset_fields(registry: Registry, subresource: str) -> apply.Filter | None:
    """Takes out what a write through this door cannot change, so that nobody comes to own it by sending it."""
    strategy = registry.strategy
    if subresource:
        part = strategy.subresources.get(subresource)
        return _without(part.resets) if part is not None and part.resets else None
    return _without(strategy.resets) if strategy.resets else None


@lru_cache(maxsize=256)
def _without(paths: tuple[str, ...]) -> apply.Filter:
    return apply.exclude(apply.of_fields(*paths))
