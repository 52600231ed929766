"""Field ownership of writes: connects requests with `meta.apply`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache

from setpoint.apiserver.encoding import Converted, Converter, NotConverted
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext
from setpoint.meta import apply
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.decoders import restore_nulls
from setpoint.meta.errors import ApiError, InternalError, PlainServerError
from setpoint.meta.objects import Obj

_TYPE_AND_META = ("apiVersion", "kind", "metadata")
_MAX_CONVERSIONS = 64
"""Maximum number of objects that a webhook converts for the field ownership of one write."""

_NOTHING: Converted = {}


async def with_conversions(
    ctx: RequestContext, registry: Registry, write: Callable[[], Awaitable[Obj]], *, required: bool = False
) -> Obj:
    """Return the result of `write`, which may need the fields that others own in other versions of the kind.

    If a webhook converts between versions, `write` is repeated until all conversions that it needs are known. If the
    webhook fails, entries of other versions remain unchanged; if they are `required`, ApiError is raised."""
    encoding = registry.encoding
    if not encoding.remote:
        return await write()
    ctx.converted = {}
    for _ in range(_MAX_CONVERSIONS):
        try:
            return await write()
        except NotConverted as missing:
            try:
                await encoding.fetch_conversion(missing, ctx.converted)
            except ApiError:
                if required:
                    raise
                break
    else:
        if required:
            raise InternalError.of(f"owners of fields need more than {_MAX_CONVERSIONS} conversions")
    ctx.converted = None
    return await write()


def _converter(ctx: RequestContext, registry: Registry) -> Converter | None:
    encoding = registry.encoding
    if encoding.remote:
        return encoding.converter(ctx.converted) if ctx.converted is not None else None
    return encoding.converter(_NOTHING)


def own(ctx: RequestContext, registry: Registry, live: Obj | None, new: Obj) -> None:
    """Record the fields that this create or update changes in the managedFields of `new`."""
    if ctx.clears_managed_fields:
        new["metadata"]["managedFields"] = []
    for part, name in ctx.emptied:
        if part.get(name) is None:
            part[name] = []  # an empty list can be owned; it is stored and returned as null
    type_ = registry.resource.type
    try:
        version = apply.WrittenVersion(
            type_,
            registry.resource.api_version,
            reset_fields(registry, ctx.target.subresource),
            _converter(ctx, registry) if live is not None else None,
        )
        subresource = ctx.target.subresource
        entries = apply.update(
            version, live, new, manager=ctx.field_manager, subresource=subresource, now=ctx.timestamp
        )
    except (apply.TypeMismatch, AttributeError, TypeError):
        # A custom object that does not match its schema: validation reports it, and the owners do not change.
        if type_.go:
            raise
        entries = (live["metadata"].get("managedFields") or []) if live is not None else []
    for part, name in ctx.emptied:
        part[name] = part[name] or None
    if entries:
        new["metadata"]["managedFields"] = entries
    else:
        new["metadata"].pop("managedFields", None)


def apply_config(ctx: RequestContext, registry: Registry, live: Obj | None, config: Obj, force: bool) -> Obj:
    """Return the result of a server-side apply of `config` to `live`, typed and with defaults, without kind and
    apiVersion. Both are in the served version."""
    resource = registry.resource
    if live is not None:
        live = {"kind": resource.kind, "apiVersion": resource.api_version, **live}
    try:
        merged = apply.apply(
            apply.WrittenVersion(
                resource.type,
                resource.api_version,
                reset_fields(registry, ctx.target.subresource),
                _converter(ctx, registry),
            ),
            live,
            config,
            manager=ctx.field_manager,
            force=force,
            kind=resource.kind,
            subresource=ctx.target.subresource,
            now=ctx.timestamp,
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
            f"failed to convert new object ({config['metadata'].get('namespace') or ''}/{ctx.target.name}; {what}) to "
            f"proper version: unable to convert unstructured object to {what}: {why}"
        ) from None
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    if resource.is_custom:
        restore_nulls(obj, {key: value for key, value in merged.items() if key not in _TYPE_AND_META})
    registry.strategy.default(obj)
    registry.strategy.stamp(obj, ctx.now)
    if resource.namespaced and not obj["metadata"].get("namespace"):
        obj["metadata"]["namespace"] = ctx.target.namespace
    return obj


def reset_fields(registry: Registry, subresource: str) -> apply.Filter | None:
    """Return a filter for the fields that a write to this subresource cannot change, and so cannot own."""
    strategy = registry.strategy
    if subresource:
        part = strategy.subresources.get(subresource)
        return _without(part.resets) if part is not None and part.resets else None
    return _without(strategy.resets) if strategy.resets else None


@lru_cache(maxsize=256)
def _without(paths: tuple[str, ...]) -> apply.Filter:
    return apply.exclude(apply.of_fields(*paths))
