"""Writes that are only tried: the server answers as if, keeps nothing, and what would change is logged."""

from __future__ import annotations

import logging
from collections import OrderedDict
from difflib import unified_diff
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson

from setpoint.client import Client
from setpoint.client.transport import Headers, Reply, StreamReply, Transport

log = logging.getLogger("setpoint.operator.dry_run")

Obj = dict[str, Any]
_READS = ("GET", "HEAD")
_MOST_REMEMBERED = 1000
_MOST_LINES = 200
_NO_NEWS = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")


def dry_run_client(client: Client) -> Client:
    """The same client, whose writes are only tried: whatever goes through it, by whichever method."""
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
    """Connections that leave HTTP (exec, attach, port-forward) are not to be had: nobody could say what they do."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._told: OrderedDict[str, str] = OrderedDict()
        """What was last logged of each object: a reconcile that comes back has no news."""

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        if method in _READS:
            return await self._inner.request(method, path, query, headers, body)
        before = await self._before(method, path, headers)
        reply = await self._inner.request(method, path, *_only_tried(method, query, headers, body))
        if reply.status < 400:
            self._tell(method, path, before, _object(reply.body))
        return reply

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        if method not in _READS:
            query, headers, body = _only_tried(method, query, headers, body)
        return await self._inner.stream(method, path, query, headers, body)

    async def close(self) -> None:
        await self._inner.close()

    async def _before(self, method: str, path: str, headers: Headers) -> Obj:
        if method == "POST":
            return {}
        reading = [(name, value) for name, value in headers if name != "content-type"]
        reply = await self._inner.request("GET", path, "", reading, b"")
        return _object(reply.body) if reply.status < 400 else {}

    def _tell(self, method: str, path: str, before: Obj, after: Obj) -> None:
        kind = after.get("kind") or ""
        if kind == "Event" or kind.endswith("Review"):
            return
        if method == "DELETE":
            items = after.get("items") if kind.endswith("List") else None
            for each in (before or after,) if items is None else items:
                self._say(path, "delete", {"kind": kind.removesuffix("List"), **each}, "")
        elif change := _diff(before, after):
            self._say(path, "change" if before else "create", after, change)

    def _say(self, path: str, verb: str, obj: Obj, change: str) -> None:
        what = _name(obj) or path
        about, said = f"{path} {what}", f"{verb}\n{change}"
        if self._told.get(about) == said:
            return
        self._told[about] = said
        self._told.move_to_end(about)
        if len(self._told) > _MOST_REMEMBERED:
            self._told.popitem(last=False)
        log.info("would %s %s%s", verb, what, f":\n{change}" if change else "")


def _only_tried(method: str, query: str, headers: Headers, body: bytes) -> tuple[str, Headers, bytes]:
    if method == "DELETE" and body:
        # Options in the body go before those in the query.
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
    from setpoint.meta.yaml_write import write  # slow to load, and only needed here

    def lines(obj: Obj) -> list[str]:
        meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _NO_NEWS}
        return write({**obj, "metadata": meta}).decode().splitlines() if obj else []

    shown = _masked(before, after, "before"), _masked(after, before, "after")
    found = list(unified_diff(lines(shown[0]), lines(shown[1]), lineterm="", n=2))[2:]
    if len(found) > _MOST_LINES:
        found = [*found[:_MOST_LINES], f"... and {len(found) - _MOST_LINES} lines more"]
    return "\n".join(found)


def _masked(obj: Obj, other: Obj, when: str) -> Obj:
    """What a Secret holds is not for logs; only that it changes."""
    if "Secret" not in (obj.get("kind"), other.get("kind")) or not isinstance(obj.get("data"), dict):
        return obj
    known = other.get("data") or {}
    data = {key: "***" if known.get(key) == value else f"*** ({when})" for key, value in obj["data"].items()}
    return {**obj, "data": data}
