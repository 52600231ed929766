"""`GET /setpoint/v1/causes?revisions=7,12`: who made these writes, from the causes that the store keeps beside them.

A revision that had no cause recorded, or whose history was compacted, is missing from the answer. Who may ask is a
question of authorization as for any path outside the API: administrators by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.refusals import NOT_ALLOWED
from setpoint.apiserver.server import PathHandler
from setpoint.meta.errors import BadRequest, MethodNotAllowed, NotFound
from setpoint.store.interface import Cause, Compacted, Store

PATH = "/setpoint/v1/causes"
_MOST = 500
"""Revisions of one request."""
_LONGEST = _MOST * 20


@runtime_checkable
class _KeepsCauses(Protocol):
    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]: ...


def serve_causes(store: Store) -> PathHandler:
    async def answer(call: Call) -> Answer:
        if call.request.method != "GET":
            raise MethodNotAllowed(NOT_ALLOWED, details={})
        if not isinstance(store, _KeepsCauses):
            raise NotFound("this store keeps no causes")
        found = []
        for revision in _revisions(call.option("revisions")):
            try:
                causes = await store.causes(revision - 1, 1)
            except Compacted:
                continue
            if causes and causes[0].revision == revision:
                found.append({"revision": revision, **orjson.loads(causes[0].cause)})
        return Response(200, orjson.dumps({"causes": found}), [("Content-Type", JSON)])

    return answer


def _revisions(text: str) -> list[int]:
    """Raises BadRequest."""
    words = text.split(",", _MOST) if len(text) <= _LONGEST else []
    if not 0 < len(words) <= _MOST or not all(word.isascii() and word.isdigit() and word != "0" for word in words):
        raise BadRequest(f"revisions must be 1 to {_MOST} positive numbers, separated by commas")
    return [int(word) for word in words]
