"""Responses for errors."""

from __future__ import annotations

import logging

from setpoint.apiserver.filters.authorize import Problem, escape_html
from setpoint.apiserver.filters.request_limits import Overloaded
from setpoint.apiserver.negotiate import Form, negotiate
from setpoint.apiserver.rendering import respond_error
from setpoint.apiserver.request_context import READS, RequestContext
from setpoint.meta.errors import (
    ApiError,
    Forbidden,
    InternalError,
    NotAcceptable,
    PlainServerError,
    ServiceUnavailable,
    Timeout,
)
from setpoint.meta.goformat import quote
from setpoint.store.interface import NotProcessed, StoreError, TooLarge, Unavailable
from setpoint.store.quota import QuotaExceeded
from setpoint.wire.message import Answer, ObjectRequest, Request, Response

log = logging.getLogger("setpoint.apiserver")

METHOD_NOT_ALLOWED = "the server does not allow this method on the requested resource"
_RETRY_AFTER = 1
"""Seconds after which a client may retry if the store could not be reached."""
_PLAIN = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]


def page_not_found() -> Response:
    return Response(404, b"404 page not found\n", list(_PLAIN))


def invalid_path() -> Response:
    return Response(400, b"400 Bad Request", [_PLAIN[0]])


def error_response(ctx: RequestContext, error: ApiError) -> Answer:
    if isinstance(error, Overloaded) and not isinstance(ctx.request, ObjectRequest):
        return Response(429, f"{error}\n".encode(), [*_PLAIN, ("Retry-After", str(error.retry_after))])
    try:
        # Transformations such as tables do not apply to errors.
        accept = ctx.request.headers.get("accept", "")
        form: Form | None = negotiate(accept, collection=False, transforms=frozenset(), protobuf=True)
    except NotAcceptable:
        form = None
    if ctx.audit is not None:
        ctx.audit.set_error(error, negotiated=form is not None)
    return respond_error(ctx, Form(form.media_type) if form is not None else Form(), error)


def store_unavailable(error: Unavailable) -> ServiceUnavailable:
    """Return the error for a request that had no effect because the store is unavailable."""
    return ServiceUnavailable(str(error), details={"retryAfterSeconds": _RETRY_AFTER})


def store_error(ctx: RequestContext, error: StoreError) -> ApiError:
    """Return the error for a request that the store could not serve.

    A write whose outcome is unknown is a timeout without a Retry-After: the client must read before it writes again."""
    if isinstance(error, TooLarge):
        return PlainServerError(str(error))
    if isinstance(error, QuotaExceeded):
        return Forbidden(str(error))
    if not isinstance(error, Unavailable):
        return InternalError.of(str(error))
    no_effect = ctx.verb in READS or isinstance(error, NotProcessed)
    return store_unavailable(error) if no_effect else Timeout.of(str(error))


def authorization_failed(request: Request, problem: Problem) -> Response:
    log.warning("authorization: %s", problem)
    uri = f"{request.path}?{request.query}" if request.query else request.path
    text = escape_html(f"Internal Server Error: {quote(uri)}: {problem}")
    return Response(500, f"{text}\n".encode(), list(_PLAIN))
