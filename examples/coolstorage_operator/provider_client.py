"""The operator's side of the provider's API."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from setpoint.meta.objects import Obj

Send = Callable[[str, str, str, Obj | None], Awaitable[tuple[int, Obj]]]
"""(method, target, idempotency key, body) -> (status, document). Raises ProviderDown."""

_TIMEOUT = 10.0


class ProviderDown(Exception):
    """It cannot be reached, or says that it cannot serve us now: later it may."""


class Refused(Exception):
    """It does not want to do what we ask: asking again is no use before the wish is another."""


class ProviderClient:
    def __init__(self, send: Send) -> None:
        self._send = send

    async def find(self, owner: str) -> Obj | None:
        """The owner's bucket."""
        found = await self._ask("GET", f"/buckets?owner={quote(owner)}")
        return found["buckets"][0] if found["buckets"] else None

    async def create(self, owner: str, settings: Obj) -> Obj:
        """A bucket for the owner. The owner is the idempotency key too: whoever does not know whether it has one, for
        it crashed before the answer came, may ask again and gets the same."""
        return await self._ask("POST", "/buckets", key=owner, body={"owner": owner, **settings})

    async def update(self, bucket_id: str, settings: Obj) -> Obj:
        return await self._ask("PATCH", f"/buckets/{quote(bucket_id)}", body=settings)

    async def delete(self, bucket_id: str) -> None:
        try:
            await self._ask("DELETE", f"/buckets/{quote(bucket_id)}")
        except LookupError:
            return

    async def _ask(self, method: str, target: str, *, key: str = "", body: Obj | None = None) -> Obj:
        status, found = await self._send(method, target, key, body)
        if status < 300:
            return found
        message = f"{method} {target}: {status} {found.get('error', '')}".rstrip()
        if status == 404:
            raise LookupError(message)
        raise ProviderDown(message) if status >= 500 or status == 429 else Refused(message)


def over_http(base: str) -> Send:
    """Through urllib, in a thread: the loop goes on meanwhile."""

    def send(method: str, target: str, key: str, body: Obj | None) -> tuple[int, Obj]:
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(base + target, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, _document(error.read())
        except (OSError, ValueError) as error:
            raise ProviderDown(f"{method} {base}{target}: {error}") from error

    async def in_a_thread(method: str, target: str, key: str, body: Obj | None) -> tuple[int, Obj]:
        return await asyncio.to_thread(send, method, target, key, body)

    return in_a_thread


def _document(data: bytes) -> Obj:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
