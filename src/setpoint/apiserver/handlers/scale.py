"""`/scale`: the number of replicas of a workload as a Scale object. Reads and writes go to the workload itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import orjson

from setpoint.apiserver.bodies import check_name, read_resource
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.handlers.patch import APPLY, patch_type, patcher_for, read_applied, report_duplicates
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import column_definitions, include_object, respond
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.write_path import WritePath
from setpoint.kinds.autoscaling.scale import apply_scale, to_scale, validate_scale
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Column
from setpoint.meta import apply
from setpoint.meta.apply import check_types
from setpoint.meta.decode import decode
from setpoint.meta.errors import ApiError, Conflict, Invalid, PlainServerError
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.wire.message import Answer

SCALE = Resource("autoscaling", "v1", "Scale", "scales")
ReplicasPaths = dict[str, tuple[str, ...] | None]


class Scaling(Protocol):
    """Maps the objects of a kind to Scale objects and back."""

    @property
    def columns(self) -> Sequence[Column]:
        """The columns of a Scale in a table; empty if it has no table."""
        ...

    def to_scale(self, registry: Registry, obj: Obj) -> Obj:
        """Return the Scale of an object. Raises ApiError if it cannot be scaled."""
        ...

    def live_scale(self, registry: Registry, obj: Obj) -> Obj:
        """Return the Scale to which a write is applied."""
        ...

    def scaled(self, registry: Registry, obj: Obj, scale: Obj) -> Obj:
        """Return a typed copy of `obj` with the replicas and the resourceVersion of `scale`. Raises ApiError."""
        ...

    def check(self, scale: Obj, errs: Errors) -> None: ...

    def paths(self, registry: Registry) -> ReplicasPaths:
        """Return the path of the replicas, by version."""
        ...


class BuiltInScaling:
    """The built-in workloads, with `spec.replicas`."""

    columns = ()

    def to_scale(self, registry: Registry, obj: Obj) -> Obj:
        return to_scale({"kind": registry.resource.kind, **obj})

    live_scale = to_scale

    def scaled(self, registry: Registry, obj: Obj, scale: Obj) -> Obj:
        return apply_scale(scale, obj)

    def check(self, scale: Obj, errs: Errors) -> None:
        validate_scale(scale, errs)

    def paths(self, registry: Registry) -> ReplicasPaths:
        return {registry.resource.api_version: ("f:spec", "f:replicas")}


def _typed(scale: Obj) -> Obj:
    typed: Obj = decode(SCALE.type, scale, strict=None)
    return typed


def _owned_scale(scaling: Scaling, registry: Registry, live: Obj) -> Obj:
    """Return the Scale with the managedFields that concern it."""
    scale = scaling.live_scale(registry, live)
    owners = apply.to_scale(live["metadata"].get("managedFields") or [], scaling.paths(registry))
    return {**scale, "metadata": {**scale["metadata"], "managedFields": owners}} if owners else scale


class _AsScale:
    """The view of admission: the Scale, and not the workload."""

    def __init__(self, scaling: Scaling, registry: Registry) -> None:
        self._scaling = scaling
        self._registry = registry

    def render(self, obj: Obj) -> Obj:
        return _typed(_owned_scale(self._scaling, self._registry, obj))

    def apply(self, obj: Obj, view: Obj) -> Obj:
        scaled: Obj = decode(
            self._registry.resource.type, self._scaling.scaled(self._registry, obj, _typed(view)), strict=None
        )
        return {name: value for name, value in scaled.items() if name not in ("kind", "apiVersion")}


class ScaleHandlers:
    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling

    @property
    def by_verb(self) -> dict[str, Callable[[RequestContext, Registry, Form], Awaitable[Answer]]]:
        return {"get": self.get, "update": self.update, "patch": self.patch}

    def _respond(self, ctx: RequestContext, form: Form, registry: Registry, entry: Entry) -> Answer:
        scale = _typed(self._scaling.to_scale(registry, registry.encoding.live(entry)))
        if form.transform == "Table" and self._scaling.columns:
            return respond(form, orjson.dumps(self._table(ctx, form, scale)))
        return respond(form, orjson.dumps(scale) + b"\n")

    def _table(self, ctx: RequestContext, form: Form, scale: Obj) -> Obj:
        partial = {"kind": "PartialObjectMetadata", "apiVersion": form.meta_version, "metadata": scale["metadata"]}
        shown = {"": partial, "Metadata": partial, "Object": scale}.get(include_object(ctx))
        columns = self._scaling.columns
        return {
            "kind": "Table",
            "apiVersion": form.meta_version,
            "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]},
            "columnDefinitions": column_definitions(columns),
            "rows": [{"cells": [column.cell(scale, ctx.now) for column in columns], "object": shown}],
        }

    async def get(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        entry = registry.get(ctx.target.namespace, ctx.target.name)
        if registry.encoding.remote:
            await registry.encoding.ready((entry,))
        return self._respond(ctx, form, registry, entry)

    async def update(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        write_options(ctx, "UpdateOptions")
        scale = await ctx.compute(read_resource, ctx, SCALE)
        ctx.record_request_object(scale, SCALE.kind, SCALE.api_version)
        check_name(ctx, scale)

        def sent(live: Obj) -> Obj:
            WritePath(ctx, registry).check_uid(ctx.target.name, scale["metadata"], live["metadata"]["uid"])
            return scale

        return await self._write(ctx, registry, form, sent)

    async def patch(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        media_type = patch_type(ctx, registry)
        force = write_options(ctx, "PatchOptions", apply=media_type == APPLY, patch=True)
        if media_type == APPLY:
            return await self._apply(ctx, registry, form, force)
        patcher = await ctx.compute(patcher_for, ctx, SCALE, media_type)

        def patched(live: Obj) -> Obj:
            scale = patcher(self._scaling.live_scale(registry, live))
            check_name(ctx, scale)
            return scale

        return await self._write(ctx, registry, form, patched)

    async def _write(
        self, ctx: RequestContext, registry: Registry, form: Form, scale_for: Callable[[Obj], Obj]
    ) -> Answer:
        async def change(live: Obj | None) -> Obj:
            if live is None:
                raise registry.not_found(ctx.target.name)
            return await ctx.compute(changed, live)

        def changed(live: Obj) -> Obj:
            scale = scale_for(live)
            self._check(registry, scale, live)
            before = _owned_scale(self._scaling, registry, live)
            owners = apply.update(
                apply.WrittenVersion(SCALE.type, SCALE.api_version),
                before,
                {**scale, "metadata": {**scale["metadata"], "managedFields": before["metadata"].get("managedFields")}},
                manager=ctx.field_manager,
                subresource="scale",
                now=format_time(ctx.now),
            )
            return self._scaled(registry, live, scale, owners)

        shape = _AsScale(self._scaling, registry)
        entry, _ = await WritePath(ctx, registry).update(ctx.target.name, change, view=shape)
        return self._respond(ctx, form, registry, entry)

    def _scaled(self, registry: Registry, live: Obj, scale: Obj, owners: list[Obj]) -> Obj:
        """Return the workload with the replicas and managedFields of the Scale."""
        obj: Obj = decode(registry.resource.type, self._scaling.scaled(registry, live, scale), strict=None)
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        stored = live["metadata"].get("managedFields") or []
        entries = apply.to_parent(stored, owners, registry.resource.api_version, self._scaling.paths(registry))
        if entries:
            obj["metadata"]["managedFields"] = entries
        else:
            obj["metadata"].pop("managedFields", None)
        return obj

    def _check(self, registry: Registry, scale: Obj, live: Obj) -> None:
        errs: Errors = []
        self._scaling.check(scale, errs)
        name = scale["metadata"].get("name", "")
        if errs:
            raise Invalid.of("autoscaling", "Scale", name, errs)
        uid = scale["metadata"].get("uid")
        if uid and uid != live["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
            raise Conflict.of(registry.resource.group, f"{registry.resource.plural}/scale", name, why)

    async def _apply(self, ctx: RequestContext, registry: Registry, form: Form, force: bool) -> Answer:
        """Server-side apply of a Scale: the manager owns the replicas of the workload and nothing else."""
        try:
            config, duplicates = await ctx.compute(read_applied, ctx, SCALE)
            await ctx.compute(check_types, SCALE.type, config)
            check_name(ctx, config)
        except (ApiError, apply.TypeMismatch):
            # An absent workload is reported first.
            registry.get(ctx.target.namespace, ctx.target.name)
            raise

        async def change(live: Obj | None) -> Obj:
            if live is None:
                raise registry.not_found(ctx.target.name)
            return await ctx.compute(applied, live)

        def applied(live: Obj) -> Obj:
            try:
                merged = apply.apply(
                    apply.WrittenVersion(SCALE.type, SCALE.api_version),
                    _owned_scale(self._scaling, registry, live),
                    config,
                    manager=ctx.field_manager,
                    force=force,
                    kind=SCALE.kind,
                    subresource="scale",
                    now=format_time(ctx.now),
                )
            except apply.TypeMismatch as error:
                raise PlainServerError(str(error)) from None
            report_duplicates(ctx, duplicates)
            scale = _typed(merged)
            self._check(registry, scale, live)
            return self._scaled(registry, live, scale, merged["metadata"].get("managedFields") or [])

        shape = _AsScale(self._scaling, registry)
        entry, _ = await WritePath(ctx, registry).update(ctx.target.name, change, check_uid=False, view=shape)
        return self._respond(ctx, form, registry, entry)
