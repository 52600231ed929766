"""The values of expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.types import Type

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
UINT_MAX = (1 << 64) - 1
SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)


class CelError(Exception):
    """An evaluation failed; `&&` and `||` may absorb the error."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CostExceeded(Exception):
    """The evaluation exceeded its cost limit. No operator absorbs this error."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


MAX_ELEMENTS = 1_000_000
MAX_CHARACTERS = 10_000_000
"""Maximum size of a list or text: larger ones exceed every cost limit and are not created."""


def bounded(size: int, most: int) -> None:
    """Raise CostExceeded if something of that size is too large to create."""
    if size > most:
        raise CostExceeded


class Uint(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Duration:
    """A signed span of time, in nanoseconds."""

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanoseconds == other.nanoseconds

    def __hash__(self) -> int:
        return hash((Duration, self.nanoseconds))

    def __repr__(self) -> str:
        return f"Duration({self.nanoseconds})"


class Timestamp:
    """A point in time in nanoseconds since 1970, and its original offset in seconds east of UTC."""

    __slots__ = ("nanoseconds", "offset")

    def __init__(self, nanoseconds: int, offset: int = 0) -> None:
        self.nanoseconds = nanoseconds
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanoseconds == other.nanoseconds

    def __hash__(self) -> int:
        return hash((Timestamp, self.nanoseconds))

    def __repr__(self) -> str:
        return f"Timestamp({self.nanoseconds})"

    def civil(self, offset: int = 0) -> datetime:
        """Return date and time of day at that offset, truncated to the second."""
        return _EPOCH + timedelta(seconds=self.nanoseconds // SECOND + offset)

    def aware(self) -> datetime:
        return self.civil().replace(tzinfo=timezone.utc)  # noqa: UP017


class Optional:
    """An optional value; `NONE` is the absent one."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any, present: bool = True) -> None:
        self.value = value
        self.present = present

    def get(self) -> Any:
        if not self.present:
            raise CelError("optional.none() dereference")
        return self.value

    def __repr__(self) -> str:
        return f"optional.of({self.value!r})" if self.present else "optional.none()"


NONE = Optional(None, present=False)


class Opaque:
    """A value of a library: a quantity, an address, ... Subclasses define its type and equality."""

    __slots__ = ()
    TYPE: Type

    def equals(self, other: Any) -> bool:
        return self is other

    def size(self) -> int | None:
        """Return its size for the cost model; None if it has none."""
        return None

    def is_zero(self) -> bool:
        return False


class Message:
    """A message built by an expression: its type and the fields that were set."""

    __slots__ = ("fields", "type")

    def __init__(self, type_: Type, fields: dict[str, Any]) -> None:
        self.type = type_
        self.fields = fields

    def __repr__(self) -> str:
        return f"{self.type.name}{self.fields!r}"


class TypedList:
    """A list that differs from its JSON: elements are converted when read, or equality is that of a set."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def equals(self, other: Any) -> bool:
        raise NotImplementedError

    def plus(self, other: Any) -> Any:
        raise NotImplementedError


class TypedMap:
    """A map or object whose values are converted when read."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """Yield the keys."""
        raise NotImplementedError

    def find(self, key: Any) -> Any:
        """Return the value, or MISSING."""
        raise NotImplementedError

    def equals(self, other: Any) -> bool:
        raise NotImplementedError


class Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()

_TYPES: dict[type, Type] = {
    type(None): t.NULL,
    bool: t.BOOL,
    int: t.INT,
    Uint: t.UINT,
    float: t.DOUBLE,
    str: t.STRING,
    bytes: t.BYTES,
    Duration: t.DURATION,
    Timestamp: t.TIMESTAMP,
    list: t.list_of(t.DYN),
    dict: t.map_of(t.DYN, t.DYN),
    Type: t.TYPE,
    Optional: t.optional_of(t.DYN),
}


def type_of_value(value: Any) -> Type:
    """Return the runtime type of a value."""
    found = _TYPES.get(type(value))
    if found is not None:
        return found
    if isinstance(value, Opaque):
        return value.TYPE
    if isinstance(value, Message):
        return value.type
    if isinstance(value, TypedList):
        return _TYPES[list]
    if isinstance(value, TypedMap):
        return _TYPES[dict]
    raise CelError(f"unsupported value: {type(value).__name__}")


def is_list(value: Any) -> bool:
    return type(value) is list or isinstance(value, TypedList)


def is_map(value: Any) -> bool:
    return type(value) is dict or isinstance(value, TypedMap)


def no_such_overload(function: str = "") -> CelError:
    return CelError(f"no such overload: {function}" if function else "no such overload")


def key_of(key: Any) -> Any:
    """Return a key as dicts hold it. Python takes True for 1 and 1.0 for 1: numbers may be equal across types in CEL
    too, but a bool is never a number."""
    if type(key) is bool:
        return _BOOL_KEYS[key]
    return key


class BoolKey:
    """A bool as a key, which is not equal to 0 or 1."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


_BOOL_KEYS = {True: BoolKey(True), False: BoolKey(False)}


def key_back(key: Any) -> Any:
    return key.value if type(key) is BoolKey else key


class LazyMap(TypedMap):
    """A map whose values, or errors, are computed at most once. The function that computes a value charges its cost."""

    __slots__ = ("_compute", "_known")

    def __init__(self, compute: Mapping[str, Callable[[], Any]]) -> None:
        self._compute = compute
        self._known: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._compute)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._compute)

    def find(self, key: Any) -> Any:
        compute = self._compute.get(key)
        if compute is None:
            return MISSING
        if key not in self._known:
            try:
                self._known[key] = compute()
            except CelError as error:
                self._known[key] = error
        value = self._known[key]
        if isinstance(value, CelError):
            raise value
        return value

    def equals(self, other: Any) -> bool:
        return self is other
