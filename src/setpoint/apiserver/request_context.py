"""The context of one request: the resource, object and verb that its URL names, its user, and its warnings."""

from __future__ import annotations

import re
from binascii import a2b_qp
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from setpoint.apiserver.worker import LARGE, Worker
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Context, UserInfo
from setpoint.meta import chunked_json
from setpoint.meta.times import format_time
from setpoint.wire.message import Request

if TYPE_CHECKING:
    from setpoint.apiserver.audit.record import Record


_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_MAX_CACHED_LENGTH = 1024
"""Maximum length of paths whose result is cached; clients could fill the memory with longer ones."""
_MAX_PARAMETERS = 10_000
_MAX_SEGMENTS = 16
"""Maximum number of path segments that are split; no API path is deeper, and the rest stays one segment."""
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
COLLECTIONS = frozenset({"list", "watch"})
"""Verbs that read many objects."""


READS = COLLECTIONS | {"get"}
"""Verbs that change nothing."""


class Target(NamedTuple):
    """The target of a request. `resource` is empty for non-resource URLs and discovery documents."""

    path: str
    """The decoded path."""
    prefix: str = ""
    """`api` or `apis` for a resource, else empty."""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """The path after the subresource, which only proxies have."""
    watch: bool = False
    """Whether the path has the old `/watch/` prefix."""


INVALID_PATH = Target("")
"""The target of a path with an invalid percent escape."""


def parse_path(raw: str) -> Target:
    return _parse_cached(raw) if len(raw) <= _MAX_CACHED_LENGTH else _parse_path(raw)


def percent_decoded(raw: str) -> str:
    """Decode percent escapes and non-ASCII bytes as UTF-8. A text with an invalid escape is returned unchanged.

    The cost is that of a few copies for any number of escapes: quoted-printable, which is decoded in C, has the same
    form with another escape character."""
    return raw if "%" in raw and _BAD_ESCAPE.search(raw) else _unescaped(raw)


def _unescaped(raw: str) -> str:
    """Decode a text without invalid escapes."""
    if "%" not in raw and raw.isascii():
        return raw
    try:
        sent = raw.encode("latin-1")
    except UnicodeEncodeError:
        sent = raw.encode("utf-8", "replace")
    return a2b_qp(sent.replace(b"=", b"=3D").replace(b"%", b"=")).decode("utf-8", "replace")


def _parse_path(raw: str) -> Target:
    if "%" in raw and _BAD_ESCAPE.search(raw):
        return INVALID_PATH
    path = percent_decoded(raw)
    if not path.startswith("/"):
        path = "/" + path
    parts = path.split("/", _MAX_SEGMENTS)[1:]
    if parts[0] == "api" and len(parts) >= 3:
        return _resource(path, "api", "", parts[1], parts[2:])
    if parts[0] == "apis" and len(parts) >= 4 and parts[1]:
        return _resource(path, "apis", parts[1], parts[2], parts[3:])
    return Target(path)


_parse_cached = lru_cache(maxsize=8192)(_parse_path)


def _resource(path: str, prefix: str, group: str, version: str, parts: list[str]) -> Target:
    # A trailing slash belongs to a discovery document, if to anything; dots and empty segments are never names.
    if any(part in ("", ".", "..") for part in parts[:3]):
        if parts == [""]:
            return Target(path)
        if "" in parts[:-1] or any(part in (".", "..") for part in parts[:5]):
            return Target(path)
        if parts[0] == "namespaces" and parts[-1] == "" and len(parts) < 4:
            parts = parts[:-1]
    watch = parts[0] == "watch" and len(parts) > 1
    if watch:
        parts = parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
        elif len(parts) == 2 and not namespace:
            return Target(path)
    if len(parts) > 3 and not parts[2]:
        return Target(path)
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    rest = "/".join(parts[3:])
    # Thousands of cached targets have the same group, version, namespace and resource.
    group, version, namespace = intern(group), intern(version), intern(namespace)
    return Target(path, prefix, group, version, namespace, intern(parts[0]), name, intern(subresource), rest, watch)


def parse_query(query: str) -> dict[str, list[str]]:
    """Return all values by name, including empty ones. As in Go, pairs with an invalid escape or a semicolon are
    omitted, and everything if there are too many."""
    options: dict[str, list[str]] = {}
    if not query or query.count("&") >= _MAX_PARAMETERS:
        return options
    for pair in query.split("&"):
        if not pair or ";" in pair or ("%" in pair and _BAD_ESCAPE.search(pair)):
            continue
        key, _, value = pair.replace("+", " ").partition("=")
        options.setdefault(_unescaped(key), []).append(_unescaped(value))
    return options


def truthy(value: str) -> bool:
    """Parse a boolean parameter: anything but `false` and `0` is true, also the empty string."""
    return value not in ("false", "0")


def verb_of(method: str, target: Target, query: dict[str, list[str]]) -> str:
    """Return the API verb of a request, for authorization and admission."""
    verb = _VERBS.get(method, "")
    if target.watch and verb == "get":
        return "watch"
    if not target.name or (target.resource == "namespaces" and not target.name):
        if verb == "get":
            return "watch" if "watch" in query and truthy(query["watch"][0]) else "list"
        if verb == "delete":
            return "deletecollection"
    return verb


Emptied = list[tuple[dict[str, Any], str]]
P = ParamSpec("P")
R = TypeVar("R")
_INLINE = Worker()


@dataclass(slots=True)
class RequestContext:
    """One request on its way from the filters to the store."""

    request: Request
    target: Target
    query: dict[str, list[str]]
    verb: str
    user: UserInfo
    """The user whose rights decide."""
    now: datetime
    """The moment at which the request was received, or the moment of the past that it asks for."""
    resource: Resource | None = None
    """The resource of the request; None for non-resource URLs."""
    warnings: dict[str, None] = field(default_factory=dict)
    """Texts of the Warning headers of the response in their order, each once; there can be thousands."""
    dry_run: bool = False
    field_manager: str = ""
    clears_managed_fields: bool = False
    """Whether the client sent an empty managedFields list, which resets the list; decoding would lose it."""
    emptied: Emptied = field(default_factory=list)
    """Containers and keys at which the client sent an empty list that decoding made null (see `meta.decode`)."""
    converted: dict[tuple[str, bytes], dict[str, Any]] | None = None
    """Objects that a webhook has converted for this write; None if none is needed or the webhook failed."""
    flow_headers: tuple[tuple[str, str], ...] = ()
    """Response headers that name the flow of priority and fairness."""
    impersonator: str = ""
    """The name of the authenticated user who impersonates `user`; empty without impersonation."""
    authenticated: UserInfo | None = None
    """The authenticated user who impersonates `user`; None without impersonation."""
    audit_id: str = ""
    audit: Record | None = None
    """The audit record of the request; None if it is not audited."""
    is_past: bool = False
    """Whether the request asks for a moment of the past, which `now` remains for as long as the answer is sent."""
    _timestamp: str = ""
    size: int = 0
    """Size in bytes of the input of this request: its body and query, or the stored object if that is larger."""
    worker: Worker = _INLINE
    held: list[Any] = field(default_factory=list)
    """Large objects that are released part by part when the request is answered."""
    may_share_object: bool = True
    """Whether the written object may be shared with readers: nothing else holds a reference through which it could
    change."""

    @property
    def timestamp(self) -> str:
        """The time of the request in the form of timestamps in objects."""
        if not self._timestamp:
            self._timestamp = format_time(self.now)
        return self._timestamp

    def option(self, name: str, default: str = "") -> str:
        values = self.query.get(name)
        return values[0] if values else default

    def warn(self, text: str) -> None:
        self.warnings[text] = None

    async def compute(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a pure function of the input of this request, on a worker thread if the input is large."""
        if self.size < LARGE:
            return function(*args, **kwargs)
        return await self.worker.run(self.size, function, *args, **kwargs)

    def hold(self, *objects: object) -> None:
        """Keep objects that this request has made until it is answered. If it is large, they are then released part by
        part on a worker thread, which would otherwise be a single long step of the event loop."""
        if self.size > chunked_json.LARGE:
            self.held += objects

    def record_request_object(self, obj: dict[str, Any], kind: str, api_version: str) -> None:
        """Record the decoded body with its defaults for the audit log."""
        if self.audit is None:
            return
        emptied = [(part, name) for part, name in self.emptied if part.get(name) is None]
        for part, name in emptied:
            part[name] = []
        self.audit.set_request_object(obj, kind, api_version)
        for part, name in emptied:
            part[name] = None

    def strategy_context(self) -> Context:
        """Return what a strategy may know about the request."""
        return Context(
            now=self.now,
            user=self.user,
            namespace=self.target.namespace,
            subresource=self.target.subresource,
            dry_run=self.dry_run,
            warn=self.warn,
            emptied=self.emptied,
        )


def names_revision(ctx: RequestContext) -> bool:
    """Return whether this is a read with a resourceVersion, which limits how stale the response may be."""
    return ctx.verb in READS and ctx.option("resourceVersion") != ""


def request_size(request: Request) -> int:
    """Return the number of bytes of body and query.

    YAML with aliases counts as large, because its value may be much larger than its text."""
    body = request.body
    size = len(body) + len(request.query)
    if size < LARGE and b"*" in body and body[:1] != b"{" and "yaml" in request.headers.get("content-type", ""):
        return LARGE
    return size
