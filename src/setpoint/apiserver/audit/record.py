"""What is told of one request, from its coming in to the last byte of its answer."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
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
    Applied,
)  # fmt: skip
from setpoint.apiserver.audit.source import source_ips, user_agent
from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import Access, Decision, Problem
from setpoint.apiserver.http.message import Answer, ObjectResponse, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.protobuf_answers import decode_value
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.protobuf.envelope import MAGIC
from setpoint.meta.times import format_micro

Obj = dict[str, Any]
Send = Callable[[AuditEvent], Awaitable[bool]]

_LONG_RUNNING = frozenset({"attach", "exec", "proxy", "log", "portforward"})
_REFERENCE = (
    "resource", "namespace", "name", "uid", "apiGroup", "apiVersion", "resourceVersion", "subresource",
)  # fmt: skip
_FROM_BODY = ("namespace", "name", "uid", "resourceVersion")
_STATUS_FIELDS = ("status", "message", "reason", "details", "code")
_STATUS = b'{"kind":"Status",'
_DECISION, _REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"


class Annotations(dict[str, str]):
    """What was said first stays."""

    __slots__ = ()

    def __setitem__(self, key: str, value: str) -> None:
        self.setdefault(key, value)


class Record:
    __slots__ = (
        "_access", "_acted", "_beginning", "_clock", "_constraint", "_head", "_long", "_omit", "_omit_managed_fields",
        "_received", "_ref", "_request", "_request_sent", "_response", "_send", "_started_only", "_status",
        "annotations", "level",
    )  # fmt: skip

    def __init__(self, call: Call, access: Access, applied: Applied, clock: Clock, send: Send) -> None:
        self.level, self._omit, self._omit_managed_fields = applied
        self._clock, self._send = clock, send
        self._request_sent, self._access = call.request, access
        self._head = b'{"level":"%b","auditID":%b,"stage":"' % (
            LEVELS[self.level].encode(),
            orjson.dumps(call.audit_id),
        )
        self._received = format_micro(call.now)
        self._acted: UserInfo | None = None
        self._constraint = ""
        self._ref: Obj | None = _reference(access) if access.path is None else None
        self._beginning = b""
        """What follows the stage in every event; empty: it must be written anew."""
        self._long = access.verb == "watch" or (access.path is None and access.subresource in _LONG_RUNNING)
        self._started_only = False
        self._status: Obj | None = None
        self._request = self._response = b""
        self.annotations = Annotations()

    @property
    def tells_objects(self) -> bool:
        return self.level >= REQUEST

    # -- what the server learns on the way ----------------------------------------------------------------------------

    def failed_authentication(self) -> None:
        """Nothing was told yet, and there is only one thing to tell."""
        self._started_only = True

    def acts_as(self, user: UserInfo, constraint: str) -> None:
        self._acted, self._constraint, self._beginning = user, constraint, b""

    def decided(self, decision: Decision, reason: str) -> None:
        if decision is not Decision.ALLOW and isinstance(reason, Problem):
            self.annotations[_REASON] = "internal error"
            return
        self.annotations[_DECISION] = "allow" if decision is Decision.ALLOW else "forbid"
        self.annotations[_REASON] = reason.reason if isinstance(reason, Problem) else reason

    def sent(self, obj: Obj, kind: str, api_version: str) -> None:
        """The body of the request as an object, which is not looked at any more after this returns."""
        ref, meta = self._ref, obj.get("metadata")
        if ref is not None and isinstance(meta, dict):
            known = {**{name: meta[name] for name in _FROM_BODY if meta.get(name)}, **ref}
            self._ref, self._beginning = {name: known[name] for name in _REFERENCE if name in known}, b""
        if self.level < REQUEST:
            return
        named = {"kind": kind, "apiVersion": api_version}
        whole = {**named, **obj, **named}
        self._request = orjson.dumps(_bare(whole) if self._omit_managed_fields else whole)

    def patched(self, patch: Any) -> None:
        """The body as a patch, parsed: what is no JSON must not get into the log."""
        if self.level >= REQUEST:
            self._request = orjson.dumps(patch)

    def refused(self, error: ApiError, negotiated: bool = True) -> None:
        """`negotiated`: the client can read it."""
        if not negotiated:
            self._status = {"metadata": {}}
            return
        status = error.status()
        self._take_status(status)
        if self.level == REQUEST_RESPONSE:
            self._response = orjson.dumps(status)

    # -- the answer ---------------------------------------------------------------------------------------------------

    async def received(self) -> bool:
        return await self._tell(RECEIVED)

    async def answered(self, call: Call, answer: Answer) -> Answer:
        """The answer as it is to be sent: a stream tells of its own end."""
        if isinstance(answer, UpgradeResponse | StreamResponse):
            self._code(101 if isinstance(answer, UpgradeResponse) else answer.status)
            if self._long:
                await self._tell(STARTED)
            run = answer.run

            async def told(to: Any) -> None:
                try:
                    await run(to)
                except (CancelledError, OSError):
                    await self._tell(COMPLETE)
                    raise
                except Exception as error:
                    await self.broke_off(error)
                    raise
                await self._tell(COMPLETE)

            answer.run = told
            return answer
        if self._status is None:
            self._look_at(call, answer)
        self._code(answer.status)
        if self._long or self._started_only:
            await self._tell(STARTED)
        if not self._started_only:
            await self._tell(COMPLETE)
        return answer

    async def broke_off(self, error: BaseException) -> None:
        """There will be no answer of ours: the client is gone, or something went wrong that nobody had thought of."""
        if isinstance(error, CancelledError):
            if self._status is None:
                self._status = {"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200}
            await self._tell(COMPLETE)
            return
        # What went wrong may hold anything, also what nobody may read: its name must do.
        what = f"APIServer panic'd: {type(error).__name__}"
        self._status = {
            "metadata": {}, "status": "Failure", "message": what, "reason": "InternalError", "code": 500,
        }  # fmt: skip
        await self._tell(PANIC)

    def _look_at(self, call: Call, answer: Response | ObjectResponse) -> None:
        """What an answer says that is no refusal."""
        if isinstance(answer, ObjectResponse):
            if answer.value.get("kind") == "Status":
                self._take_status(answer.value)
            if self.level == REQUEST_RESPONSE:
                value = answer.value
                self._response = orjson.dumps(_bare(value) if self._omit_managed_fields else value)
            return
        body = answer.body
        if call.resource is None:
            if call.target.resource or not call.target.path.startswith("/api") or answer.status != 200:
                return  # what others answer, and what is no object of the API
        elif call.target.subresource in _LONG_RUNNING:
            return
        whole = answer.whole_body if self.level == REQUEST_RESPONSE else b""
        if isinstance(body, bytes) and body.startswith(MAGIC):
            body = whole = orjson.dumps(decode_value(body))
        if isinstance(body, bytes) and body.startswith(_STATUS):
            self._take_status(orjson.loads(body))
        if self.level == REQUEST_RESPONSE:
            self._response = _in_a_line(whole, _bare if self._omit_managed_fields else None)

    def _take_status(self, status: Obj) -> None:
        shown = {name: status[name] for name in _STATUS_FIELDS if status.get(name)}
        if "details" in status:
            shown["details"] = status["details"]  # {} is told
        self._status = {"metadata": {}, **shown}

    def _code(self, status: int) -> None:
        if self._status is None:
            self._status = {"metadata": {}}
        self._status["code"] = status

    async def _tell(self, stage: str) -> bool:
        if stage in self._omit:
            return True
        at = self._received if stage == RECEIVED else format_micro(self._clock.now())
        return await self._send(AuditEvent(self._item(stage, at), self.level))

    def _item(self, stage: str, at: str) -> bytes:
        """In the order of upstream's fields."""
        beginning = self._beginning or self._begin()
        pieces = [self._head, stage.encode(), beginning]
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

    def _begin(self) -> bytes:
        request = self._request_sent
        fields: Obj = {
            "requestURI": f"{request.path}?{request.query}" if request.query else request.path,
            "verb": self._access.verb,
            "user": _user(self._access.user),
        }
        if self._acted is not None:
            fields["impersonatedUser"] = _user(self._acted)
            if self._constraint:
                fields["authenticationMetadata"] = {"impersonationConstraint": self._constraint}
        if ips := source_ips(request):
            fields["sourceIPs"] = ips
        if agent := user_agent(request):
            fields["userAgent"] = agent
        if self._ref is not None:
            fields["objectRef"] = self._ref
        self._beginning = b'",' + orjson.dumps(fields)[1:-1]
        return self._beginning


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


def _in_a_line(body: bytes, change: Callable[[Obj], Obj] | None = None) -> bytes:
    """A body as part of a line; empty: it is no JSON object."""
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


def _bare(obj: Obj) -> Obj:
    """Without managedFields, its own and those of its items or rows."""
    obj = _without(obj)
    if isinstance(obj.get("items"), list):
        obj["items"] = [_without(item) for item in obj["items"]]
    elif isinstance(obj.get("rows"), list):
        obj["rows"] = [
            {**row, "object": _without(row["object"])} if isinstance(row.get("object"), dict) else row
            for row in obj["rows"]
        ]
    return obj


def _without(obj: Obj) -> Obj:
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return dict(obj)
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}
