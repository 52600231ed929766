"""Between the two halves of admission: hooks reserve, the kind prepares and validates, admission has the last word.

What a write brings along beyond the object itself is returned, for the same transaction. A write that is refused leaves
nothing reserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.apiserver.admission.plugin import Attributes
from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import AuthorizerChain, Decision, Problem, access_of, forbidden
from setpoint.apiserver.stored_form import put_in_order
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta.errors import BadRequest, InternalError, Invalid
from setpoint.meta.field import Errors, invalid
from setpoint.meta.names import path_segment, path_segment_prefix
from setpoint.meta.objectmeta import (
    validate_object_meta,
    validate_object_meta_update,
    validate_qualified_finalizers,
)
from setpoint.store.interface import Op

if TYPE_CHECKING:
    from setpoint.apiserver.registry import Registry

OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"


async def prepare_create(registry: Registry, call: Call, obj: Obj, attrs: Attributes) -> list[Op]:
    resource, strategy, hooks, meta = registry.resource, registry.strategy, registry.hooks, obj["metadata"]
    _match_namespace(resource, call, meta)
    ctx = call.context()
    if strategy.has_generation:
        meta["generation"] = 1
    operations = await hooks.before_create(call, obj)
    try:
        errs = await call.work(_prepared, registry, obj, ctx)
        if hooks.judges:
            errs[:0] = await hooks.objections(call, obj, None, not errs)
        if not errs:
            # The loosest rule of all, in case the kind's own is looser still.
            errs += [invalid("metadata.name", meta["name"], text) for text in path_segment(meta["name"])]
        if errs:
            raise Invalid.of(registry.error_group, resource.kind, meta.get("name", ""), errs)
        for text in await call.work(strategy.warnings_on_create, obj, ctx):
            call.warn(text)
        attrs.name = meta["name"]
        if call.verb != "create":
            await _may_create(registry.env.authorizer, call)
        await registry.env.admission.validate(attrs)
    except BaseException:
        hooks.release(call, obj)
        raise
    return operations


def _prepared(registry: Registry, obj: Obj, ctx: Context) -> Errors:
    """Let the kind prepare the object for its creation, and return what is wrong with it."""
    strategy, meta = registry.strategy, obj["metadata"]
    strategy.prepare_for_create(obj, ctx)
    errs: Errors = []
    validate_object_meta(meta, registry.resource.namespaced, strategy.validate_name, "metadata", errs)
    if strategy.qualified_finalizers and "finalizers" in meta:
        validate_qualified_finalizers(meta, "metadata", errs)
    strategy.validate(obj, errs, ctx)
    return errs


def _prepared_update(registry: Registry, obj: Obj, old: Obj, strategy: Strategy, ctx: Context) -> Errors:
    """Prepare and validate the new state of an object, and return what is wrong with it."""
    meta, old_meta = obj["metadata"], old["metadata"]
    strategy.prepare_for_update(obj, old, ctx)
    if registry.strategy.has_generation and registry.strategy.is_new_generation(obj, old):
        meta["generation"] = old_meta.get("generation", 0) + 1
    if not meta.get("uid"):
        meta["uid"] = old_meta["uid"]
    _keep(meta, old_meta, "creationTimestamp")
    meta.pop("selfLink", None)
    if old_meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = old_meta["deletionTimestamp"]
    if "deletionGracePeriodSeconds" in old_meta:
        meta.setdefault("deletionGracePeriodSeconds", old_meta["deletionGracePeriodSeconds"])
    errs: Errors = []
    validate_object_meta(meta, registry.resource.namespaced, _path_segment, "metadata", errs)
    validate_object_meta_update(meta, old_meta, "metadata", errs)
    if strategy.qualified_finalizers and "finalizers" in meta:
        validate_qualified_finalizers(meta, "metadata", errs)
    strategy.validate_update(obj, old, errs, ctx)
    return errs


async def prepare_update(
    registry: Registry, call: Call, obj: Obj, old: Obj, strategy: Strategy, attrs: Attributes, admit: bool = True
) -> list[Op]:
    """`strategy`: that of the subresource, if it is written through one."""
    resource, hooks, meta, old_meta = registry.resource, registry.hooks, obj["metadata"], old["metadata"]
    _match_namespace(resource, call, meta)
    ctx = call.context()
    _keep(meta, old_meta, "generation")
    operations = await hooks.before_update(call, obj, old)
    try:
        errs = await call.work(_prepared_update, registry, obj, old, strategy, ctx)
        if hooks.judges:
            errs[:0] = await hooks.objections(call, obj, old, not errs)
        if errs:
            raise Invalid.of(registry.error_group, resource.kind, meta.get("name", ""), errs)
        for text in await call.work(strategy.warnings_on_update, obj, old, ctx):
            call.warn(text)
        put_in_order(obj)
        if admit:
            await registry.env.admission.validate(attrs)
    except BaseException:
        hooks.release(call, obj)
        raise
    return operations


async def _may_create(authorizer: AuthorizerChain, call: Call) -> None:
    """A PUT or an apply of what is not there creates it. Who may only change things must not get to make them."""
    access = access_of(call)._replace(verb="create")
    decision, reason = await authorizer.decide(access)
    if isinstance(reason, Problem):
        raise InternalError.of(reason)
    if decision is not Decision.ALLOW:
        raise forbidden(access, reason)


def _match_namespace(resource: Resource, call: Call, meta: Obj) -> None:
    wanted = call.target.namespace if resource.namespaced else ""
    given = meta.get("namespace", "")
    if not given and wanted:
        meta["namespace"] = wanted
    elif given != wanted:
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        raise BadRequest(OTHER_NAMESPACE)


def _path_segment(name: str, prefix: bool) -> list[str]:
    return path_segment_prefix(name) if prefix else path_segment(name)


def _keep(meta: Obj, old: Obj, name: str) -> None:
    if name in old:
        meta[name] = old[name]
    else:
        meta.pop(name, None)
