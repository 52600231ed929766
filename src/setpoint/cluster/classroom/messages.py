"""The JSON bodies of requests and responses between the front, its workers and their seats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from setpoint.meta.errors import BadRequest
from setpoint.wire.message import Request, Response


def json_body(request: Request) -> dict[str, Any]:
    """Return the object in the body of a request. Raises BadRequest."""
    try:
        found = orjson.loads(request.body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise BadRequest("the body must be a JSON object")
    return found


def json_response(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(status, orjson.dumps(value), [("Content-Type", "application/json")])
