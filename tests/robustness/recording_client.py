"""A client that sends each request once, to one of several servers, and records the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import orjson
from tests.robustness.etcd_log import summary
from tests.robustness.history import OK, REFUSED, UNKNOWN, Call, History

from setpoint.client.https import HttpsTransport
from setpoint.client.kubeconfig import Access
from setpoint.client.transport import Headers, Reply, StreamReply, Unreachable
from setpoint.meta.clock import Clock

TIMEOUT = 2.5
"""Seconds after which a client gives up a request and uses another server."""
_CONNECT_TIMEOUT = 1.0
_JSON: Headers = (("accept", "application/json"), ("content-type", "application/json"))
_DEFINITE = range(400, 500)
_NO_EFFECT = 503
"""A write that is answered with this status was not attempted; other server errors leave it open."""
_PATHS = {
    "core/configmaps": ("/api/v1/namespaces/{}/configmaps", "v1", "ConfigMap"),
    "core/services": ("/api/v1/namespaces/{}/services", "v1", "Service"),
}


class Servers:
    """A transport to one of several servers. After a failure, the next request goes to the next server."""

    def __init__(self, access: Mapping[str, Access], clock: Clock, first: str) -> None:
        self._order = [first, *(name for name in access if name != first)]
        self._transports = {
            name: HttpsTransport(each, clock, timeout=TIMEOUT, connect_timeout=_CONNECT_TIMEOUT)
            for name, each in access.items()
        }

    @property
    def current(self) -> str:
        return self._order[0]

    def advance(self) -> None:
        self._order.append(self._order.pop(0))

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        used = self.current
        try:
            reply = await self._transports[used].request(method, path, query, headers, body)
        except Unreachable:
            self._leave(used)
            raise
        if reply.status >= 500:
            self._leave(used)
        return reply

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        used = self.current
        try:
            return await self._transports[used].stream(method, path, query, headers, body)
        except Unreachable:
            self._leave(used)
            raise

    def _leave(self, server: str) -> None:
        if self.current == server:
            self.advance()

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()


class RecordingClient:
    def __init__(self, name: str, servers: Servers, history: History, clock: Clock) -> None:
        self.name = name
        self.servers = servers
        self._history = history
        self._clock = clock

    async def create(self, key: str, value: str, **fields: Any) -> Call:
        path, body = _collection(key), {**_object(key, value), **fields}
        return await self._write("create", key, "POST", path, body, value=value)

    async def update(self, key: str, value: str, expected: int) -> Call:
        body = _object(key, value)
        body["metadata"]["resourceVersion"] = str(expected)
        return await self._write("update", key, "PUT", _path(key), body, value=value, expected=expected)

    async def delete(self, key: str, expected: int) -> Call:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": str(expected)}}
        return await self._write("delete", key, "DELETE", _path(key), body, expected=expected)

    async def get(self, key: str) -> Call:
        server, invoked = self.servers.current, self._clock.monotonic()
        reply = await self._request("GET", _path(key))
        record = _outcome(reply)
        if isinstance(reply, Reply) and record["outcome"] == OK:
            obj = orjson.loads(reply.body)
            record |= {"revision": int(obj["metadata"]["resourceVersion"]), "value": summary(key, obj)}
        return self._record("get", key, server, invoked, record)

    async def list(self, prefix: str, *, limit: int = 0, stale_allowed: bool = False) -> Call:
        """List all objects under a prefix; the pages come from one server after the other. A failed page fails all."""
        server, invoked, items = self.servers.current, self._clock.monotonic(), {}
        query = {"resourceVersion": "0"} if stale_allowed else {}
        if limit:
            query["limit"] = str(limit)
        while True:
            reply = await self._request("GET", _collection(prefix), urlencode(query))
            record = _outcome(reply)
            if not isinstance(reply, Reply) or record["outcome"] != OK:
                break
            answer = orjson.loads(reply.body)
            for obj in answer["items"]:
                key = prefix + obj["metadata"]["name"]
                items[key] = int(obj["metadata"]["resourceVersion"]), summary(key, obj)
            record |= {"revision": int(answer["metadata"]["resourceVersion"]), "items": items}
            token = answer["metadata"].get("continue")
            if not token:
                break
            self.servers.advance()
            server = f"{server} {self.servers.current}"
            query = {"limit": str(limit), "continue": token}
        return self._record("list", prefix, server, invoked, {**record, "stale_allowed": stale_allowed})

    async def _write(
        self,
        verb: str,
        key: str,
        method: str,
        path: str,
        body: dict[str, Any],
        value: str | None = None,
        expected: int = 0,
    ) -> Call:
        server, invoked = self.servers.current, self._clock.monotonic()
        reply = await self._request(method, path, body=orjson.dumps(body))
        record = {**_outcome(reply), "value": value, "expected": expected}
        if isinstance(reply, Reply) and record["outcome"] == OK and verb != "delete":
            obj = orjson.loads(reply.body)
            record["revision"] = int(obj["metadata"]["resourceVersion"])
            record["value"] = summary(key, obj)
        return self._record(verb, key, server, invoked, record)

    async def _request(self, method: str, path: str, query: str = "", body: bytes = b"") -> Reply | Unreachable:
        try:
            return await self.servers.request(method, path, query, _JSON, body)
        except Unreachable as problem:
            return problem

    def _record(self, verb: str, key: str, server: str, invoked: float, record: dict[str, Any]) -> Call:
        call = Call(self.name, server, verb, key, invoked, self._clock.monotonic(), **record)
        self._history.add(call)
        return call


def _outcome(reply: Reply | Unreachable) -> dict[str, Any]:
    if isinstance(reply, Unreachable):
        return {"outcome": UNKNOWN, "message": str(reply)}
    if reply.status < 300:
        return {"outcome": OK, "code": reply.status}
    definite = reply.status in _DEFINITE or reply.status == _NO_EFFECT
    message = reply.body[:300].decode(errors="replace")
    return {"outcome": REFUSED if definite else UNKNOWN, "code": reply.status, "message": message}


def _collection(key: str) -> str:
    group, plural, namespace, _ = key.split("/")
    return _PATHS[f"{group}/{plural}"][0].format(namespace)


def _path(key: str) -> str:
    return f"{_collection(key)}/{key.rpartition('/')[2]}"


def _object(key: str, value: str) -> dict[str, Any]:
    group, plural, namespace, name = key.split("/")
    _, version, kind = _PATHS[f"{group}/{plural}"]
    obj: dict[str, Any] = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    if kind == "ConfigMap":
        obj["data"] = {"value": value}
    return obj
