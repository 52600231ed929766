"""The API server: passes every request through the filters to the handler of its verb."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.admission.plugin import Chain
from setpoint.apiserver.api_resources import DEFAULT_ADDRESS, ApiResources
from setpoint.apiserver.error_responses import (
    authorization_failed,
    error_response,
    invalid_path,
    store_error,
    store_unavailable,
)
from setpoint.apiserver.fairness.fairness import Fairness, estimated_seats
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import (
    Access,
    AuthorizerChain,
    Decision,
    Problem,
    access_of,
    forbidden,
)
from setpoint.apiserver.filters.impersonate import Impersonator
from setpoint.apiserver.filters.rbac import ComponentAuthorizer
from setpoint.apiserver.filters.request_limits import LONG_RUNNING, InFlight, check_timeout
from setpoint.apiserver.health import HEALTH_PATHS, Health
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.node_connection import NodeRoutes
from setpoint.apiserver.registry import Environment, completes_within
from setpoint.apiserver.rendering import respond_status
from setpoint.apiserver.request_context import (
    COLLECTIONS,
    INVALID_PATH,
    RequestContext,
    names_revision,
    parse_path,
    parse_query,
    request_size,
    verb_of,
)
from setpoint.apiserver.routing import Handler, Routing
from setpoint.apiserver.transactions import Transactions
from setpoint.apiserver.worker import LARGE
from setpoint.apiserver.write_hooks import Hooks
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import ApiError, RequestTooLarge
from setpoint.meta.tracebacks import drop_traceback, release_frames, release_parts
from setpoint.store.interface import StoreError, Unavailable
from setpoint.wire.message import (
    Answer,
    ObjectRequest,
    ObjectResponse,
    Request,
    Response,
    UpgradeResponse,
)

if TYPE_CHECKING:
    from setpoint.apiserver.aggregation import Aggregation
    from setpoint.apiserver.allocation.service_hooks import ServiceHooks
    from setpoint.apiserver.audit.auditor import Auditor
    from setpoint.apiserver.custom.definitions import Definitions
    from setpoint.apiserver.disturbance import Disturbance
    from setpoint.apiserver.tracing import Tracer
    from setpoint.apiserver.upkeep.loop import KeyedLoop
    from setpoint.apiserver.watchers import Watchers


_MAX_TOTAL, _MAX_EACH = 4096, 256
"""Maximum number of characters of all warnings; if it is exceeded, of each warning."""
_NOT_IN_A_HEADER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_QUOTED = str.maketrans({"\\": "\\\\", '"': '\\"'})


def warning_headers(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return a header for each text. Texts with control characters are omitted, and the total length is limited."""
    shown = [text for text in texts if text and not _NOT_IN_A_HEADER.search(text)]
    if sum(map(len, shown)) > _MAX_TOTAL:
        shown, length = [text[:_MAX_EACH] for text in shown], 0
        for at, text in enumerate(shown):
            if length >= _MAX_TOTAL:
                del shown[at:]
                break
            length += len(text)
    return [("Warning", f'299 - "{text.translate(_QUOTED)}"') for text in shown]


log = logging.getLogger("setpoint.apiserver")

_MAX_SYNC_WAIT = 1.0
"""Maximum number of seconds that a request waits for the store if it can be answered without it."""
_DOCUMENTS = ("/api", "/openapi")
"""Paths of documents that describe all resources."""

PathHandler = Callable[[RequestContext], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """The parts of an API server besides its resources. The composition root builds it from the configuration."""

    authenticator: AuthenticatorChain
    authorizer: AuthorizerChain
    own_identities: ComponentAuthorizer
    """The rights of the components of this process; the last of the authorizers."""
    admission: Chain
    health: Health
    in_flight: InFlight
    """Limits and counts concurrent requests; with `fairness` it only counts them."""
    fairness: Fairness | None = None
    """Priority and fairness; None if it is disabled."""
    auditor: Auditor | None = None
    """The audit log; None if there is none."""
    tracer: Tracer | None = None
    """Records spans of requests; None if nothing is traced."""
    nodes: NodeRoutes
    """Connections to the nodes."""
    services: ServiceHooks
    """Allocates the addresses and ports of Services; also one of `hooks`."""
    hooks: dict[tuple[str, str], Hooks] = field(default_factory=dict)
    """Write hooks, by (group, plural)."""
    subresource_handlers: Mapping[tuple[str, str, str], Mapping[str, Handler]] = field(default_factory=dict)
    """See `ApiResources.subresource_handlers`."""
    computed: Mapping[tuple[str, str], Handler] = field(default_factory=dict)
    """See `ApiResources.computed`."""
    paths: Mapping[str, PathHandler] = field(default_factory=dict)
    """Handlers of non-resource URLs, by path; a path with a trailing slash stands for everything below it."""
    unlisted_paths: dict[str, PathHandler] = field(default_factory=dict)
    """Handlers of further paths, which the index at `/` does not list; as in `paths`, a trailing slash stands for
    everything below."""
    aggregation: Aggregation | None = None
    """Passes requests to aggregated API servers."""
    probe: Callable[[Any, Any], Awaitable[str]] | None = None
    """Returns why the server behind an APIService is not available, or an empty string."""
    definitions: Definitions
    """The controller of CustomResourceDefinitions."""
    watchers: Watchers | None = None
    """Remembers which clients watch which resources."""
    token_use: KeyedLoop
    """Records when the token of a Secret was used last; `upkeep` runs it."""
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Loops that run as long as the server; `upkeep` runs them."""
    needs_rewrite: Callable[[str], Awaitable[bool]] | None = None
    """Whether the value under a key has to be written even if it does not change; None means never."""


class ApiServer:
    def __init__(self, resources: ApiResources, parts: ServerParts) -> None:
        self.resources = resources
        self.parts = parts
        self._store = resources.store
        self._clock = resources.clock
        self._worker = resources.worker
        self._auditor = parts.auditor
        self._tracer = parts.tracer
        self._authenticator = parts.authenticator
        self._authorizer = parts.authorizer
        self._fairness = parts.fairness
        self._in_flight = parts.in_flight
        self._impersonator = Impersonator()
        self.disturbance: Disturbance | None = None
        """Delays and refuses requests; None, the usual case, means that nothing does."""
        self._routing = Routing(resources, parts)
        env = Environment(
            store=resources.store,
            clock=resources.clock,
            slicer=resources.slicer,
            ids=resources.ids,
            admission=parts.admission,
            authorizer=parts.authorizer,
            hooks=parts.hooks,
            needs_rewrite=parts.needs_rewrite,
            transactions=Transactions(resources.store, resources.clock),
            timers=resources.timers,
            auditor=parts.auditor,
            watchers=parts.watchers,
        )
        resources.serve_further = self.serve_further
        resources.configure(env, parts.subresource_handlers, parts.computed)

    async def start(self, address: str = DEFAULT_ADDRESS) -> None:
        """Fill the caches; `address` is the one at which clients reach the server."""
        await self.resources.start(address)

    def serve_path(self, path: str, handler: PathHandler) -> None:
        """Serve a further path, of a component in this process."""
        self.parts.unlisted_paths[path] = handler

    def begin_stop(self) -> None:
        """Fail `/readyz` from now on, so that clients use other servers; requests are still answered."""
        self.resources.stopping = True

    async def stop(self) -> None:
        await self.resources.stop()

    async def handle(self, request: Request) -> Answer:
        """Answer a request, from the network or from within this process."""
        started = self._clock.monotonic()
        target = parse_path(request.path)
        if target is INVALID_PATH:
            return invalid_path()
        query = parse_query(request.query)
        ctx = RequestContext(
            request, target, query, verb_of(request.method, target, query), _UNAUTHENTICATED, self._clock.now()
        )
        ctx.worker = self._worker
        if not isinstance(request, ObjectRequest):
            ctx.size = request_size(request) if request.body else len(request.query)
        failure: Exception | None = None
        try:
            answer = await self._filtered(ctx, started)
        except ApiError as error:
            if self._auditor is not None and ctx.user is _UNAUTHENTICATED:
                ctx.audit = self._auditor.unauthenticated(ctx)
            self.resources.refusals.record(ctx, error, self._clock.now())
            answer = error_response(ctx, error)
            failure = error
        except StoreError as error:
            refusal = store_error(ctx, error)
            if refusal.code >= 500:
                log.error("store: %s", error)
            self.resources.refusals.record(ctx, refusal, self._clock.now())
            answer = error_response(ctx, refusal)
            failure = error
        except BaseException as error:
            if ctx.audit is not None:
                await ctx.audit.abort(error)
            raise
        if isinstance(answer, ObjectResponse):
            if ctx.warnings:
                answer.headers += warning_headers(ctx.warnings)
        elif not isinstance(answer, UpgradeResponse):
            self._finish(ctx, answer)
        if ctx.audit is not None:
            answer = await ctx.audit.respond(ctx, answer)
        status = 101 if isinstance(answer, UpgradeResponse) else answer.status
        seconds = self._clock.monotonic() - started
        self.resources.metrics.request(ctx, status, seconds)
        if self._tracer is not None:
            self._tracer.record(ctx, status, seconds)
        if failure is not None:
            await self._release(ctx, failure)
        if ctx.held:
            await self._worker.run(ctx.size, release_parts, ctx.held)
        return answer

    async def _release(self, ctx: RequestContext, failure: Exception) -> None:
        """Release what a failed request holds; large objects on the worker thread."""
        if ctx.size < LARGE:
            drop_traceback(failure)
        else:
            await self._worker.run(ctx.size, release_frames, failure)

    async def _filtered(self, ctx: RequestContext, started: float) -> Answer:
        """Authenticate the request and wait until priority and fairness admits it."""
        if self.disturbance is not None:
            await self.disturbance.apply(ctx)
        if "timeout" in ctx.query:
            check_timeout(ctx)
        if ctx.target.resource and not (ctx.query and names_revision(ctx)):
            # What was acknowledged anywhere before the request arrived counts, in all decisions about it.
            try:
                await self._store.sync()
            except Unavailable as error:
                raise store_unavailable(error) from None
        elif self._store.shared:
            await self._sync_if_reachable(ctx)
        user = self._authenticator.authenticate(ctx.request, ctx.warn)
        ctx.user = user if isinstance(user, UserInfo) else await user
        if self._auditor is not None:
            ctx.audit = await self._auditor.received(ctx, ctx.user)
        user = self._impersonator.user_for(ctx, ctx.user, self._authorizer)
        if not isinstance(user, UserInfo):
            authenticated = ctx.user
            ctx.user, ctx.impersonator, ctx.authenticated = await user, authenticated.name, authenticated
        access = access_of(ctx)
        fairness = self._fairness
        if fairness is None or ctx.target.subresource in LONG_RUNNING:
            return await self._authorized(ctx, access)
        flow = fairness.flow(access)
        ctx.flow_headers = flow.headers
        width = (
            estimated_seats(ctx, access, flow.level.max_seats_per_request, self.resources.caches)
            if ctx.verb in COLLECTIONS
            else 1
        )
        from_network = not isinstance(ctx.request, ObjectRequest)
        seat = fairness.admit(flow, ctx, access, started, width, from_network=from_network)
        if seat.started is None:
            await fairness.wait_for_seat(seat)
        try:
            return await self._authorized(ctx, access)
        finally:
            seat.finish()

    async def serve_further(self, first: RequestContext, request: Request) -> Answer:
        """Answer a further request of the client whose first one is being answered: with its user and rights, and an
        audit record of its own. It uses the seat of the first one."""
        target, query = parse_path(request.path), parse_query(request.query)
        verb = verb_of(request.method, target, query)
        ctx = RequestContext(request, target, query, verb, first.user, self._clock.now())
        ctx.worker, ctx.impersonator, ctx.authenticated = self._worker, first.impersonator, first.authenticated
        try:
            if self._auditor is not None:
                ctx.audit = await self._auditor.received(ctx, first.authenticated or first.user)
                ctx.user = first.user
                if ctx.audit is not None and first.authenticated is not None:
                    ctx.audit.set_impersonation(first.user, "")
            answer = await self._authorized(ctx, access_of(ctx))
        except ApiError as error:
            answer = error_response(ctx, error)
            drop_traceback(error)
        except BaseException as error:
            if ctx.audit is not None:
                await ctx.audit.abort(error)
            raise
        return answer if ctx.audit is None else await ctx.audit.respond(ctx, answer)

    async def _sync_if_reachable(self, ctx: RequestContext) -> None:
        """Wait for a limited time for the state at the arrival of a request that can be answered without it.

        A read that names a revision may be answered from any later state, but it is authorized by the present rules if
        they can be known. Health checks never wait."""
        if self._store.unavailable is not None or ctx.target.path.startswith(HEALTH_PATHS):
            return
        with suppress(Unavailable):
            await completes_within(self._clock, _MAX_SYNC_WAIT, self._store.sync())
        if not ctx.target.resource and ctx.target.path.startswith(_DOCUMENTS):
            await self.parts.definitions.await_all()

    async def _authorized(self, ctx: RequestContext, access: Access) -> Answer:
        """Authorize the request and call its handler."""
        counted = self._in_flight.enter(ctx.verb)
        try:
            ruling = self._authorizer.authorize(access)
            decision, reason = ruling if isinstance(ruling, tuple) else await ruling
            if ctx.audit is not None:
                ctx.audit.set_authorization(decision, reason)
            if decision is Decision.ALLOW:
                return await self._routing.answer(ctx)
            if isinstance(reason, Problem):
                return authorization_failed(ctx.request, reason)
            raise forbidden(access, reason)
        finally:
            self._in_flight.leave(counted)

    def unexpected(self, request: Request | None, status: int, text: str) -> Response:
        """Return the response for a request that the HTTP server has to answer itself."""
        if status == 413:
            return respond_status(Form(), RequestTooLarge(text))
        error = ApiError(text, code=status, reason="InternalError" if status >= 500 else "BadRequest")
        return respond_status(Form(), error)

    def _finish(self, ctx: RequestContext, answer: Any) -> None:
        headers = answer.headers
        headers.extend(ctx.flow_headers)
        headers.append(("Audit-Id", ctx.audit_id or ctx.request.headers.get("audit-id") or self.resources.ids.uid()))
        if ctx.resource is not None or not any(name == "Cache-Control" for name, _ in headers):
            headers.append(("Cache-Control", "no-cache, private"))
        if answer.status == 403:
            headers.append(("X-Content-Type-Options", "nosniff"))
        if ctx.warnings:
            headers += warning_headers(ctx.warnings)


_UNAUTHENTICATED = UserInfo()
