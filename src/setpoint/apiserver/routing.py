"""From a request to the handler of its verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.call import Call
from setpoint.apiserver.documents import Documents
from setpoint.apiserver.handlers.create import create
from setpoint.apiserver.handlers.delete import delete, delete_collection
from setpoint.apiserver.handlers.get import get
from setpoint.apiserver.handlers.list import list_
from setpoint.apiserver.handlers.patch import patch
from setpoint.apiserver.handlers.update import update
from setpoint.apiserver.handlers.watch import watch
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.negotiate import PROTOBUF, Form, negotiate
from setpoint.apiserver.refusals import NOT_ALLOWED, page_not_found
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import TRANSFORMS
from setpoint.apiserver.request import COLLECTIONS, Target, truthy
from setpoint.apiserver.worker import EXPRESSIONS
from setpoint.kinds.catalog import Resource
from setpoint.kinds.protobuf_numbers import has_protobuf_form
from setpoint.meta.errors import ApiError, BadRequest, MethodNotAllowed, NotFound

if TYPE_CHECKING:
    from setpoint.apiserver.server import ApiServer

Handler = Callable[[Call, Registry, Form], Awaitable[Answer]]

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
_COMPILED = frozenset({
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
})  # fmt: skip
"""Resources whose objects hold schemas and expressions."""
_PASSED_ON = frozenset({"attach", "exec", "portforward", "proxy"})
"""Another one answers, in whatever form that one likes."""
_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_WITHOUT_TABLES = TRANSFORMS - {"Table"}
_DEPRECATED = {
    ("", "endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
}


class Routing:
    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._documents = Documents(api)

    async def answer(self, call: Call) -> Answer:
        api, target = self._api, call.target
        if not target.resource:
            return await self._documents.answer(call)
        if api.aggregation is not None and (target.group, target.version) in api.aggregation.services:
            return await api.aggregation.proxy(call)
        key = (target.group, target.version, target.resource)
        resource = api.resources.get(key)
        if resource is None:
            await api.await_definition(target)
            resource = api.resources.get(key)
            if resource is None:
                return self._unknown(target)
        call.resource = resource
        if (resource.group, resource.plural) in _COMPILED:
            call.size *= EXPRESSIONS
        if resource.is_custom:
            return await self._custom(call, resource)
        if resource.namespaced and not target.namespace:
            # All namespaces at once can be read, nothing else.
            if target.name:
                raise NotFound.path()
            if not resource.is_stored:
                raise NotFound.path()
            if call.verb not in COLLECTIONS:
                raise MethodNotAllowed(NOT_ALLOWED, details={})
        elif (
            not resource.namespaced
            and target.namespace
            and (resource.plural != "namespaces" or f"/namespaces/{target.namespace}/namespaces" in target.path)
        ):
            raise NotFound.path()
        if target.subresource:
            return await self._subresource(call, resource)
        if target.name and not resource.is_stored:
            raise NotFound.path()
        of_one = bool(target.name) and not target.watch
        if of_one == (call.verb in _ON_COLLECTIONS) or call.request.method == "HEAD":
            raise MethodNotAllowed(NOT_ALLOWED, details={})
        if call.verb not in resource.verbs:
            raise MethodNotAllowed(NOT_ALLOWED, details={})
        form = self._form(call)
        self._warn_deprecated(call, resource)
        review = api.reviews.get((resource.group, resource.plural))
        if review is not None:
            return await review(call, api.registries.get(key) or _none(), form)
        return await _VERBS[call.verb](call, api.registries[key], form)

    async def _custom(self, call: Call, resource: Resource) -> Answer:
        """Custom kinds have no routes upstream: one handler looks at what the request says, and says other things."""
        api, target = self._api, call.target
        if not _in_scope(resource, call):
            return page_not_found()
        part = resource.subresource(target.subresource) if target.subresource else None
        if target.subresource and (part is None or target.rest):
            raise NotFound.of(resource.group, resource.plural, target.name)
        self._warn_deprecated(call, resource)
        if call.verb not in (part.verbs if part is not None else resource.verbs):
            raise MethodNotAllowed(
                f'{call.verb} is not supported on resources of kind "{resource}"',
                details={"group": resource.group, "kind": resource.plural},
            )
        if part is not None:
            return await self._subresource(call, resource)
        if call.verb in ("update", "patch") and not target.name:
            raise BadRequest("name must be provided")
        registry = api.registries[(resource.group, resource.version, resource.plural)]
        return await _VERBS[call.verb](call, registry, self._form(call))

    async def _subresource(self, call: Call, resource: Resource) -> Answer:
        api, target = self._api, call.target
        part = resource.subresource(target.subresource)
        if part is None or (target.rest and part.name != "proxy"):
            raise NotFound.path()
        asks_options = part.name == "proxy" and call.request.method == "OPTIONS"
        asks_head = part.name != "proxy" and call.request.method == "HEAD"
        if (call.verb not in part.verbs and not asks_options) or asks_head:
            raise MethodNotAllowed(NOT_ALLOWED, details={})
        registry = api.registries[(resource.group, resource.version, resource.plural)]
        special = api.subresources.get((resource.group, resource.plural, part.name))
        if special is not None:
            form = Form() if part.name in _PASSED_ON else self._form(call)
            return await special["get" if asks_options else call.verb](call, registry, form)
        if part.name in registry.strategy.subresources:
            return await _WRITES_SELF[call.verb](call, registry, self._form(call))
        raise ApiError(
            f"{resource.plural}/{part.name} is not available: this server has no nodes to ask",
            code=501,
            reason="NotImplemented",
        )

    def _form(self, call: Call) -> Form:
        if "pretty" in call.query:
            pretty = truthy(call.option("pretty"))
        else:
            # People who look at the answer themselves get it indented.
            pretty = call.request.headers.get("user-agent", "").startswith(_READ_BY_PEOPLE)
        accept, resource = call.request.headers.get("accept", ""), call.resource
        return negotiate(
            accept,
            collection=call.verb in COLLECTIONS,
            # What is answered on the spot was never meant to be a row.
            transforms=TRANSFORMS if resource is None or resource.is_stored else _WITHOUT_TABLES,
            pretty=pretty,
            protobuf=PROTOBUF in accept and resource is not None and _has_protobuf_form(resource),
        )

    def _unknown(self, target: Target) -> Response:
        api = self._api
        if target.group in api.discovery.built_in_groups:
            raise NotFound.path()
        return page_not_found()

    def _warn_deprecated(self, call: Call, resource: Resource) -> None:
        text = _DEPRECATED.get((resource.group, resource.plural)) or resource.deprecation
        if text:
            call.warn(text)
            if call.audit is not None:
                call.audit.annotations["k8s.io/deprecated"] = "true"


def _in_scope(resource: Resource, call: Call) -> bool:
    """Custom kinds are simply not there under a path of the other scope; all namespaces at once can be read."""
    if not resource.namespaced:
        return not call.target.namespace
    return bool(call.target.namespace) or call.verb in COLLECTIONS


def _none() -> Any:
    """Reviews have no registry."""
    return None


def _has_protobuf_form(resource: Resource) -> bool:
    try:
        return has_protobuf_form(resource.type.name)
    except KeyError:
        return False  # metrics have no field table
