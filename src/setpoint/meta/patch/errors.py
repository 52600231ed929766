"""Errors of patches, distinguished by the response to the client.

PatchError
├─ PatchUndecodable    400  it is not a patch of this format
├─ PatchTooLarge       413  more operations than a request may hold
├─ PatchUnprocessable  422  a patch that does not fit this document; the client gets a generic message
└─ PatchRefused        500  what the reference returns as a bare error
"""

from __future__ import annotations

from setpoint.meta.errors import ApiError, BadRequest, Invalid, PlainServerError, RequestTooLarge


class PatchError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def to_api(self) -> ApiError:
        return PlainServerError(self.message)


class PatchUndecodable(PatchError):
    def to_api(self) -> ApiError:
        return BadRequest(self.message)


class PatchTooLarge(PatchError):
    def to_api(self) -> ApiError:
        return RequestTooLarge(self.message)


class PatchUnprocessable(PatchError):
    def to_api(self) -> ApiError:
        return Invalid("the server rejected our request due to an error in our request", details={})


class PatchRefused(PatchError):
    pass
