"""A storage provider, somewhere outside the cluster: `python -m examples.coolstorage_operator.provider`.

    POST   /buckets              makes one; the same Idempotency-Key gives the same bucket, however often it is sent
    GET    /buckets?owner=...    those of an owner
    GET    /buckets/ID
    PATCH  /buckets/ID           changes its size or its versioning
    DELETE /buckets/ID
    POST   /faults               {"next": 3, "status": 503}: so many requests fail from now on

It keeps everything in memory. A bucket takes a while until it can be used: its state is `provisioning`, then `ready`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from http.client import responses
from urllib.parse import parse_qs, urlsplit

from setpoint.meta.objects import Obj

log = logging.getLogger(__name__)

Answer = tuple[int, Obj]

_MOST_BYTES = 1 << 20
_CHANGEABLE = ("sizeGB", "versioning")


class Provider:
    def __init__(self, now: Callable[[], float] = time.monotonic, provisioning_seconds: float = 5.0) -> None:
        self.buckets: dict[str, Obj] = {}
        self.created = 0
        """How many there have ever been."""
        self._keys: dict[str, str] = {}
        self._ready_at: dict[str, float] = {}
        self._now = now
        self._provisioning = provisioning_seconds
        self.failures = 0
        """So many requests from now on get `failure` for an answer."""
        self.failure = 503

    def answer(self, method: str, target: str, key: str = "", body: Obj | None = None) -> Answer:
        """What a request gets: a status and a document."""
        url = urlsplit(target)
        if (method, url.path) == ("POST", "/faults"):
            self.failures, self.failure = int((body or {}).get("next", 1)), int((body or {}).get("status", 503))
            return 200, {}
        if self.failures > 0:
            self.failures -= 1
            return self.failure, {"error": "the provider is not well"}
        match method, url.path.strip("/").split("/"):
            case "POST", ["buckets"]:
                return self._create(key, body or {})
            case "GET", ["buckets"]:
                owner = parse_qs(url.query).get("owner", [""])[0]
                return 200, {"buckets": [self._seen(each) for each in self.buckets.values() if each["owner"] == owner]}
            case _, ["buckets", bucket_id] if bucket_id in self.buckets:
                return self._one(method, bucket_id, body or {})
            case _:
                return 404, {"error": f"there is no {url.path}"}

    def _create(self, key: str, body: Obj) -> Answer:
        if not key or not body.get("owner"):
            return 400, {"error": "an Idempotency-Key and an owner are needed"}
        if problem := _problem(body):
            return 422, {"error": problem}
        bucket_id = self._keys.get(key)
        if bucket_id is None:
            self.created += 1
            bucket_id = self._keys[key] = f"bkt-{self.created:04d}"
            self._ready_at[bucket_id] = self._now() + self._provisioning
            self.buckets[bucket_id] = {"id": bucket_id, "url": f"https://cool.example/{bucket_id}", **body}
        return 201, self._seen(self.buckets[bucket_id])

    def _one(self, method: str, bucket_id: str, body: Obj) -> Answer:
        bucket = self.buckets[bucket_id]
        if method == "PATCH":
            if problem := _problem(body):
                return 422, {"error": problem}
            bucket |= {name: body[name] for name in _CHANGEABLE if name in body}
        elif method == "DELETE":
            del self.buckets[bucket_id]
            # Its key is free again: whoever had it may have another.
            self._keys = {key: each for key, each in self._keys.items() if each != bucket_id}
            return 200, {}
        elif method != "GET":
            return 405, {"error": f"{method} is not known here"}
        return 200, self._seen(bucket)

    def _seen(self, bucket: Obj) -> Obj:
        ready = self._now() >= self._ready_at[bucket["id"]]
        return {**bucket, "state": "ready" if ready else "provisioning"}


def _problem(body: Obj) -> str:
    size = body.get("sizeGB", 1)
    return "" if isinstance(size, int) and 0 < size <= 1000 else "a bucket has from 1 to 1000 GB"


async def serve(provider: Provider, port: int = 0) -> asyncio.Server:
    """Over HTTP on the loopback address; port 0 picks one."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, found = await _answered(provider, reader)
            data = json.dumps(found).encode()
            head = (
                f"HTTP/1.1 {status} {responses.get(status, '')}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + data)
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, limit=_MOST_BYTES)
    host, chosen, *_ = server.sockets[0].getsockname()
    log.info("the provider listens on http://%s:%d", host, chosen)
    return server


async def _answered(provider: Provider, reader: asyncio.StreamReader) -> Answer:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.strip().split("\r\n")
        method, target, _ = request.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if length > _MOST_BYTES:
            return 413, {"error": "too large"}
        body = json.loads(await reader.readexactly(length)) if length else {}
        if not isinstance(body, dict):
            return 400, {"error": "an object is needed"}
    except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return 400, {"error": "this is not a request"}
    return provider.answer(method, target, headers.get("idempotency-key", ""), body)


async def main(port: int = 8900) -> None:
    try:
        server = await serve(Provider(), port)
    except OSError as error:
        raise SystemExit(f"the provider cannot listen: {error.strerror}") from None
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asyncio.run(main())
