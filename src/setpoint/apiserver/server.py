"""The API server: from a request to an answer, through every filter, to the handler of its verb."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import orjson

from setpoint.apiserver.admission.plugin import Chain, Plugin
from setpoint.apiserver.call import Call
from setpoint.apiserver.discovery import AGGREGATED, Discovery, RemoteVersion
from setpoint.apiserver.encoding import ConvertedEncoding, Encoding
from setpoint.apiserver.fairness.fairness import Fairness, Seat
from setpoint.apiserver.fairness.width import width_of
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import AuthorizerChain, Decision, Problem, access_of, forbidden, harmless
from setpoint.apiserver.filters.impersonate import Impersonator
from setpoint.apiserver.filters.inflight import InFlight, Overloaded
from setpoint.apiserver.filters.own_identities import OwnIdentities
from setpoint.apiserver.handlers.create import create
from setpoint.apiserver.handlers.delete import delete, delete_collection
from setpoint.apiserver.handlers.get import get
from setpoint.apiserver.handlers.list import list_
from setpoint.apiserver.handlers.patch import patch
from setpoint.apiserver.handlers.update import update
from setpoint.apiserver.handlers.watch import watch
from setpoint.apiserver.health import Health
from setpoint.apiserver.http.message import (
    Answer,
    ObjectRequest,
    ObjectResponse,
    Request,
    Response,
    UpgradeResponse,
)
from setpoint.apiserver.metrics import Metrics
from setpoint.apiserver.negotiate import JSON, Form, discovery_form, negotiate, require_json
from setpoint.apiserver.node_connection import NodeRoutes
from setpoint.apiserver.registry import Environment, Hooks, Registry
from setpoint.apiserver.rendering import TRANSFORMS, respond, respond_error, respond_status
from setpoint.apiserver.request import Target, parse_path, parse_query, truthy, verb_of
from setpoint.apiserver.version import VERSION
from setpoint.apiserver.warning_headers import warning_headers
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import (
    ApiError,
    BadRequest,
    InternalError,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestTooLarge,
)
from setpoint.meta.goformat import quote
from setpoint.meta.remember import remembered
from setpoint.store.interface import Store, StoreError

if TYPE_CHECKING:
    from setpoint.apiserver.aggregation.routing import Aggregation
    from setpoint.apiserver.audit.auditor import Auditor

log = logging.getLogger("setpoint.apiserver")

Handler = Callable[[Call, Registry, Form], Awaitable[Answer]]
PathHandler = Callable[[Call], Awaitable[Answer]]

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
_COLLECTIONS = frozenset({"list", "watch"})
_ON_COLLECTIONS = frozenset({"list", "watch", "create", "deletecollection"})
_LONG_RUNNING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
"""What may last as long as it likes takes nobody's turn."""
_PASSED_ON = frozenset({"attach", "exec", "portforward", "proxy"})
"""Another one answers, in whatever form that one likes."""
_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_WITHOUT_TABLES = TRANSFORMS - {"Table"}
_PAGE_NOT_FOUND = b"404 page not found\n"
_PLAIN = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]


@dataclass(slots=True)
class Options:
    """How a server is put together; `cluster` fills it from flags."""

    authenticator: AuthenticatorChain
    authorizer: AuthorizerChain
    plugins: list[Plugin] = field(default_factory=list)
    hooks: dict[tuple[str, str], Hooks] = field(default_factory=dict)
    address: str = "127.0.0.1:6443"
    max_reads: int = 400
    max_writes: int = 200


class ApiServer:
    def __init__(self, store: Store, clock: Clock, ids: Ids, options: Options) -> None:
        self.store = store
        self.clock = clock
        self.ids = ids
        self.authenticator = options.authenticator
        self.authorizer = options.authorizer
        self.own_identities = OwnIdentities()
        self._impersonator = Impersonator()
        self.env = Environment(store, clock, ids, Chain(options.plugins), options.hooks)
        self.metrics = Metrics()
        self.auditor: Auditor | None = None
        self.fairness: Fairness | None = None
        """Who waits for whom; without it, `in_flight` bounds what is done at once."""
        self.in_flight = InFlight(options.max_reads, options.max_writes)
        self.caches: dict[str, ResourceCache] = {}
        self.registries: dict[tuple[str, str, str], Registry] = {}
        self.resources: dict[tuple[str, str, str], Resource] = {}
        self.discovery = Discovery((), options.address)
        self.address = options.address
        self.health = Health({})
        self.subresources: dict[tuple[str, str, str], dict[str, Handler]] = {}
        """Handlers by (group, plural, subresource) and verb, for those that do not just write their own object."""
        self.reviews: dict[tuple[str, str], Handler] = {}
        """Resources that are answered on the spot, by (group, plural)."""
        self.paths: dict[str, PathHandler] = {}
        """Documents outside the API, by path (a trailing slash: everything below)."""
        self.nodes = NodeRoutes()
        self.aggregation: Aggregation | None = None
        self.remote_versions: list[RemoteVersion] = []
        """Group versions that other servers answer, as discovery shows them."""
        self.probe: Callable[[Any, Any], Awaitable[str]] | None = None
        """Asks the server behind an APIService whether it is there."""
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What is to run as long as the server does."""
        self.secret_token_used: Callable[[str, str], None] = lambda namespace, name: None
        """Hears, by namespace and name, of the Secrets whose tokens are used."""
        self.ready = False

    # -- putting together -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        for resource in RESOURCES:
            await self.serve(resource)
        for hooks in list(self.env.hooks.values()):
            await hooks.start()
        self.announce()
        self.ready = True

    async def serve(self, resource: Resource, encoding: Encoding | None = None, since: int = 0) -> None:
        """Begin to serve a resource; `announce` makes it appear in discovery."""
        key = (resource.group, resource.version, resource.plural)
        self.resources[key] = resource
        if not resource.is_stored:
            return
        cache = self.caches.get(resource.storage_prefix)
        if cache is None:
            cache = self.caches[resource.storage_prefix] = ResourceCache(
                resource.storage_prefix, self.store, resource.namespaced
            )
            await cache.start(since)
        self.registries[key] = Registry(resource, encoding or _encoding(resource), cache, self.env)

    async def replace(
        self, stored: Resource, resources: Mapping[str, tuple[Resource, Encoding]], since: int = 0
    ) -> ResourceCache | None:
        """Serve a custom kind in these versions, and in no others that it was served in before, with a cache of their
        own. The cache that served it until now is returned: whoever still uses it should get a moment to finish."""
        before = self.caches.get(stored.storage_prefix)
        cache = ResourceCache(stored.storage_prefix, self.store, stored.namespaced)
        await cache.start(since or (before.since if before is not None else 0))
        self.withdraw(stored.group, stored.plural)
        self.caches[stored.storage_prefix] = cache
        for version, (resource, encoding) in resources.items():
            key = (resource.group, version, resource.plural)
            self.resources[key] = resource
            self.registries[key] = Registry(resource, encoding, cache, self.env)
        return before

    def withdraw(self, group: str, plural: str) -> ResourceCache | None:
        """Serve a custom kind no more."""
        for key in [key for key in self.resources if (key[0], key[2]) == (group, plural)]:
            del self.resources[key], self.registries[key]
        return self.caches.pop(f"{group}/{plural}/", None)

    def announce(self) -> None:
        self.discovery = Discovery(self.resources.values(), self.address, self.remote_versions)

    async def stop(self) -> None:
        self.ready = False
        for hooks in self.env.hooks.values():
            hooks.stop()
        for cache in self.caches.values():
            cache.stop()

    def registry(self, group: str, plural: str, version: str = "") -> Registry:
        """For those within the server who need one; any version if none is named."""
        for (of_group, of_version, of_plural), registry in self.registries.items():
            if of_group == group and of_plural == plural and version in ("", of_version):
                return registry
        raise KeyError(f"{plural}.{group}")

    # -- serving --------------------------------------------------------------------------------------------------

    async def handle(self, request: Request) -> Answer:
        """Every request, from the wire or from within this process, comes through here."""
        started = self.clock.monotonic()
        target = parse_path(request.path)
        query = parse_query(request.query)
        verb = verb_of(request.method, target, query)
        call = Call(request, target, query, verb, _NOBODY, self.clock.now())
        fairness = self.fairness
        seat: Seat | None = None
        counted: bool | None = None
        flow: tuple[tuple[str, str], ...] = ()
        auditor, known = self.auditor, False
        try:
            user = self.authenticator.authenticate(request, call.warnings)
            if not isinstance(user, UserInfo):
                user = await user
            known = True
            if auditor is not None:
                call.audit = await auditor.received(call, user)
            user = self._impersonator.user_for(call, user, self.authorizer)
            call.user = user if isinstance(user, UserInfo) else await user
            access = access_of(call)
            if fairness is not None and target.subresource not in _LONG_RUNNING:
                own = fairness.flow(access)
                flow = own.headers
                width = width_of(call, access, own.level.widest, self.caches) if verb in _COLLECTIONS else 1
                taken = fairness.enter(own, started, width, outside=not isinstance(request, ObjectRequest))
                if taken.waiting is not None:
                    await fairness.seated(taken)
                seat = taken
            counted = self.in_flight.enter(verb)
            ruling = self.authorizer.authorize(access)
            if not isinstance(ruling, tuple):
                ruling = await ruling
            if call.audit is not None:
                call.audit.decided(*ruling)
            if ruling[0] is Decision.ALLOW:
                answer = await self._dispatch(call)
            elif isinstance(ruling[1], Problem):
                answer = _undecided(request, ruling[1])
            else:
                raise forbidden(access, ruling[1])
        except ApiError as error:
            if auditor is not None and not known:
                call.audit = auditor.unauthenticated(call)
            answer = _refusal(call, error)
        except StoreError as error:
            log.error("store: %s", error)
            answer = _refusal(call, InternalError.of(str(error)))
        except BaseException as error:
            if call.audit is not None:
                await call.audit.broke_off(error)
            raise
        finally:
            if seat is not None:
                seat.leave()
            self.in_flight.leave(counted)
        if isinstance(answer, ObjectResponse):
            if call.warnings:
                answer.headers += warning_headers(call.warnings)
        elif not isinstance(answer, UpgradeResponse):
            answer.headers.extend(flow)
            self._finish(call, answer)
        if call.audit is not None:
            answer = await call.audit.answered(call, answer)
        status = 101 if isinstance(answer, UpgradeResponse) else answer.status
        self.metrics.request(call, status, self.clock.monotonic() - started)
        return answer

    def unexpected(self, request: Request | None, status: int, text: str) -> Response:
        """What the wire answers when it must answer by itself."""
        if status == 413:
            return respond_status(Form(), RequestTooLarge(text))
        error = ApiError(text, code=status, reason="InternalError" if status >= 500 else "BadRequest")
        return respond_status(Form(), error)

    def _finish(self, call: Call, answer: Any) -> None:
        headers = answer.headers
        headers.append(("Audit-Id", call.audit_id or call.request.headers.get("audit-id") or self.ids.uid()))
        if call.resource is not None or not any(name == "Cache-Control" for name, _ in headers):
            headers.append(("Cache-Control", "no-cache, private"))
        if answer.status == 403:
            headers.append(("X-Content-Type-Options", "nosniff"))
        if call.warnings:
            headers += warning_headers(call.warnings)

    async def _dispatch(self, call: Call) -> Answer:
        target = call.target
        if not target.resource:
            return await self._path(call)
        if self.aggregation is not None and (target.group, target.version) in self.aggregation.services:
            return await self.aggregation.proxy(call)
        key = (target.group, target.version, target.resource)
        resource = self.resources.get(key)
        if resource is None:
            return self._unknown(target)
        call.resource = resource
        if resource.is_custom:
            return await self._custom(call, resource)
        if resource.namespaced and not target.namespace:
            # All namespaces at once can be read, nothing else.
            if target.name:
                raise NotFound.path()
            if not resource.is_stored:
                raise NotFound.path()
            if call.verb not in _COLLECTIONS:
                raise MethodNotAllowed(_NOT_ALLOWED, details={})
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
            raise MethodNotAllowed(_NOT_ALLOWED, details={})
        if call.verb not in resource.verbs:
            raise MethodNotAllowed(_NOT_ALLOWED, details={})
        form = self._form(call)
        self._warn_deprecated(call, resource)
        review = self.reviews.get((resource.group, resource.plural))
        if review is not None:
            return await review(call, self.registries.get(key) or _none(), form)
        return await _VERBS[call.verb](call, self.registries[key], form)

    async def _custom(self, call: Call, resource: Resource) -> Answer:
        """Custom kinds have no routes upstream: one handler looks at what the request says, and says other things."""
        target = call.target
        if not _in_scope(resource, call):
            return Response(404, _PAGE_NOT_FOUND, list(_PLAIN))
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
        registry = self.registries[(resource.group, resource.version, resource.plural)]
        return await _VERBS[call.verb](call, registry, self._form(call))

    async def _subresource(self, call: Call, resource: Resource) -> Answer:
        target = call.target
        part = resource.subresource(target.subresource)
        if part is None or (target.rest and part.name != "proxy"):
            raise NotFound.path()
        asks_options = part.name == "proxy" and call.request.method == "OPTIONS"
        if call.verb not in part.verbs and not asks_options:
            raise MethodNotAllowed(_NOT_ALLOWED, details={})
        registry = self.registries[(resource.group, resource.version, resource.plural)]
        special = self.subresources.get((resource.group, resource.plural, part.name))
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
        return negotiate(
            call.request.headers.get("accept", ""),
            collection=call.verb in _COLLECTIONS,
            # What is answered on the spot was never meant to be a row.
            transforms=TRANSFORMS if call.resource is None or call.resource.is_stored else _WITHOUT_TABLES,
            pretty=pretty,
        )

    def _unknown(self, target: Target) -> Response:
        if target.group in self.discovery.built_in_groups:
            raise NotFound.path()
        return Response(404, _PAGE_NOT_FOUND, list(_PLAIN))

    def _warn_deprecated(self, call: Call, resource: Resource) -> None:
        text = _DEPRECATED.get((resource.group, resource.plural)) or resource.deprecation
        if text:
            call.warn(text)
            if call.audit is not None:
                call.audit.annotations["k8s.io/deprecated"] = "true"

    # -- outside the API ------------------------------------------------------------------------------------------

    async def _path(self, call: Call) -> Answer:
        path = call.target.path
        trimmed = path.rstrip("/") or "/"
        root = trimmed.split("/")[1]
        if root in ("api", "apis"):
            parts = trimmed.split("/")
            if self.aggregation is not None and len(parts) == 4 and (parts[2], parts[3]) in self.aggregation.services:
                return await self.aggregation.proxy_document(call, (parts[2], parts[3]))
            return self._discovery(call, trimmed)
        healthy = self.health.answer(trimmed, call.query)
        if healthy is not None:
            return healthy
        if trimmed == "/version":
            require_json(call.request.headers.get("accept", ""))
            return self._document(call, Form(), orjson.dumps(VERSION))
        if path == "/":
            paths = sorted({*self.discovery.paths(), *self.health.paths(), "/version", "/metrics", *self.paths})
            return Response(200, orjson.dumps({"paths": paths}, option=orjson.OPT_INDENT_2), [("Content-Type", JSON)])
        handler = self.paths.get(trimmed)
        if handler is None:
            for prefix, candidate in self.paths.items():
                if prefix.endswith("/") and path.startswith(prefix):
                    handler = candidate
                    break
        if handler is not None:
            return await handler(call)
        return Response(404, _PAGE_NOT_FOUND, list(_PLAIN))

    def _document(self, call: Call, form: Form, body: bytes) -> Response:
        if call.request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(_NOT_ALLOWED, details={})
        return respond(form, body)

    def _discovery(self, call: Call, path: str) -> Response:
        accept = call.request.headers.get("accept", "")
        if path in ("/api", "/apis"):
            wanted = _discovery_form(accept)
            if wanted == "aggregated":
                body, etag = self.discovery.aggregated(path == "/api")
                headers = [
                    ("Content-Type", AGGREGATED),
                    ("Etag", etag),
                    ("Vary", "Accept"),
                    ("Cache-Control", "public"),
                ]
                if call.request.headers.get("if-none-match") == etag:
                    return Response(304, b"", headers)
                return Response(200, body, headers)
        document = self.discovery.document(path)
        if document is None:
            parts = path.strip("/").split("/")
            if len(parts) > 1 and (parts[0] == "api" or parts[1] in self.discovery.built_in_groups):
                raise NotFound.path()
            return Response(404, _PAGE_NOT_FOUND, list(_PLAIN))
        routed = path == "/api" or path.startswith("/api/") or path.count("/") > 2  # the others have their own handlers
        form = discovery_form(accept, routed=routed)
        if path.count("/") > 1 or path == "/api":
            return self._document(call, form, document)
        return respond(form, document)


_NOBODY = UserInfo()
_NOT_ALLOWED = "the server does not allow this method on the requested resource"
_DEPRECATED = {
    ("", "endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
}


def _in_scope(resource: Resource, call: Call) -> bool:
    """Custom kinds are simply not there under a path of the other scope; all namespaces at once can be read."""
    if not resource.namespaced:
        return not call.target.namespace
    return bool(call.target.namespace) or call.verb in _COLLECTIONS


def _none() -> Any:
    """Reviews have no registry."""
    return None


def _refusal(call: Call, error: ApiError) -> Answer:
    if isinstance(error, Overloaded) and not isinstance(call.request, ObjectRequest):
        return Response(429, f"{error}\n".encode(), [*_PLAIN, ("Retry-After", str(error.retry_after))])
    try:
        # A client that wants its objects in another shape did not say in which form it wants to hear of failures.
        form: Form | None = negotiate(call.request.headers.get("accept", ""), collection=False, transforms=frozenset())
    except NotAcceptable:
        form = None
    if call.audit is not None:
        call.audit.refused(error, negotiated=form is not None)
    return respond_error(call, Form(form.media_type) if form is not None else Form(), error)


def _undecided(request: Request, problem: Problem) -> Response:
    log.warning("authorization: %s", problem)
    uri = f"{request.path}?{request.query}" if request.query else request.path
    text = harmless(f"Internal Server Error: {quote(uri)}: {problem}")
    return Response(500, f"{text}\n".encode(), list(_PLAIN))


@remembered(maxsize=64)
def _discovery_form(accept: str) -> str:
    """`aggregated` or `legacy`, whichever comes first in what the client accepts."""
    for part in accept.split(","):
        pieces = [piece.strip() for piece in part.split(";")]
        params = dict(piece.split("=", 1) for piece in pieces[1:] if "=" in piece)
        if params.get("as") == "APIGroupDiscoveryList":
            if pieces[0] == JSON and params.get("g") == "apidiscovery.k8s.io" and params.get("v") == "v2":
                return "aggregated"
            continue
        if pieces[0] in ("", "*/*", JSON, "application/yaml", "application/vnd.kubernetes.protobuf"):
            break
    return "legacy"


# Where the conversions from and to the stored version live, imported with the first object that needs them.
_CONVERSIONS = {
    ("events.k8s.io", "v1"): ("setpoint.kinds.events.event", "from_core", "to_core"),
    ("autoscaling", "v1"): ("setpoint.kinds.autoscaling.horizontalpodautoscaler", "to_v1", "from_v1"),
}


def _encoding(resource: Resource) -> Encoding:
    if resource.storage == (resource.group, resource.version):
        return Encoding(resource)
    module, from_storage, to_storage = _CONVERSIONS[(resource.group, resource.version)]

    def conversion(name: str) -> Callable[[Any], Any]:
        return lambda obj: getattr(import_module(module), name)(obj)

    stored_as = next(r for r in RESOURCES if (r.group, r.version, r.kind) == (*resource.storage, resource.kind))
    return ConvertedEncoding(resource, stored_as, conversion(from_storage), conversion(to_storage))
