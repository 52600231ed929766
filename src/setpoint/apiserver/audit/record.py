"""The audit record of one request, from its receipt to the last byte of its response."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import orjson

from setpoint.apiserver.audit.event import AuditEvent
from setpoint.apiserver.audit.policy import (
    COMPLETE,
    LEVELS,
    PANIC,
    RECEIVED,
    REQUEST,
    REQUEST_RESPONSE,
    STARTED,
    AuditConfig,
)
from setpoint.apiserver.filters.authorize import Access, Decision, Problem
from setpoint.apiserver.rendering import decode_value
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.caching import memoized
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.meta.protobuf.wire import MAGIC
from setpoint.meta.times import format_micro
from setpoint.wire.message import Answer, ObjectResponse, Request, Response, StreamResponse, UpgradeResponse

_MAX_AGENT_LENGTH = 1024
_TRUNCATION_MARK = "...TRUNCATED"
_MAX_PROXIES = 100
"""Number of addresses of an X-Forwarded-For header that are considered."""
_LONG_RUNNING = frozenset({"attach", "exec", "proxy", "log", "portforward"})
_REFERENCE = (
    "resource",
    "namespace",
    "name",
    "uid",
    "apiGroup",
    "apiVersion",
    "resourceVersion",
    "subresource",
)
_REFERENCE_FROM_BODY = ("namespace", "name", "uid", "resourceVersion")
_STATUS_FIELDS = ("status", "message", "reason", "details", "code")
_STATUS_PREFIX = b'{"kind":"Status",'
_DECISION, _REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"


def _source_ips(request: Request) -> list[str]:
    """Return the addresses of client and proxies. All except the last are claims of the client."""
    headers, found = request.headers, list[str]()
    if "x-forwarded-for" not in headers and "x-real-ip" not in headers:
        remote = _address(request.peer.address)
        return [remote] if remote else []
    forwarded = headers.get("x-forwarded-for")
    if forwarded:
        if "x-forwarded-for" in request.repeated:
            forwarded = request.repeated["x-forwarded-for"][0]
        parts = forwarded.split(",", _MAX_PROXIES)[:_MAX_PROXIES]
        found = [ip for ip in (_address(part.strip()) for part in parts) if ip]
    real = headers.get("x-real-ip")
    if real:
        ip = _address(request.repeated.get("x-real-ip", [real])[0])
        if ip and ip not in found:
            found.append(ip)
    remote = _address(request.peer.address)
    if remote and found[-1:] != [remote]:
        found.append(remote)
    return found


def _user_agent(request: Request) -> str:
    agent = request.headers.get("user-agent", "")
    return agent if len(agent) <= _MAX_AGENT_LENGTH else agent[:_MAX_AGENT_LENGTH] + _TRUNCATION_MARK


@memoized(maxsize=1024)
def _address(text: str) -> str:
    """Return the canonical form of an address, or "" if it is invalid."""
    if not text or "%" in text:
        return ""
    try:
        return _canonical(ip_address(text))
    except ValueError:
        return _sloppy(text)


def _canonical(ip: IPv4Address | IPv6Address) -> str:
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ip)


def _sloppy(text: str) -> str:
    """Parse an IPv4 address with leading zeros, as Go does."""
    parts = text.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts):
        return ""
    if max(map(int, parts)) > 255:
        return ""
    return ".".join(str(int(part)) for part in parts)


Send = Callable[[AuditEvent], Awaitable[bool]]


class Annotations(dict[str, str]):
    """Audit annotations; the first value of a key is retained."""

    __slots__ = ()

    def __setitem__(self, key: str, value: str) -> None:
        self.setdefault(key, value)


class Record:
    """Collects what the audit log contains about one request, and sends its events."""

    __slots__ = (
        "_access",
        "_clock",
        "_common",
        "_constraint",
        "_head",
        "_impersonated",
        "_is_long_running",
        "_omit",
        "_omit_managed_fields",
        "_received",
        "_ref",
        "_request",
        "_request_sent",
        "_response",
        "_send",
        "_started_only",
        "_status",
        "annotations",
        "level",
    )

    def __init__(self, ctx: RequestContext, access: Access, config: AuditConfig, clock: Clock, send: Send) -> None:
        self.level, self._omit, self._omit_managed_fields = config
        self._clock, self._send = clock, send
        self._request_sent, self._access = ctx.request, access
        self._head = b'{"level":"%b","auditID":%b,"stage":"' % (
            LEVELS[self.level].encode(),
            orjson.dumps(ctx.audit_id),
        )
        self._received = format_micro(ctx.now)
        self._impersonated: UserInfo | None = None
        self._constraint = ""
        self._ref: Obj | None = _reference(access) if access.path is None else None
        self._common = b""
        """The encoded fields that follow the stage in every event; empty if they must be encoded again."""
        self._is_long_running = access.verb == "watch" or (access.path is None and access.subresource in _LONG_RUNNING)
        self._started_only = False
        self._status: Obj | None = None
        self._request = self._response = b""
        self.annotations = Annotations()

    @property
    def includes_objects(self) -> bool:
        """Whether events contain the request object."""
        return self.level >= REQUEST

    # -- while the request is processed -------------------------------------------------------------------------------

    def failed_authentication(self) -> None:
        """Record that authentication failed: a single event will be sent."""
        self._started_only = True

    def set_impersonation(self, user: UserInfo, constraint: str) -> None:
        """Record the impersonated user and the constraint of the impersonation."""
        self._impersonated, self._constraint, self._common = user, constraint, b""

    def set_authorization(self, decision: Decision, reason: str) -> None:
        """Record the decision of the authorizers."""
        if decision is not Decision.ALLOW and isinstance(reason, Problem):
            self.annotations[_REASON] = "internal error"
            return
        self.annotations[_DECISION] = "allow" if decision is Decision.ALLOW else "forbid"
        self.annotations[_REASON] = reason.reason if isinstance(reason, Problem) else reason

    def set_request_object(self, obj: Obj, kind: str, api_version: str) -> None:
        """Record the request body; `obj` is not retained."""
        ref, meta = self._ref, obj.get("metadata")
        if ref is not None and isinstance(meta, dict):
            known = {**{name: meta[name] for name in _REFERENCE_FROM_BODY if meta.get(name)}, **ref}
            self._ref, self._common = {name: known[name] for name in _REFERENCE if name in known}, b""
        if self.level < REQUEST:
            return
        named = {"kind": kind, "apiVersion": api_version}
        whole = {**named, **obj, **named}
        self._request = orjson.dumps(_without_managed_fields(whole) if self._omit_managed_fields else whole)

    def set_patch(self, patch: Any) -> None:
        """Record the body of a patch request, parsed, so that the log remains valid JSON."""
        if self.level >= REQUEST:
            self._request = orjson.dumps(patch)

    def set_error(self, error: ApiError, negotiated: bool = True) -> None:
        """Record the error; `negotiated` says whether the client accepts its media type."""
        if not negotiated:
            self._status = {"metadata": {}}
            return
        status = error.status()
        self._set_status(status)
        if self.level == REQUEST_RESPONSE:
            self._response = orjson.dumps(status)

    # -- the response -------------------------------------------------------------------------------------------------

    async def received(self) -> bool:
        """Send the event of the stage RequestReceived, and return whether that succeeded."""
        return await self._emit(RECEIVED)

    async def respond(self, ctx: RequestContext, answer: Answer) -> Answer:
        """Record the response and send the events; the end of a stream is recorded when it is reached. Return the
        response to send."""
        if isinstance(answer, UpgradeResponse | StreamResponse):
            self._set_code(101 if isinstance(answer, UpgradeResponse) else answer.status)
            if self._is_long_running:
                await self._emit(STARTED)
            run = answer.run

            async def observed(to: Any) -> None:
                try:
                    await run(to)
                except (CancelledError, OSError):
                    await self._emit(COMPLETE)
                    raise
                except Exception as error:
                    await self.abort(error)
                    raise
                await self._emit(COMPLETE)

            answer.run = observed
            return answer
        if self._status is None:
            self._read_response(ctx, answer)
        self._set_code(answer.status)
        if self._is_long_running or self._started_only:
            await self._emit(STARTED)
        if not self._started_only:
            await self._emit(COMPLETE)
        return answer

    async def abort(self, error: BaseException) -> None:
        """Record that the request ended without a response: the client disconnected, or an unexpected exception was
        raised."""
        if isinstance(error, CancelledError):
            if self._status is None:
                self._status = {"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200}
            await self._emit(COMPLETE)
            return
        # The text of an exception may contain confidential data; its type must suffice.
        what = f"APIServer panic'd: {type(error).__name__}"
        self._status = {
            "metadata": {},
            "status": "Failure",
            "message": what,
            "reason": "InternalError",
            "code": 500,
        }
        await self._emit(PANIC)

    def _read_response(self, ctx: RequestContext, answer: Response | ObjectResponse) -> None:
        """Record the content of a response that is no error."""
        if isinstance(answer, ObjectResponse):
            if answer.value.get("kind") == "Status":
                self._set_status(answer.value)
            if self.level == REQUEST_RESPONSE:
                value = answer.value
                self._response = orjson.dumps(_without_managed_fields(value) if self._omit_managed_fields else value)
            return
        body = answer.body
        if ctx.resource is None:
            if ctx.target.resource or not ctx.target.path.startswith("/api") or answer.status != 200:
                return  # responses of other servers, and of non-resource URLs
        elif ctx.target.subresource in _LONG_RUNNING:
            return
        whole = answer.whole_body if self.level == REQUEST_RESPONSE else b""
        if isinstance(body, bytes) and body.startswith(MAGIC):
            body = whole = orjson.dumps(decode_value(body))
        if isinstance(body, bytes) and body.startswith(_STATUS_PREFIX):
            self._set_status(orjson.loads(body))
        if self.level == REQUEST_RESPONSE:
            self._response = _single_line(whole, _without_managed_fields if self._omit_managed_fields else None)

    def _set_status(self, status: Obj) -> None:
        shown = {name: status[name] for name in _STATUS_FIELDS if status.get(name)}
        if "details" in status:
            shown["details"] = status["details"]  # an empty object is logged too
        self._status = {"metadata": {}, **shown}

    def _set_code(self, status: int) -> None:
        if self._status is None:
            self._status = {"metadata": {}}
        self._status["code"] = status

    async def _emit(self, stage: str) -> bool:
        if stage in self._omit:
            return True
        at = self._received if stage == RECEIVED else format_micro(self._clock.now())
        return await self._send(AuditEvent(self._item(stage, at), self.level))

    def _item(self, stage: str, at: str) -> bytes:
        """Encode an event, with upstream's order of fields."""
        common = self._common or self._encode_common()
        pieces = [self._head, stage.encode(), common]
        if self._status is not None:
            pieces += b',"responseStatus":', orjson.dumps(self._status)
        if self._request:
            pieces += b',"requestObject":', self._request
        if self._response:
            pieces += b',"responseObject":', self._response
        pieces.append(f',"requestReceivedTimestamp":"{self._received}","stageTimestamp":"{at}"'.encode())
        if self.annotations:
            pieces += b',"annotations":', orjson.dumps(self.annotations)
        pieces.append(b"}")
        return b"".join(pieces)

    def _encode_common(self) -> bytes:
        request = self._request_sent
        fields: Obj = {
            "requestURI": f"{request.path}?{request.query}" if request.query else request.path,
            "verb": self._access.verb,
            "user": _user(self._access.user),
        }
        if self._impersonated is not None:
            fields["impersonatedUser"] = _user(self._impersonated)
            if self._constraint:
                fields["authenticationMetadata"] = {"impersonationConstraint": self._constraint}
        if ips := _source_ips(request):
            fields["sourceIPs"] = ips
        if agent := _user_agent(request):
            fields["userAgent"] = agent
        if self._ref is not None:
            fields["objectRef"] = self._ref
        self._common = b'",' + orjson.dumps(fields)[1:-1]
        return self._common


def _reference(access: Access) -> Obj:
    shown: Obj = {"resource": access.resource}
    if access.namespace:
        shown["namespace"] = access.namespace
    if access.name:
        shown["name"] = access.name
    if access.group:
        shown["apiGroup"] = access.group
    shown["apiVersion"] = access.version
    if access.subresource:
        shown["subresource"] = access.subresource
    return shown


def _user(user: UserInfo) -> Obj:
    shown: Obj = {}
    if user.name:
        shown["username"] = user.name
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = list(user.groups)
    if user.extra:
        shown["extra"] = {key: list(user.extra[key]) for key in sorted(user.extra)}
    return shown


def _single_line(body: bytes, change: Callable[[Obj], Obj] | None = None) -> bytes:
    """Return a JSON body in one line, or b"" if it is no JSON object."""
    body = body.strip()
    if body[:1] not in (b"{", b"["):
        # YAML is rare, and its library slow to load.
        from setpoint.meta.body import BodyError, parse_yaml

        try:
            value, _ = parse_yaml(body)
        except BodyError:
            return b""
        return orjson.dumps(change(value) if change is not None else value)
    if change is None and b"\n" not in body:
        return body
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return b""
    return orjson.dumps(change(value) if change is not None else value)


def _without_managed_fields(obj: Obj) -> Obj:
    """Return the object without managedFields, its own and those of its items or rows."""
    obj = _strip_managed_fields(obj)
    if isinstance(obj.get("items"), list):
        obj["items"] = [_strip_managed_fields(item) for item in obj["items"]]
    elif isinstance(obj.get("rows"), list):
        obj["rows"] = [
            {**row, "object": _strip_managed_fields(row["object"])} if isinstance(row.get("object"), dict) else row
            for row in obj["rows"]
        ]
    return obj


def _strip_managed_fields(obj: Obj) -> Obj:
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return dict(obj)
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}
