"""Objects that are stored and cannot be read, for want of the key they are encrypted with: upstream's words for it."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, Conflict, InternalError, TooManyRequests, qualified
from setpoint.store.interface import KeyValue, Unreadable

_ENCRYPTED = b"k8s:enc:"
_NOT_ENCRYPTING = "identity transformer tried to read encrypted data"
_MOST_SHOWN = 100
_RETRY_AFTER = 30


def corruption(kept: KeyValue) -> str:
    """Why the value cannot be read; empty: it can."""
    value = kept.value
    if isinstance(value, Unreadable):
        return value.reason
    return _NOT_ENCRYPTING if value.startswith(_ENCRYPTED) else ""


def summary(corrupt: Mapping[str, str]) -> str:
    """For whoever runs a server without a key: before somebody misses something."""
    first = min(corrupt)
    return (
        f"stored objects cannot be read ({len(corrupt)}, such as {_path(first)}): {corrupt[first]}; "
        "see --encryption-provider-config"
    )


class CorruptObject(InternalError):
    """Of one object, to whoever wants to read it."""

    why = ""

    @classmethod
    def at(cls, key: str, why: str) -> CorruptObject:
        error = cls.of(_storage_error(_path(key), why))
        assert isinstance(error, cls)
        error.why = why
        return error

    def for_writers(self) -> InternalError:
        return InternalError.of(_not_transformable(self.why))


def readable(resource: Resource, key: str, name: str) -> Conflict:
    """The refusal to delete an object as one that cannot be read, when it can."""
    why = "unsafe deletion is not allowed because the object is decodable from storage"
    text = f"StorageError: invalid object, Code: 4, Key: /registry{_path(key)}, ResourceVersion: 0, "
    return Conflict.of(resource.group, resource.plural, name, f"{text}AdditionalErrorMsg: {why}")


def list_refusal(resource: Resource, corrupt: Mapping[str, str], paged: bool) -> ApiError:
    """One object that cannot be read, and there is no list of its kind."""
    causes = []
    for key in sorted(corrupt)[:_MOST_SHOWN]:
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
