"""API priority and fairness: which requests are executed now and which are queued.

Each request belongs to a flow, each flow to a priority level, and each level has a number of seats. A request without a
free seat is queued; if the queue is full, it is rejected with Retry-After.

Seats do not limit the event loop: the process has one thread, and most requests hold a seat only while they run on it.
Without a further rule, a client that sends a thousand requests at once would be served a thousand times before the next
client. So requests from the network that arrive late in an iteration of the event loop (see LoopSlicer) are queued as
well, and only a few queued requests are dispatched in each iteration.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from setpoint.apiserver.fairness.levels import DroppedRequestsTracker, Level, lend_seats
from setpoint.apiserver.fairness.queues import QueuedRequest, QueueFull, flow_hash
from setpoint.apiserver.filters.authorize import Access
from setpoint.apiserver.filters.request_limits import Overloaded
from setpoint.apiserver.request_context import RequestContext, truthy
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.kinds.bootstrap.initial_objects import MANDATORY, flow_schemas, priority_levels
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.exposition import Family, counter, gauge
from setpoint.meta.objects import ObjView
from setpoint.wire.loop_slices import LoopSlicer

_BYTES_PER_SEAT = 100_000
_MAX_BYTES_IN_MEMORY = 1_000_000
"""Maximum number of bytes of a response in memory; longer responses are sent in pieces."""
_MAX_SEATS = 100
_SAMPLED_OBJECTS = 8
_SMALL_LIST = 20
"""Lists of at most this many objects count as one seat."""
_MAX_CACHED_FLOWS, _MAX_CACHED_KINDS = 16_384, 4096
"""Maximum numbers of flows, of which each node of a cluster has one or two, and of distinct kinds of requests."""
_MAX_CACHED_LENGTH = 1024
"""Maximum length of the client-controlled attributes of a cached flow, to bound the memory."""
_SERVICE_ACCOUNT = "system:serviceaccount:"
_MAX_CACHED_USERS = 1024
_SEATS_PER_ITERATION = 4
"""Number of seats that are granted to queued requests in one iteration of the event loop."""
_QUEUE_TIMEOUT = 15.0
"""Seconds after which a queued request is rejected; the check may be a few seconds late. A quarter of the request
timeout."""
_LENDING_INTERVAL = 10.0
"""Seconds between adjustments of the levels' limits."""


def estimated_seats(ctx: RequestContext, access: Access, max_seats: int, caches: Mapping[str, ResourceCache]) -> int:
    """Return the number of seats of a list or watch, at most `max_seats` (0 means no limit of the level)."""
    if access.name or (ctx.verb == "watch" and not _starts_with_list(ctx)):
        return 1
    cache = caches.get(f"{access.group or 'core'}/{access.resource}/")
    count = len(cache) if cache is not None else 0
    limit = ctx.option("limit")
    if limit.isdecimal() and len(limit) < 10 and 0 < int(limit) < count:
        count = int(limit)
    if cache is None or count <= _SMALL_LIST:
        return 1
    sizes = [entry.size for entry in islice(cache.scan(), _SAMPLED_OBJECTS)]
    response_bytes = min(count * sum(sizes) // len(sizes), _MAX_BYTES_IN_MEMORY)
    return max(1, min(-(-response_bytes // _BYTES_PER_SEAT), max_seats or _MAX_SEATS, _MAX_SEATS))


def _starts_with_list(ctx: RequestContext) -> bool:
    return truthy(ctx.option("sendInitialEvents", "false")) or ctx.option("resourceVersion") in ("", "0")


Headers = tuple[tuple[str, str], ...]


class Flow:
    """Requests that are queued fairly against other flows of the level."""

    __slots__ = ("dispatched", "hash", "headers", "level", "schema")

    def __init__(self, schema: str, level: Level, hash: int, headers: Headers) -> None:
        self.schema = schema
        self.level = level
        self.hash = hash
        self.headers = headers
        """Response headers that name flow schema and priority level."""
        self.dispatched = level.dispatched.setdefault(schema, [0])


class Classifier:
    """Assigns requests to flows."""

    def __init__(self, schemas: Iterable[ObjView], levels: Mapping[str, Level], uids: Mapping[str, str]) -> None:
        """Schemas whose level does not exist are ignored."""
        known = [each for each in schemas if _level(each) in levels]
        self._schemas = sorted(known, key=lambda s: (s["spec"].get("matchingPrecedence", 0), s["metadata"]["name"]))
        self._levels = levels
        self._uids = uids
        self._named = frozenset(
            subject["user"]["name"]
            for schema in self._schemas
            for rule in schema["spec"].get("rules") or ()
            for subject in rule.get("subjects") or ()
            if subject.get("kind") == "User"
        )
        """Users that a rule names. Thousands of others, such as nodes, are classified alike by their groups."""
        self._matching: dict[tuple[Any, ...], ObjView] = {}
        """The schema by the attributes of a request that rules can distinguish."""
        self._flows: dict[tuple[str, str], Flow] = {}
        """Flows by the name of the schema and the distinguisher."""
        self._rules: dict[tuple[str, tuple[str, ...]], list[tuple[ObjView, Mapping[str, Any]]]] = {}
        """The rules with a user as their subject, each with its schema, in order, by the user's name and groups."""

    def flow(self, access: Access) -> Flow:
        schema = self._schema(access)
        name, by = schema["metadata"]["name"], (schema["spec"].get("distinguisherMethod") or {}).get("type", "")
        distinguisher = access.user.name if by == "ByUser" else access.namespace if by == "ByNamespace" else ""
        found = self._flows.get((name, distinguisher))
        if found is None:
            if len(self._flows) >= _MAX_CACHED_FLOWS:
                self._flows.clear()
            found = self._flow(schema, distinguisher)
            if len(distinguisher) <= _MAX_CACHED_LENGTH:
                self._flows[name, distinguisher] = found
        return found

    def _schema(self, access: Access) -> ObjView:
        scope = access.namespace if access.resource else access.path
        user = self._known_name(access.user)
        key = (user, access.user.groups, access.verb, access.group, access.resource, access.subresource, scope)
        found = self._matching.get(key)
        if found is None:
            if len(self._matching) >= _MAX_CACHED_KINDS:
                self._matching.clear()
            found = self._classify(access)
            if len(user) + len(access.group) + len(access.resource) + len(scope or "") <= _MAX_CACHED_LENGTH:
                self._matching[key] = found
        return found

    def _known_name(self, user: UserInfo) -> str:
        """Return the name of a user whom a rule can name; empty for others."""
        name = user.name
        return name if name in self._named or name.startswith(_SERVICE_ACCOUNT) else ""

    def _classify(self, access: Access) -> ObjView:
        for schema, rule in self._rules_for(access.user):
            if _matches(rule, access):
                return schema
        return self._schemas[-1]  # the mandatory catch-all schema

    def _rules_for(self, user: UserInfo) -> list[tuple[ObjView, Mapping[str, Any]]]:
        key = (self._known_name(user), user.groups)
        found = self._rules.get(key)
        if found is None:
            if len(self._rules) >= _MAX_CACHED_USERS:
                self._rules.clear()
            found = [
                (schema, rule)
                for schema in self._schemas
                for rule in schema["spec"].get("rules") or ()
                if any(_is_subject(subject, user) for subject in rule.get("subjects") or ())
            ]
            if len(user.name) <= _MAX_CACHED_LENGTH:
                self._rules[key] = found
        return found

    def _flow(self, schema: ObjView, distinguisher: str) -> Flow:
        name, level = schema["metadata"]["name"], _level(schema)
        headers = (
            ("X-Kubernetes-Pf-Flowschema-Uid", schema["metadata"].get("uid", "")),
            ("X-Kubernetes-Pf-Prioritylevel-Uid", self._uids.get(level, "")),
        )
        return Flow(name, self._levels[level], flow_hash(name, distinguisher), headers)


def _level(schema: ObjView) -> str:
    found: str = schema["spec"]["priorityLevelConfiguration"]["name"]
    return found


def _matches(rule: Mapping[str, Any], access: Access) -> bool:
    """Return whether a rule with this user as a subject covers the request."""
    if access.resource:
        return any(_covers(item, access) for item in rule.get("resourceRules") or ())
    return any(
        _has(item.get("verbs"), access.verb) and _has_path(item.get("nonResourceURLs") or (), access.path or "")
        for item in rule.get("nonResourceRules") or ()
    )


def _is_subject(subject: Mapping[str, Any], user: UserInfo) -> bool:
    kind = subject.get("kind")
    if kind == "User":
        return subject["user"]["name"] in ("*", user.name)
    if kind == "Group":
        return subject["group"]["name"] == "*" or subject["group"]["name"] in user.groups
    account = subject["serviceAccount"]
    prefix = f"{_SERVICE_ACCOUNT}{account['namespace']}:"
    return user.name.startswith(prefix) and account["name"] in ("*", user.name[len(prefix) :])


def _covers(rule: Mapping[str, Any], access: Access) -> bool:
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    if not (
        _has(rule.get("verbs"), access.verb)
        and _has(rule.get("apiGroups"), access.group)
        and _has(rule.get("resources"), resource)
    ):
        return False
    if not access.namespace:
        return bool(rule.get("clusterScope"))
    return _has(rule.get("namespaces"), access.namespace)


def _has(allowed: Iterable[str] | None, wanted: str) -> bool:
    return allowed is not None and ("*" in allowed or wanted in allowed)


def _has_path(patterns: Iterable[str], path: str) -> bool:
    return any(
        pattern in ("*", path) or (pattern.endswith("/*") and path.startswith(pattern[:-1])) for pattern in patterns
    )


Objects = Callable[[str], Iterable[ObjView]]
"""Returns all flow schemas or priority levels, by plural."""


class FlowRequest:
    """A request that is queued or executed. Times are monotonic seconds."""

    __slots__ = ("access", "arrived", "ctx", "fairness", "flow", "queued", "seats", "started")

    def __init__(
        self, fairness: Fairness, flow: Flow, seats: int, ctx: RequestContext, access: Access, arrived: float
    ) -> None:
        self.fairness = fairness
        self.flow = flow
        self.seats = seats
        self.ctx = ctx
        self.access = access
        self.arrived = arrived
        self.started: float | None = None
        """When execution started; None while the request is queued (see `Fairness.wait_for_seat`)."""
        self.queued: QueuedRequest | None = None
        """The entry in the queue; None if the request got a seat at once."""

    def finish(self) -> None:
        """Release the seats."""
        self.fairness.finished(self)


class Fairness:
    """The requests of one server, and the configuration that they are queued by."""

    def __init__(
        self, objects: Objects, revision: Callable[[], int], clock: Clock, slicer: LoopSlicer, seats: int
    ) -> None:
        """`revision` changes whenever a configuration object does. `seats` is the number of all seats."""
        self._objects = objects
        self._revision = revision
        self._clock = clock
        self._slicer = slicer
        self._total = seats
        self._seen = -1
        self.levels: dict[str, Level] = {}
        self._classifier: Classifier
        self._dropped_trackers: dict[str, DroppedRequestsTracker] = {}
        self._dispatch_scheduled = False
        self._next = 0
        self.requests: set[FlowRequest] = set()
        """All requests that are queued or executed."""
        self._queue_deadlines: deque[tuple[float, Flow, QueuedRequest]] = deque()
        """Deadline, flow and entry of each queued request, in order of arrival."""

    # -- requests -----------------------------------------------------------------------------------------------------

    def flow(self, access: Access) -> Flow:
        """Return the flow of a request."""
        revision = self._revision()
        if revision != self._seen:
            self._seen = revision
            self._configure()
        return self._classifier.flow(access)

    def admit(
        self, flow: Flow, ctx: RequestContext, access: Access, now: float, seats: int = 1, *, from_network: bool = True
    ) -> FlowRequest:
        """Admit a request: it gets seats or is queued. In-process requests need seats too, but do not wait for the next
        iteration of the event loop, which is busy with them. Raises Overloaded."""
        level = flow.level
        queues = level.queues
        wait = queues.waiting or (from_network and queues.has_queues and self._slicer.over_budget())
        if level.exempt or (queues.fits(seats) and (not wait or queues.can_bypass(flow.hash, seats))):
            queues.in_use += seats
            request = FlowRequest(self, flow, seats, ctx, access, now)
            self._start(request, now)
        else:
            request = FlowRequest(self, flow, seats, ctx, access, now)
            try:
                request.queued = queues.enqueue(flow.hash, seats)
            except QueueFull:
                raise self._rejection(flow, "queue-full" if queues.has_queues else "concurrency-limit") from None
            level.seats_changed(now)
            self._dispatch_soon()
        self.requests.add(request)
        return request

    async def wait_for_seat(self, request: FlowRequest) -> None:
        """Wait until the request gets its seats. Raises Overloaded after the timeout."""
        queued = request.queued
        assert queued is not None
        deadlines = self._queue_deadlines
        while deadlines and deadlines[0][2].removed:
            deadlines.popleft()  # keeps the number of removed entries small
        deadlines.append((self._clock.monotonic() + _QUEUE_TIMEOUT, request.flow, queued))
        try:
            await queued.granted
        except BaseException as error:
            self.requests.discard(request)
            if isinstance(error, asyncio.CancelledError):
                self._cancel(request, queued)
            raise
        self._start(request, self._clock.monotonic())

    def _cancel(self, request: FlowRequest, queued: QueuedRequest) -> None:
        queues, granted = request.flow.level.queues, queued.granted
        if not granted.done() or granted.cancelled():
            queues.remove(queued)
        elif granted.exception() is None:
            queues.in_use -= request.seats  # a seat was granted at the same moment

    def finished(self, request: FlowRequest) -> None:
        """Release the seats of a request."""
        self.requests.discard(request)
        level = request.flow.level
        level.queues.in_use -= request.seats
        level.executing -= 1
        now = self._clock.monotonic()
        level.seats_changed(now)
        if level.queues.waiting:
            self._dispatch_soon()

    def _start(self, request: FlowRequest, now: float) -> None:
        request.started = now
        flow = request.flow
        flow.level.executing += 1
        flow.dispatched[0] += 1
        flow.level.seats_changed(now)

    def _reject_expired(self, now: float) -> None:
        """Reject the requests whose queue timeout has passed."""
        while self._queue_deadlines and (self._queue_deadlines[0][2].removed or self._queue_deadlines[0][0] <= now):
            _, flow, queued = self._queue_deadlines.popleft()
            if not queued.removed and not queued.granted.done():
                flow.level.queues.remove(queued)
                queued.granted.set_exception(self._rejection(flow, "time-out"))

    def _rejection(self, flow: Flow, reason: str) -> Overloaded:
        level = flow.level
        level.reject(flow.schema, reason)
        dropped = self._dropped_trackers.setdefault(level.name, DroppedRequestsTracker())
        return Overloaded.until(dropped.record(int(self._clock.monotonic())))

    # -- dispatching --------------------------------------------------------------------------------------------------

    def _dispatch_soon(self) -> None:
        """Schedule the dispatch of queued requests in the next iteration of the event loop."""
        if not self._dispatch_scheduled:
            self._dispatch_scheduled = True
            self._slicer.run_next(self._dispatch)

    def _dispatch(self) -> None:
        """Grant seats to queued requests, round-robin between the levels; schedule the rest for the next iteration."""
        self._dispatch_scheduled = False
        busy = [level for level in self.levels.values() if level.queues.waiting]
        if not busy:
            return
        self._next = (self._next + 1) % len(busy)
        busy = [*busy[self._next :], *busy[: self._next]]
        granted_seats = 0
        while busy and granted_seats < _SEATS_PER_ITERATION:
            granted = [level.queues.dispatch() for level in busy]
            granted_seats += sum(granted)
            busy = [level for level, seats in zip(busy, granted, strict=True) if seats]
        if busy:
            self._dispatch_soon()

    # -- configuration ------------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        now = self._clock.monotonic()
        given = list(self._objects("prioritylevelconfigurations"))
        names = {each["metadata"]["name"] for each in given}
        given += [each for each in priority_levels() if each["metadata"]["name"] in MANDATORY - names]
        before, self.levels = self.levels, {}
        for each in given:
            name = each["metadata"]["name"]
            level = self.levels[name] = before.get(name) or Level(name, now)
            level.configure(each["spec"])
        shares = sum(level.shares for level in self.levels.values())
        for level in self.levels.values():
            level.set_limits(self._total, shares)
        lend_seats(self.levels.values(), now)
        schemas = list(self._objects("flowschemas"))
        known = {each["metadata"]["name"] for each in schemas}
        schemas += [each for each in flow_schemas() if each["metadata"]["name"] in MANDATORY - known]
        uids = {each["metadata"]["name"]: each["metadata"].get("uid", "") for each in given}
        self._classifier = Classifier(schemas, self.levels, uids)
        # Dispatch all queued requests of removed levels.
        for level in before.values():
            if level.name not in self.levels:
                level.queues.limit = level.queues.in_use + level.queues.seats_waiting
                while level.queues.dispatch():
                    pass

    async def run(self) -> None:
        """Reject requests after their timeout, and adjust the limits of the levels, periodically."""
        while True:
            for _ in range(2):
                await self._clock.sleep(_LENDING_INTERVAL / 2)
                self._reject_expired(self._clock.monotonic())
            now = self._clock.monotonic()
            lend_seats(self.levels.values(), now)
            self._dispatch_soon()


_GAUGES: dict[str, tuple[str, Callable[[Level], int]]] = {
    "nominal_limit_seats": ("Nominal number of seats of a level.", lambda level: level.nominal),
    "lower_limit_seats": ("Number of seats that a level never lends.", lambda level: level.lower_limit),
    "upper_limit_seats": (
        "Maximum number of seats of a level, including borrowed ones.",
        lambda level: level.upper_limit,
    ),
    "current_limit_seats": ("Current number of seats of a level.", lambda level: level.queues.limit),
    "current_executing_seats": ("Number of seats in use.", lambda level: level.queues.in_use),
    "current_executing_requests": ("Number of executing requests.", lambda level: level.executing),
    "current_inqueue_requests": ("Number of queued requests.", lambda level: level.queues.waiting),
    "current_inqueue_seats": ("Number of seats that queued requests need.", lambda level: level.queues.seats_waiting),
}


def flow_control_metrics(fairness: Fairness) -> Iterable[Family]:
    """Yield the metrics of priority and fairness, with upstream's names."""
    levels: list[Level] = [level for _, level in sorted(fairness.levels.items())]
    for name, (help_text, read) in _GAUGES.items():
        yield gauge(
            f"apiserver_flowcontrol_{name}",
            help_text,
            [({"priority_level": level.name}, float(read(level))) for level in levels],
        )
    yield counter(
        "apiserver_flowcontrol_dispatched_requests_total",
        "Number of requests that were executed.",
        [
            ({"priority_level": level.name, "flow_schema": schema}, count)
            for level in levels
            for schema, (count,) in sorted(level.dispatched.items())
        ],
    )
    yield counter(
        "apiserver_flowcontrol_rejected_requests_total",
        "Number of requests that were rejected.",
        [
            ({"priority_level": level.name, "flow_schema": schema, "reason": reason}, count)
            for level in levels
            for (schema, reason), count in sorted(level.rejected.items())
        ],
    )
