"""The API server: from a request to an answer, through every filter, to the handler of its verb."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.admission.plugin import Chain, Plugin
from setpoint.apiserver.call import Call, names_revision
from setpoint.apiserver.discovery import Discovery, RemoteVersion
from setpoint.apiserver.encoding import Encoding, encoding_of
from setpoint.apiserver.fairness.fairness import Fairness
from setpoint.apiserver.fairness.width import width_of
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain, Decision, Problem, access_of, forbidden
from setpoint.apiserver.filters.deadline import LONG_RUNNING, check_timeout
from setpoint.apiserver.filters.impersonate import Impersonator
from setpoint.apiserver.filters.inflight import InFlight
from setpoint.apiserver.filters.own_identities import OwnIdentities
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
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.node_connection import NodeRoutes
from setpoint.apiserver.post_start import SERVED, PostStart
from setpoint.apiserver.refusals import refusal, store_refusal, unavailable, undecided, unreadable
from setpoint.apiserver.registry import Environment, Registry
from setpoint.apiserver.rendering import respond_status
from setpoint.apiserver.request import COLLECTIONS, UNREADABLE, Target, parse_path, parse_query, verb_of
from setpoint.apiserver.routing import Handler, Routing
from setpoint.apiserver.turns import Turns
from setpoint.apiserver.warning_headers import warning_headers
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.apiserver.worker import Worker
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError, RequestTooLarge
from setpoint.meta.tracebacks import drop_traceback
from setpoint.store.interface import Store, StoreError, Unavailable

if TYPE_CHECKING:
    from setpoint.apiserver.aggregation.routing import Aggregation
    from setpoint.apiserver.audit.auditor import Auditor

log = logging.getLogger("setpoint.apiserver")

PathHandler = Callable[[Call], Awaitable[Answer]]


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
        self.turns = Turns(clock)
        self.worker = Worker()
        self.ids = ids
        self.authenticator = options.authenticator
        self.authorizer = options.authorizer
        self.own_identities = OwnIdentities()
        self._impersonator = Impersonator()
        self._routing = Routing(self)
        self.env = Environment(store, clock, self.turns, ids, Chain(options.plugins), options.authorizer, options.hooks)
        self.metrics = Metrics()
        self.auditor: Auditor | None = None
        self.fairness: Fairness | None = None
        """Who waits for whom; without it, `in_flight` bounds what is done at once."""
        self.in_flight = InFlight(options.max_reads, options.max_writes)
        self.caches: dict[str, ResourceCache] = {}
        self.registries: dict[tuple[str, str, str], Registry] = {}
        self._of_built_in: dict[tuple[str, str], Registry] = {}
        """Of the version that is served first; these never go."""
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
        self.unlisted: dict[str, PathHandler] = {}
        """The same, for those who know that they are there."""
        self.nodes = NodeRoutes()
        self.aggregation: Aggregation | None = None
        self.remote_versions: list[RemoteVersion] = []
        """Group versions that other servers answer, as discovery shows them."""
        self.probe: Callable[[Any, Any], Awaitable[str]] | None = None
        """Asks the server behind an APIService whether it is there."""
        self.await_definition: Callable[[Target], Awaitable[None]] = _nothing_to_await
        """Returns when a custom resource that should be served here is, or after a short time."""
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What is to run as long as the server does."""
        self.secret_token_used: Callable[[str, str], None] = lambda namespace, name: None
        """Hears, by namespace and name, of the Secrets whose tokens are used."""
        self.ready = False
        self.stopping = False
        self.post_start = PostStart()

    # -- putting together -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.store.sync()
        for resource in RESOURCES:
            await self.serve(resource)
        for hooks in list(self.env.hooks.values()):
            await hooks.start()
        self.announce()
        self.ready = True
        self.post_start.finish(*SERVED)

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
        made = self.registries[key] = Registry(resource, encoding or encoding_of(resource), cache, self.env)
        if not resource.is_custom:
            self._of_built_in.setdefault((resource.group, resource.plural), made)

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
        self.ready, self.stopping = False, True
        for hooks in self.env.hooks.values():
            hooks.stop()
        for cache in self.caches.values():
            cache.stop()

    def registry(self, group: str, plural: str) -> Registry:
        """For those within the server who need one, in whichever version."""
        found = self._of_built_in.get((group, plural))
        if found is not None:
            return found
        for (of_group, _, of_plural), registry in self.registries.items():
            if (of_group, of_plural) == (group, plural):
                return registry
        raise KeyError(f"{plural}.{group}")

    def count(self) -> int:
        """Return how many objects there are, of all resources."""
        return sum(map(len, self.caches.values()))

    # -- serving --------------------------------------------------------------------------------------------------

    async def handle(self, request: Request) -> Answer:
        """Every request, from the wire or from within this process, comes through here."""
        started = self.clock.monotonic()
        target = parse_path(request.path)
        if target is UNREADABLE:
            return unreadable()
        query = parse_query(request.query)
        call = Call(request, target, query, verb_of(request.method, target, query), _NOBODY, self.clock.now())
        call.worker = self.worker
        if not isinstance(request, ObjectRequest):
            call.size = len(request.body) + len(request.query)
        try:
            answer = await self._filtered(call, started)
        except ApiError as error:
            if self.auditor is not None and call.user is _NOBODY:
                call.audit = self.auditor.unauthenticated(call)
            answer = refusal(call, error)
            drop_traceback(error)
        except StoreError as error:
            log.error("store: %s", error)
            answer = refusal(call, store_refusal(call, error))
            drop_traceback(error)
        except BaseException as error:
            if call.audit is not None:
                await call.audit.broke_off(error)
            raise
        if isinstance(answer, ObjectResponse):
            if call.warnings:
                answer.headers += warning_headers(call.warnings)
        elif not isinstance(answer, UpgradeResponse):
            self._finish(call, answer)
        if call.audit is not None:
            answer = await call.audit.answered(call, answer)
        status = 101 if isinstance(answer, UpgradeResponse) else answer.status
        self.metrics.request(call, status, self.clock.monotonic() - started)
        return answer

    async def _filtered(self, call: Call, started: float) -> Answer:
        """Who is it, and is it their turn."""
        if "timeout" in call.query:
            check_timeout(call)
        if call.target.resource and not (call.query and names_revision(call)):
            # Reads that name a revision are content with any state from there on. All others, and who may do what, go
            # by the state at their arrival.
            try:
                await self.store.sync()
            except Unavailable as error:
                raise unavailable(error) from None
        user = self.authenticator.authenticate(call.request, call.warnings)
        call.user = user if isinstance(user, UserInfo) else await user
        if self.auditor is not None:
            call.audit = await self.auditor.received(call, call.user)
        user = self._impersonator.user_for(call, call.user, self.authorizer)
        call.user = user if isinstance(user, UserInfo) else await user
        access = access_of(call)
        fairness = self.fairness
        if fairness is None or call.target.subresource in LONG_RUNNING:
            return await self._authorized(call, access)
        flow = fairness.flow(access)
        call.flow = flow.headers
        width = width_of(call, access, flow.level.widest, self.caches) if call.verb in COLLECTIONS else 1
        outside = not isinstance(call.request, ObjectRequest)
        seat = fairness.enter(flow, call, access, started, width, outside=outside)
        if seat.began is None:
            await fairness.seated(seat)
        try:
            return await self._authorized(call, access)
        finally:
            seat.leave()

    async def _authorized(self, call: Call, access: Access) -> Answer:
        """May they; and then it is done."""
        counted = self.in_flight.enter(call.verb)
        try:
            ruling = self.authorizer.authorize(access)
            decision, reason = ruling if isinstance(ruling, tuple) else await ruling
            if call.audit is not None:
                call.audit.decided(decision, reason)
            if decision is Decision.ALLOW:
                return await self._routing.answer(call)
            if isinstance(reason, Problem):
                return undecided(call.request, reason)
            raise forbidden(access, reason)
        finally:
            self.in_flight.leave(counted)

    def unexpected(self, request: Request | None, status: int, text: str) -> Response:
        """What the wire answers when it must answer by itself."""
        if status == 413:
            return respond_status(Form(), RequestTooLarge(text))
        error = ApiError(text, code=status, reason="InternalError" if status >= 500 else "BadRequest")
        return respond_status(Form(), error)

    def _finish(self, call: Call, answer: Any) -> None:
        headers = answer.headers
        headers.extend(call.flow)
        headers.append(("Audit-Id", call.audit_id or call.request.headers.get("audit-id") or self.ids.uid()))
        if call.resource is not None or not any(name == "Cache-Control" for name, _ in headers):
            headers.append(("Cache-Control", "no-cache, private"))
        if answer.status == 403:
            headers.append(("X-Content-Type-Options", "nosniff"))
        if call.warnings:
            headers += warning_headers(call.warnings)


async def _nothing_to_await(target: Target) -> None:
    """There are no custom resources."""


_NOBODY = UserInfo()
