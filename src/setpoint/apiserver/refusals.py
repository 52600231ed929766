"""How the server says no."""

from __future__ import annotations

import logging

from setpoint.apiserver.call import Call
from setpoint.apiserver.filters.authorize import Problem, harmless
from setpoint.apiserver.filters.inflight import Overloaded
from setpoint.apiserver.http.message import Answer, ObjectRequest, Request, Response
from setpoint.apiserver.negotiate import Form, negotiate
from setpoint.apiserver.rendering import respond_error
from setpoint.apiserver.request import READS
from setpoint.meta.errors import ApiError, InternalError, NotAcceptable, ServiceUnavailable, Timeout
from setpoint.meta.goformat import quote
from setpoint.store.interface import StoreError, Unavailable

log = logging.getLogger("setpoint.apiserver")

NOT_ALLOWED = "the server does not allow this method on the requested resource"
_RETRY_AFTER = 1
"""Seconds until a client may ask again when the store could not be reached."""
_PLAIN = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]


def page_not_found() -> Response:
    return Response(404, b"404 page not found\n", list(_PLAIN))


def unreadable() -> Response:
    return Response(400, b"400 Bad Request", [_PLAIN[0]])


def refusal(call: Call, error: ApiError) -> Answer:
    if isinstance(error, Overloaded) and not isinstance(call.request, ObjectRequest):
        return Response(429, f"{error}\n".encode(), [*_PLAIN, ("Retry-After", str(error.retry_after))])
    try:
        # A client that wants its objects in another shape did not say in which form it wants to hear of failures.
        accept = call.request.headers.get("accept", "")
        form: Form | None = negotiate(accept, collection=False, transforms=frozenset(), protobuf=True)
    except NotAcceptable:
        form = None
    if call.audit is not None:
        call.audit.refused(error, negotiated=form is not None)
    return respond_error(call, Form(form.media_type) if form is not None else Form(), error)


def unavailable(error: Unavailable) -> ServiceUnavailable:
    """Return the refusal of a request that has done nothing yet, because the store cannot be reached for now."""
    return ServiceUnavailable(str(error), details={"retryAfterSeconds": _RETRY_AFTER})


def store_refusal(call: Call, error: StoreError) -> ApiError:
    """Return the answer to a request that the store could not serve. A write whose outcome is unknown is a timeout
    without a time to retry after: a client must look before it writes again."""
    if not isinstance(error, Unavailable):
        return InternalError.of(str(error))
    return unavailable(error) if call.verb in READS else Timeout.of(str(error))


def undecided(request: Request, problem: Problem) -> Response:
    log.warning("authorization: %s", problem)
    uri = f"{request.path}?{request.query}" if request.query else request.path
    text = harmless(f"Internal Server Error: {quote(uri)}: {problem}")
    return Response(500, f"{text}\n".encode(), list(_PLAIN))
