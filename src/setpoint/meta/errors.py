"""One error tree; every leaf knows its Kubernetes `Status`.

ApiError                       any failure that a client sees, with code, reason, message, details
├─ BadRequest            400   the request is malformed
├─ Unauthorized          401
├─ Forbidden             403
├─ NotFound              404
├─ MethodNotAllowed      405
├─ NotAcceptable         406
├─ AlreadyExists         409   create of a name that is in use
├─ Conflict              409   a precondition or resourceVersion does not hold (any more)
├─ Gone / Expired        410   the requested revision is compacted
├─ RequestTooLarge       413
├─ UnsupportedMediaType  415
├─ Invalid               422   the object breaks the rules of its kind; `details.causes` name the fields
├─ TooManyRequests       429
├─ InternalError         500
├─ ServerTimeout         500   (upstream's odd code) try again
├─ ServiceUnavailable    503
└─ Timeout               504

Messages are upstream's, word for word: clients and people match on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from setpoint.meta.field import FieldError, aggregate_message
from setpoint.meta.goformat import quote


def qualified(resource: str, group: str) -> str:
    """Return `deployments.apps`, or `pods` for the core group."""
    return f"{resource}.{group}" if group else resource


class ApiError(Exception):
    """A failure as the API reports it. `details` holds only the keys that are set."""

    code = 500
    reason = ""

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason
        self.details: dict[str, Any] | None = dict(details) if details is not None else None
        self.continue_token = ""
        """Continue token with which a list that expired midway can be resumed; empty if there is none."""

    @property
    def retry_after(self) -> int:
        return int((self.details or {}).get("retryAfterSeconds", 0))

    def status(self) -> dict[str, Any]:
        """Return the `Status` object that goes over the wire."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _about(group: str, resource: str, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if resource:
        details["kind"] = resource
    details.update(more)
    return details


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"

    def __init__(self, message: str = "Unauthorized") -> None:
        super().__init__(message)


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"

    @classmethod
    def of(cls, group: str, resource: str, name: str, why: str) -> Forbidden:
        if not resource:
            message = f"forbidden: {why}"
        elif not name:
            message = f"{qualified(resource, group)} is forbidden: {why}"
        else:
            message = f"{qualified(resource, group)} {quote(name)} is forbidden: {why}"
        return cls(message, details=_about(group, resource, name))


class NotFound(ApiError):
    code, reason = 404, "NotFound"

    @classmethod
    def of(cls, group: str, resource: str, name: str) -> NotFound:
        return cls(f"{qualified(resource, group)} {quote(name)} not found", details=_about(group, resource, name))

    @classmethod
    def path(cls) -> NotFound:
        """Return the error for a path that is not served."""
        return cls("the server could not find the requested resource", details={})


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"

    @classmethod
    def of(cls, group: str, resource: str, name: str) -> AlreadyExists:
        return cls(f"{qualified(resource, group)} {quote(name)} already exists", details=_about(group, resource, name))


class Conflict(ApiError):
    code, reason = 409, "Conflict"

    @classmethod
    def of(cls, group: str, resource: str, name: str, why: str) -> Conflict:
        return cls(
            f"Operation cannot be fulfilled on {qualified(resource, group)} {quote(name)}: {why}",
            details=_about(group, resource, name),
        )

    @classmethod
    def modified(cls, group: str, resource: str, name: str) -> Conflict:
        return cls.of(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )

    @classmethod
    def apply(cls, causes: Sequence[Mapping[str, str]], message: str) -> Conflict:
        """Return the error for a server-side apply that conflicts with other managers."""
        return cls(message, details={"causes": [dict(cause) for cause in causes]})


class Gone(ApiError):
    code, reason = 410, "Gone"


class Expired(ApiError):
    code, reason = 410, "Expired"


class RequestTooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"

    def __init__(self, message: str) -> None:
        super().__init__(f"Request entity too large: {message}")


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    code, reason = 422, "Invalid"

    @classmethod
    def of(cls, group: str, kind: str, name: str, errors: Iterable[FieldError]) -> Invalid:
        # Identical messages are shown once.
        errors = list({(error.field, error.body()): error for error in errors}.values())
        details = _about(group, kind, name)
        if errors:
            details["causes"] = [error.cause() for error in errors]
        message = f"{qualified(kind, group)} {quote(name)} is invalid"
        if errors:
            message += ": " + aggregate_message(errors)
        return cls(message, details=details)


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"

    @classmethod
    def of(cls, message: str, retry_after: int) -> TooManyRequests:
        return cls(message, details={"retryAfterSeconds": retry_after} if retry_after else {})


class InternalError(ApiError):
    code, reason = 500, "InternalError"

    @classmethod
    def of(cls, why: str) -> InternalError:
        return cls(f"Internal error occurred: {why}", details={"causes": [{"message": why}]})


class PlainServerError(ApiError):
    """Upstream's response to an error that was not wrapped: code 500, no reason, the bare message."""

    code, reason = 500, ""


class ServerTimeout(ApiError):
    code, reason = 500, "ServerTimeout"

    @classmethod
    def of(cls, group: str, resource: str, operation: str, retry_after: int) -> ServerTimeout:
        return cls(
            f"The {operation} operation against {qualified(resource, group)} could not be completed at this time, "
            "please try again.",
            details=_about(group, resource, operation, retryAfterSeconds=retry_after),
        )


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"

    @classmethod
    def of(cls, message: str, retry_after: int = 0) -> Timeout:
        return cls(f"Timeout: {message}", details={"retryAfterSeconds": retry_after} if retry_after else {})


_BY_REASON: dict[str, type[ApiError]] = {
    cls.reason: cls
    for cls in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        NotAcceptable,
        AlreadyExists,
        Conflict,
        Gone,
        Expired,
        UnsupportedMediaType,
        Invalid,
        TooManyRequests,
        InternalError,
        ServerTimeout,
        ServiceUnavailable,
        Timeout,
    )
}


def from_status(status: Mapping[str, Any]) -> ApiError:
    """Return the error of a `Status` from the wire: the client raises what the server raised."""
    cls = _BY_REASON.get(status.get("reason", ""), ApiError)
    error = cls.__new__(cls)
    ApiError.__init__(
        error,
        status.get("message") or "unknown error",
        code=status.get("code") or 500,
        reason=status.get("reason", ""),
        details=status.get("details"),
    )
    return error
