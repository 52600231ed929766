"""`/scale`: a workload seen as a number of replicas. Reads and writes go to the workload itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import orjson

from setpoint.apiserver.bodies import read_resource
from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.patch import APPLY, patch_type, patcher_for, read_applied, report_applied_twice
from setpoint.apiserver.handlers.update import check_name
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import column_definitions, include_object, respond
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.autoscaling.scale_mapping import apply_scale, to_scale, validate_scale
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Column
from setpoint.meta import apply
from setpoint.meta.apply import check_types
from setpoint.meta.decode import decode
from setpoint.meta.errors import ApiError, Conflict, Invalid, PlainServerError
from setpoint.meta.field import Errors
from setpoint.meta.times import format_time

SCALE = Resource("autoscaling", "v1", "Scale", "scales")
ReplicasPaths = dict[str, tuple[str, ...] | None]


class Scaling(Protocol):
    """How a kind keeps its replicas."""

    @property
    def columns(self) -> Sequence[Column]:
        """Of a Scale in a table; none: it is no table."""
        ...

    def to_scale(self, registry: Registry, obj: Obj) -> Obj:
        """Raises ApiError where there is nothing to scale."""
        ...

    def live_scale(self, registry: Registry, obj: Obj) -> Obj:
        """What a write of the Scale starts from."""
        ...

    def scaled(self, registry: Registry, obj: Obj, scale: Obj) -> Obj:
        """A copy of `obj`, typed, with the replicas and the resourceVersion of `scale`. Raises ApiError."""
        ...

    def check(self, scale: Obj, errs: Errors) -> None: ...

    def paths(self, registry: Registry) -> ReplicasPaths:
        """Where the replicas are, by version."""
        ...


class BuiltInScaling:
    """Deployments and their like: `spec.replicas`."""

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
    """The Scale with what its writers own of it."""
    scale = scaling.live_scale(registry, live)
    owners = apply.to_scale(live["metadata"].get("managedFields") or [], scaling.paths(registry))
    return {**scale, "metadata": {**scale["metadata"], "managedFields": owners}} if owners else scale


class _AsScale:
    """What admission sees of a write: the Scale, and not the workload."""

    def __init__(self, scaling: Scaling, registry: Registry) -> None:
        self._scaling = scaling
        self._registry = registry

    def show(self, obj: Obj) -> Obj:
        return _typed(_owned_scale(self._scaling, self._registry, obj))

    def take(self, obj: Obj, shown: Obj) -> Obj:
        scaled: Obj = decode(
            self._registry.resource.type, self._scaling.scaled(self._registry, obj, _typed(shown)), strict=None
        )
        return {name: value for name, value in scaled.items() if name not in ("kind", "apiVersion")}


class ScaleHandlers:
    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling

    @property
    def by_verb(self) -> dict[str, Callable[[Call, Registry, Form], Awaitable[Answer]]]:
        return {"get": self.get, "update": self.update, "patch": self.patch}

    def _respond(self, call: Call, form: Form, registry: Registry, entry: Entry) -> Answer:
        scale = _typed(self._scaling.to_scale(registry, registry.encoding.live(entry)))
        if form.transform == "Table" and self._scaling.columns:
            return respond(form, orjson.dumps(self._table(call, form, scale)))
        return respond(form, orjson.dumps(scale) + b"\n")

    def _table(self, call: Call, form: Form, scale: Obj) -> Obj:
        partial = {"kind": "PartialObjectMetadata", "apiVersion": form.meta_version, "metadata": scale["metadata"]}
        shown = {"": partial, "Metadata": partial, "Object": scale}.get(include_object(call))
        columns = self._scaling.columns
        return {
            "kind": "Table",
            "apiVersion": form.meta_version,
            "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]},
            "columnDefinitions": column_definitions(columns),
            "rows": [{"cells": [column.cell(scale, call.now) for column in columns], "object": shown}],
        }

    async def get(self, call: Call, registry: Registry, form: Form) -> Answer:
        entry = registry.get(call.target.namespace, call.target.name)
        if registry.encoding.remote:
            await registry.encoding.ready((entry,))
        return self._respond(call, form, registry, entry)

    async def update(self, call: Call, registry: Registry, form: Form) -> Answer:
        write_options(call, "UpdateOptions")
        scale = await call.work(read_resource, call, SCALE)
        call.sent(scale, SCALE.kind, SCALE.api_version)
        check_name(call, scale)

        def sent(live: Obj) -> Obj:
            registry.check_uid(call, call.target.name, scale["metadata"], live["metadata"]["uid"])
            return scale

        return await self._write(call, registry, form, sent)

    async def patch(self, call: Call, registry: Registry, form: Form) -> Answer:
        media_type = patch_type(call, registry)
        force = write_options(call, "PatchOptions", apply=media_type == APPLY, patch=True)
        if media_type == APPLY:
            return await self._apply(call, registry, form, force)
        patcher = await call.work(patcher_for, call, SCALE, media_type)

        def patched(live: Obj) -> Obj:
            scale = patcher(self._scaling.live_scale(registry, live))
            check_name(call, scale)
            return scale

        return await self._write(call, registry, form, patched)

    async def _write(self, call: Call, registry: Registry, form: Form, scale_for: Callable[[Obj], Obj]) -> Answer:
        async def change(live: Obj | None) -> Obj:
            if live is None:
                raise registry.not_found(call.target.name)
            return await call.work(changed, live)

        def changed(live: Obj) -> Obj:
            scale = scale_for(live)
            self._check(registry, scale, live)
            before = _owned_scale(self._scaling, registry, live)
            owners = apply.update(
                SCALE.type,
                before,
                {**scale, "metadata": {**scale["metadata"], "managedFields": before["metadata"].get("managedFields")}},
                manager=call.field_manager,
                api_version=SCALE.api_version,
                subresource="scale",
                now=format_time(call.now),
            )
            return self._scaled(registry, live, scale, owners)

        shape = _AsScale(self._scaling, registry)
        entry, _ = await registry.update(call, call.target.name, change, shape=shape)
        return self._respond(call, form, registry, entry)

    def _scaled(self, registry: Registry, live: Obj, scale: Obj, owners: list[Obj]) -> Obj:
        """The workload with the replicas of `scale`, and with its owners."""
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

    async def _apply(self, call: Call, registry: Registry, form: Form, force: bool) -> Answer:
        """The applied Scale is the workload's replicas, and nothing else of it, in the manager's ownership."""
        try:
            config, duplicates = await call.work(read_applied, call, SCALE)
            await call.work(check_types, SCALE.type, config)
            check_name(call, config)
        except (ApiError, apply.TypeMismatch):
            # Nobody looks at what cannot be applied to anything.
            registry.get(call.target.namespace, call.target.name)
            raise

        async def change(live: Obj | None) -> Obj:
            if live is None:
                raise registry.not_found(call.target.name)
            return await call.work(applied, live)

        def applied(live: Obj) -> Obj:
            try:
                merged = apply.apply(
                    SCALE.type,
                    _owned_scale(self._scaling, registry, live),
                    config,
                    manager=call.field_manager,
                    force=force,
                    api_version=SCALE.api_version,
                    kind=SCALE.kind,
                    subresource="scale",
                    now=format_time(call.now),
                )
            except apply.TypeMismatch as error:
                raise PlainServerError(str(error)) from None
            report_applied_twice(call, duplicates)
            scale = _typed(merged)
            self._check(registry, scale, live)
            return self._scaled(registry, live, scale, merged["metadata"].get("managedFields") or [])

        shape = _AsScale(self._scaling, registry)
        entry, _ = await registry.update(call, call.target.name, change, check_uid=False, shape=shape)
        return self._respond(call, form, registry, entry)
