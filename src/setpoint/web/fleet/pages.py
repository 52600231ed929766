"""Pages of a list, decoded without the managedFields, which are half of a Pod and of no use in a picture."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from setpoint.client import Client, Resource
from setpoint.client.resources import path_of, query_of
from setpoint.meta.objects import Obj

_BEGIN: Final = b',"managedFields":[{'
_END: Final = b'}]},"spec":{'
"""The end of the managedFields, as the last field of the metadata, and the beginning of the spec. Neither text can be a
part of a JSON string, in which quotes are escaped."""
_OTHERS: Final = (b'}],"', b'"metadata":{')
"""Texts between the two that say that the managedFields end before: another field, or another object, follows."""


class ListPage(NamedTuple):
    items: list[Obj]
    resource_version: str
    continue_token: str
    remaining: int
    """The number of objects on the pages after this one; 0 if it is not known."""


async def list_page(client: Client, resource: Resource, namespace: str, limit: int, continue_token: str) -> ListPage:
    """Return a page of a list. Raises Expired for a token that is too old."""
    query = query_of({"limit": limit, "continue": continue_token})
    reply = await client.sender.request("GET", path_of(resource, namespace), query)
    found: dict[str, Any] = orjson.loads(without_managed_fields(reply.body))
    meta = found.get("metadata") or {}
    return ListPage(
        found.get("items") or [],
        meta.get("resourceVersion") or "",
        meta.get("continue") or "",
        meta.get("remainingItemCount") or 0,
    )


def without_managed_fields(body: bytes) -> bytes:
    """Return a list of objects without their managedFields, as far as these are where servers write them."""
    parts = []
    start = 0
    while (begin := body.find(_BEGIN, start)) >= 0:
        end = body.find(_END, begin)
        if end < 0:
            break
        if any(body.find(each, begin, end) >= 0 for each in _OTHERS):
            parts.append(body[start : begin + 1])
            start = begin + 1
            continue
        parts.append(body[start:begin])
        start = end + 2  # after the bracket that closes the managedFields
    parts.append(body[start:])
    return b"".join(parts)
