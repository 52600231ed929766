"""A client whose writes are dry runs: the server validates them and stores nothing, and the changes are logged."""

from __future__ import annotations

import logging
from collections import OrderedDict
from urllib.parse import parse_qsl, urlencode

import orjson

from setpoint.client import Client
from setpoint.client.transport import Headers, Reply, StreamReply, Transport
from setpoint.meta.objects import Obj

log = logging.getLogger("setpoint.operator.dry_run")

_READS = ("GET", "HEAD")
_MAX_LOGGED = 1000
_MAX_LINES = 200
_IGNORED_METADATA = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")


def dry_run_client(client: Client) -> Client:
    """Return the same client with all its writes sent as dry runs."""
    sender = client.sender
    return Client(
        DryRunTransport(sender.transport),
        sender.clock,
        user_agent=sender.user_agent,
        impersonate=sender.impersonate,
        default_namespace=client.default_namespace,
        on_warning=sender.on_warning,
        discovery=client.discovery,
    )


class DryRunTransport:
    """A transport that adds `dryRun=All` to writes. Upgraded connections (exec, attach, port-forward) are not
    supported: their effects cannot be known."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._logged: OrderedDict[str, str] = OrderedDict()
        """The change that was last logged for each object, so that a repeated reconcile does not log it again."""

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        if method in _READS:
            return await self._inner.request(method, path, query, headers, body)
        before = await self._before(method, path, headers)
        reply = await self._inner.request(method, path, *_as_dry_run(method, query, headers, body))
        if reply.status < 400:
            self._log_change(method, path, before, _object(reply.body))
        return reply

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        if method not in _READS:
            query, headers, body = _as_dry_run(method, query, headers, body)
        return await self._inner.stream(method, path, query, headers, body)

    async def close(self) -> None:
        await self._inner.close()

    async def _before(self, method: str, path: str, headers: Headers) -> Obj:
        if method == "POST":
            return {}
        reading = [(name, value) for name, value in headers if name != "content-type"]
        reply = await self._inner.request("GET", path, "", reading, b"")
        return _object(reply.body) if reply.status < 400 else {}

    def _log_change(self, method: str, path: str, before: Obj, after: Obj) -> None:
        kind = after.get("kind") or ""
        if kind == "Event" or kind.endswith("Review"):
            return
        if method == "DELETE":
            items = after.get("items") if kind.endswith("List") else None
            for each in (before or after,) if items is None else items:
                self._log_once(path, "delete", {"kind": kind.removesuffix("List"), **each}, "")
        elif change := _diff(before, after):
            self._log_once(path, "change" if before else "create", after, change)

    def _log_once(self, path: str, verb: str, obj: Obj, change: str) -> None:
        what = _name(obj) or path
        identity, change_text = f"{path} {what}", f"{verb}\n{change}"
        if self._logged.get(identity) == change_text:
            return
        self._logged[identity] = change_text
        self._logged.move_to_end(identity)
        if len(self._logged) > _MAX_LOGGED:
            self._logged.popitem(last=False)
        log.info("would %s %s%s", verb, what, f":\n{change}" if change else "")


def _as_dry_run(method: str, query: str, headers: Headers, body: bytes) -> tuple[str, Headers, bytes]:
    if method == "DELETE" and body:
        # Options in the body take precedence over those in the query.
        options = {**orjson.loads(body), "dryRun": ["All"]}
        return query, headers, orjson.dumps(options)
    given = [(key, value) for key, value in parse_qsl(query, keep_blank_values=True) if key != "dryRun"]
    return urlencode([*given, ("dryRun", "All")]), headers, body


def _object(body: bytes) -> Obj:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _name(obj: Obj) -> str:
    meta = obj.get("metadata") or {}
    where = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{obj.get('kind', '')} {where}{meta.get('name', '')}".strip()


def _diff(before: Obj, after: Obj) -> str:
    # Slow to import, and only needed here.
    from difflib import unified_diff

    from setpoint.meta.yaml_write import write

    def lines(obj: Obj) -> list[str]:
        meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _IGNORED_METADATA}
        return write({**obj, "metadata": meta}).decode().splitlines() if obj else []

    shown = _masked(before, after, "before"), _masked(after, before, "after")
    found = list(unified_diff(lines(shown[0]), lines(shown[1]), lineterm="", n=2))[2:]
    if len(found) > _MAX_LINES:
        found = [*found[:_MAX_LINES], f"... and {len(found) - _MAX_LINES} more lines"]
    return "\n".join(found)


def _masked(obj: Obj, other: Obj, when: str) -> Obj:
    """Return a Secret with masked values that still show which keys change, because logs must not contain secrets."""
    if "Secret" not in (obj.get("kind"), other.get("kind")) or not isinstance(obj.get("data"), dict):
        return obj
    known = other.get("data") or {}
    data = {key: "***" if known.get(key) == value else f"*** ({when})" for key, value in obj["data"].items()}
    return {**obj, "data": data}
