"""The errors that unsuccessful responses represent, and retries of conflicts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from setpoint.client.transport import Reply, header
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Conflict, Expired, from_status
from setpoint.meta.json_codec import decode_json

_BY_CODE = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", "the server does not allow access to the requested resource"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    406: ("NotAcceptable", "the server was unable to respond with a content type that the client supports"),
    409: ("Conflict", "the server reported a conflict"),
    410: ("Expired", "the server no longer has what was asked for"),
    413: ("RequestEntityTooLarge", "the request is too large"),
    415: ("UnsupportedMediaType", "the server could not understand the format of our request"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "an error on the server has prevented the request from succeeding"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted"),
}
_MAX_TEXT = 2048


def failure(reply: Reply) -> ApiError:
    status = _status_of(reply)
    if status is not None:
        return failure_of(status)
    reason, message = _BY_CODE.get(reply.status, ("", f"the server answered with the unknown status {reply.status}"))
    text = reply.body[:_MAX_TEXT].decode("utf-8", "replace").strip()
    if text and reply.status != 404:
        message += f" ({text})"
    details: dict[str, Any] = {}
    retry_after = header(reply.headers, "retry-after")
    if retry_after.isdigit():
        details["retryAfterSeconds"] = int(retry_after)
    return from_status({"code": reply.status, "reason": reason, "message": message, "details": details})


def failure_of(status: dict[str, Any]) -> ApiError:
    error = from_status(status)
    if error.code == 410 and not isinstance(error, Expired):
        expired = Expired(error.message, details=error.details)
        expired.reason = error.reason
        error = expired
    error.continue_token = (status.get("metadata") or {}).get("continue") or ""
    return error


def _status_of(reply: Reply) -> dict[str, Any] | None:
    try:
        found = decode_json(reply.body)
    except ValueError:
        return None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return {"code": reply.status, **found}
    return None


T = TypeVar("T")


async def retry_on_conflict(
    attempt: Callable[[], Awaitable[T]], clock: Clock, *, attempts: int = 5, pause: float = 0.01
) -> T:
    """Call `attempt`, which reads, changes and writes, until there is no conflict. Raise the last Conflict after
    `attempts`."""
    for _ in range(attempts - 1):
        try:
            return await attempt()
        except Conflict:
            await clock.sleep(pause)
    return await attempt()
