"""Errors for stored objects that cannot be decrypted because their key is missing, in upstream's words."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, Conflict, InternalError, TooManyRequests, qualified
from setpoint.store.interface import KeyValue, Unreadable

_ENCRYPTED = b"k8s:enc:"
_NOT_ENCRYPTING = "identity transformer tried to read encrypted data"
_MAX_SHOWN = 100
_RETRY_AFTER = 30


def corruption(stored: KeyValue) -> str:
    """Return why the value cannot be read, or "" if it can."""
    value = stored.value
    if isinstance(value, Unreadable):
        return value.reason
    return _NOT_ENCRYPTING if value.startswith(_ENCRYPTED) else ""


def summary(corrupt: Mapping[str, str]) -> str:
    """Return a message for the operator about objects that cannot be read."""
    first = min(corrupt)
    return (
        f"stored objects cannot be read ({len(corrupt)}, such as {_path(first)}): {corrupt[first]}; "
        "see --encryption-provider-config"
    )


class CorruptObject(InternalError):
    """An object cannot be read."""

    why = ""

    @classmethod
    def at(cls, key: str, why: str) -> CorruptObject:
        error = cls.of(_storage_error(_path(key), why))
        assert isinstance(error, cls)
        error.why = why
        return error

    def for_writers(self) -> InternalError:
        return InternalError.of(_not_transformable(self.why))


def not_corrupt(resource: Resource, key: str, name: str) -> Conflict:
    """Return the error for the deletion of a readable object as one that cannot be read."""
    why = "unsafe deletion is not allowed because the object is decodable from storage"
    text = f"StorageError: invalid object, Code: 4, Key: /registry{_path(key)}, ResourceVersion: 0, "
    return Conflict.of(resource.group, resource.plural, name, f"{text}AdditionalErrorMsg: {why}")


def list_error(resource: Resource, corrupt: Mapping[str, str], paged: bool) -> ApiError:
    """Return the error for a list of a kind with objects that cannot be read."""
    causes = []
    for key in sorted(corrupt)[:_MAX_SHOWN]:
        path = f"/registry{_path(key)}"
        text = _storage_error(path, corrupt[key])
        causes.append({"reason": "UnexpectedServerResponse", "message": text, "field": path})
    name = qualified(resource.plural, resource.group)
    message = f"failed to read one or more {name} from the storage: {causes[0]['message']}"
    if len(corrupt) > 1:
        message += f" (and {len(corrupt) - 1} more)"
    if not paged:
        text = f"storage is (re)initializing: failed to list <unspecified>: {message}"
        return TooManyRequests.of(text, _RETRY_AFTER)
    details = {"name": "list", "group": resource.group, "kind": resource.plural, "causes": causes}
    shown = {key: value for key, value in details.items() if value}
    return ApiError(message, code=500, reason="StorageReadError", details=shown)


def _path(key: str) -> str:
    return "/" + key.removeprefix("core/")


def _not_transformable(why: str) -> str:
    return f"data from the storage is not transformable revision=0: {why}"


def _storage_error(path: str, why: str) -> str:
    return (
        f"StorageError: corrupt object, Code: 7, Key: {path}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: {_not_transformable(why)}"
    )
