"""Finds the handler of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED, page_not_found
from setpoint.apiserver.handlers.create import create
from setpoint.apiserver.handlers.delete import delete, delete_collection
from setpoint.apiserver.handlers.get import get
from setpoint.apiserver.handlers.list import list_
from setpoint.apiserver.handlers.patch import patch
from setpoint.apiserver.handlers.update import update
from setpoint.apiserver.handlers.watch import watch
from setpoint.apiserver.negotiate import PROTOBUF, Form, negotiate
from setpoint.apiserver.non_resource_urls import NonResourceUrls
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import TRANSFORMS
from setpoint.apiserver.request_context import COLLECTIONS, READS, RequestContext, Target, truthy
from setpoint.apiserver.worker import EXPRESSIONS, LARGE
from setpoint.kinds.catalog import Resource
from setpoint.kinds.protobuf_numbers import has_protobuf_form
from setpoint.meta.errors import ApiError, BadRequest, MethodNotAllowed, NotFound
from setpoint.wire.message import Answer, Response

if TYPE_CHECKING:
    from setpoint.apiserver.api_resources import ApiResources
    from setpoint.apiserver.server import ServerParts

Handler = Callable[[RequestContext, Registry, Form], Awaitable[Answer]]

_VERBS: dict[str, Handler] = {
    "get": get,
    "list": list_,
    "watch": watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
_WRITES_SELF = {"get": get, "update": update, "patch": patch}
_ON_COLLECTIONS = frozenset({"list", "watch", "create", "deletecollection"})
_COMPILED = frozenset(
    {
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    }
)
"""Resources whose objects contain schemas or expressions, which take long to compile."""
_PROXIED = frozenset({"attach", "exec", "portforward", "proxy"})
"""Subresources that another server answers, in a form of its own."""
_INTERACTIVE_AGENTS = ("curl", "Wget", "Mozilla/5.0")
_WITHOUT_TABLES = TRANSFORMS - {"Table"}
_DEPRECATED = {
    ("", "endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
}


class Routing:
    def __init__(self, resources: ApiResources, parts: ServerParts) -> None:
        self._resources = resources
        self._aggregation = parts.aggregation
        self._definitions = parts.definitions
        self._non_resource_urls = NonResourceUrls(resources, parts)

    async def answer(self, ctx: RequestContext) -> Answer:
        api, target = self._resources, ctx.target
        if not target.resource:
            return await self._non_resource_urls.answer(ctx)
        if self._aggregation is not None and (target.group, target.version) in self._aggregation.services:
            return await self._aggregation.proxy(ctx)
        key = (target.group, target.version, target.resource)
        resource = api.served.get(key)
        if resource is None or resource.is_custom:
            await self._definitions.await_definition(target)
            resource = api.served.get(key)
            if resource is None:
                return self._unknown(target)
        ctx.resource = resource
        if (resource.group, resource.plural) in _COMPILED and ctx.size and ctx.verb not in READS:
            # Small ones are compiled on the worker thread too: the first one loads the modules that compile it.
            ctx.size = max(ctx.size * EXPRESSIONS, LARGE)
        if resource.is_custom:
            return await self._custom(ctx, resource)
        if resource.namespaced and not target.namespace:
            # Across all namespaces, only reads are possible.
            if target.name:
                raise NotFound.path()
            if not resource.is_stored:
                raise NotFound.path()
            if ctx.verb not in COLLECTIONS:
                raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        elif (
            not resource.namespaced
            and target.namespace
            and (resource.plural != "namespaces" or f"/namespaces/{target.namespace}/namespaces" in target.path)
        ):
            raise NotFound.path()
        if target.subresource:
            return await self._subresource(ctx, resource)
        if target.name and not resource.is_stored:
            raise NotFound.path()
        of_one = bool(target.name) and not target.watch
        if of_one == (ctx.verb in _ON_COLLECTIONS) or ctx.request.method == "HEAD":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        if ctx.verb not in resource.verbs:
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        form = self._form(ctx)
        self._warn_deprecated(ctx, resource)
        computed = api.computed.get((resource.group, resource.plural))
        if computed is not None:
            return await computed(ctx, api.registries.get(key) or _no_registry(), form)
        return await _VERBS[ctx.verb](ctx, api.registries[key], form)

    async def _custom(self, ctx: RequestContext, resource: Resource) -> Answer:
        """Answer a request for a custom kind. Upstream has one handler for them, with other error messages."""
        api, target = self._resources, ctx.target
        if not _in_scope(resource, ctx):
            return page_not_found()
        part = resource.subresource(target.subresource) if target.subresource else None
        if target.subresource and (part is None or target.rest):
            raise NotFound.of(resource.group, resource.plural, target.name)
        self._warn_deprecated(ctx, resource)
        if ctx.verb not in (part.verbs if part is not None else resource.verbs):
            raise MethodNotAllowed(
                f'{ctx.verb} is not supported on resources of kind "{resource}"',
                details={"group": resource.group, "kind": resource.plural},
            )
        if part is not None:
            return await self._subresource(ctx, resource)
        if ctx.verb in ("update", "patch") and not target.name:
            raise BadRequest("name must be provided")
        registry = api.registries[(resource.group, resource.version, resource.plural)]
        return await _VERBS[ctx.verb](ctx, registry, self._form(ctx))

    async def _subresource(self, ctx: RequestContext, resource: Resource) -> Answer:
        api, target = self._resources, ctx.target
        part = resource.subresource(target.subresource)
        if part is None or (target.rest and part.name != "proxy"):
            raise NotFound.path()
        asks_options = part.name == "proxy" and ctx.request.method == "OPTIONS"
        asks_head = part.name != "proxy" and ctx.request.method == "HEAD"
        if (ctx.verb not in part.verbs and not asks_options) or asks_head:
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        registry = api.registries[(resource.group, resource.version, resource.plural)]
        special = api.subresource_handlers.get((resource.group, resource.plural, part.name))
        if special is not None:
            form = Form() if part.name in _PROXIED else self._form(ctx)
            return await special["get" if asks_options else ctx.verb](ctx, registry, form)
        if part.name in registry.strategy.subresources:
            return await _WRITES_SELF[ctx.verb](ctx, registry, self._form(ctx))
        raise ApiError(
            f"{resource.plural}/{part.name} is not available: this server has no nodes to ask",
            code=501,
            reason="NotImplemented",
        )

    def _form(self, ctx: RequestContext) -> Form:
        if "pretty" in ctx.query:
            pretty = truthy(ctx.option("pretty"))
        else:
            # Interactive clients get indented JSON.
            pretty = ctx.request.headers.get("user-agent", "").startswith(_INTERACTIVE_AGENTS)
        accept, resource = ctx.request.headers.get("accept", ""), ctx.resource
        return negotiate(
            accept,
            collection=ctx.verb in COLLECTIONS,
            # Computed resources have no tables.
            transforms=TRANSFORMS if resource is None or resource.is_stored else _WITHOUT_TABLES,
            pretty=pretty,
            protobuf=PROTOBUF in accept and resource is not None and _has_protobuf_form(resource),
        )

    def _unknown(self, target: Target) -> Response:
        if target.group in self._resources.discovery.built_in_groups:
            raise NotFound.path()
        return page_not_found()

    def _warn_deprecated(self, ctx: RequestContext, resource: Resource) -> None:
        text = _DEPRECATED.get((resource.group, resource.plural)) or resource.deprecation
        if text:
            ctx.warn(text)
            if ctx.audit is not None:
                ctx.audit.annotations["k8s.io/deprecated"] = "true"


def _in_scope(resource: Resource, ctx: RequestContext) -> bool:
    """Return whether the path has the scope of the kind; reads may span all namespaces."""
    if not resource.namespaced:
        return not ctx.target.namespace
    return bool(ctx.target.namespace) or ctx.verb in COLLECTIONS


def _no_registry() -> Any:
    """Return None as the registry of a computed resource, whose handler does not use it."""
    return None


def _has_protobuf_form(resource: Resource) -> bool:
    try:
        return has_protobuf_form(resource.type.name)
    except KeyError:
        return False  # metrics have no field table
