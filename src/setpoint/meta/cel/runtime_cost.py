"""Runtime cost of function calls: a number, or a function of the arguments and the result.

One unit is the cost of a comparison of two small values. Reading ten characters of text costs one more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from setpoint.meta.cel.values import Opaque, Optional, TypedList, TypedMap

CallCost = int | Callable[[Sequence[Any], Any], int]
"""A fixed cost, or (arguments, result) -> cost."""

TRAVERSAL = 0.1
REGEX = 0.25
LIST_BASE = 10
MAP_BASE = 30
STRUCT_BASE = 40
AUTHORIZATION_CHECK = 350_000
_MORE_THAN_ANY_LIMIT = 2_000_000
_SIZED = (str, bytes, list, dict)
NOMINAL = frozenset(
    (
        "serviceAccount",
        "path",
        "group",
        "resource",
        "subresource",
        "namespace",
        "name",
        "allowed",
        "reason",
        "error",
        "errored",
        "masked",
        "prefixLength",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
        "format.named",
        "sign",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "add",
        "sub",
        "major",
        "minor",
        "patch",
        "getScheme",
        "getHostname",
        "getHost",
        "getPort",
        "getEscapedPath",
        "getQuery",
    )
)
"""Functions that cost one unit regardless of their arguments."""


def size_of(value: Any) -> int:
    """Return the number of characters, bytes, elements or entries; 1 for everything else."""
    if type(value) in _SIZED:
        return len(value)
    if isinstance(value, TypedList | TypedMap):
        return len(value)
    if isinstance(value, Opaque):
        size = value.size()
        return 1 if size is None else size
    return 1


def _size(value: Any) -> int:
    if isinstance(value, Optional):
        return _size(value.value) if value.present else 1
    return size_of(value)


def traversed(size: int) -> int:
    """Return ceil(size * 0.1) in floating point: 300 * 0.1 is slightly more than 30."""
    return math.ceil(size * TRAVERSAL)


def traversal_cost(value: Any) -> int:
    """Return the cost of traversing a value; the traversal stops when the cost exceeds any limit."""
    total, pending = 0, [value]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind is str:
            total += int(len(value.encode("utf-8", "surrogatepass")) * TRAVERSAL)
        elif kind is bytes:
            total += int(len(value) * TRAVERSAL)
        elif kind is list or isinstance(value, TypedList):
            pending.extend(value)
        elif kind is dict:
            pending.extend(value)
            pending.extend(value.values())
        elif isinstance(value, TypedMap):
            for key in value:
                pending += (key, value.find(key))
        else:
            total += 1
        if len(pending) > _MORE_THAN_ANY_LIMIT or total > _MORE_THAN_ANY_LIMIT:
            return total + len(pending)
    return total


def equality_cost(left: Any, right: Any) -> int:
    if isinstance(left, Opaque):
        return 1
    return math.ceil(min(_size(left), _size(right)) * TRAVERSAL)


def _first(arguments: Sequence[Any], result: Any) -> int:
    return traversed(size_of(arguments[0]))


def _first_plain(arguments: Sequence[Any], result: Any) -> int:
    return traversed(_size(arguments[0]))


def _second_plain(arguments: Sequence[Any], result: Any) -> int:
    return traversed(_size(arguments[1]))


def _first_twice(arguments: Sequence[Any], result: Any) -> int:
    return math.ceil(size_of(arguments[0]) * 2 * TRAVERSAL)


def _joined(arguments: Sequence[Any], result: Any) -> int:
    return math.ceil(size_of(result) * 2 * TRAVERSAL)


def _walked(arguments: Sequence[Any], result: Any) -> int:
    return traversal_cost(arguments[0])


def _searched(arguments: Sequence[Any], result: Any) -> int:
    return math.ceil((1.0 + size_of(arguments[0])) * TRAVERSAL) * math.ceil(size_of(arguments[1]) * REGEX)


def _contained(arguments: Sequence[Any], result: Any) -> int:
    return traversed(_size(arguments[0])) * traversed(_size(arguments[1]))


def _added(arguments: Sequence[Any], result: Any) -> int:
    return traversed(_size(arguments[0]) + _size(arguments[1]))


def _in_list(arguments: Sequence[Any], result: Any) -> int:
    return _size(arguments[1])


def _ordered(arguments: Sequence[Any], result: Any) -> int:
    return traversed(min(_size(arguments[0]), _size(arguments[1])))


def _selector(arguments: Sequence[Any], result: Any) -> int:
    size = size_of(arguments[1])
    return LIST_BASE + traversed(size) + math.ceil(math.ceil(size * 0.5) * (LIST_BASE + STRUCT_BASE))


def _validated(arguments: Sequence[Any], result: Any) -> int:
    regex_size = getattr(arguments[0], "max_regex_size", 0)
    return math.ceil((1.0 + size_of(arguments[1])) * TRAVERSAL) * math.ceil(regex_size * REGEX)


def _contains_ip(parsed: bool) -> CallCost:
    def cost(arguments: Sequence[Any], result: Any) -> int:
        own = size_of(arguments[0])
        return traversed(own + own) + (traversed(size_of(arguments[1])) if parsed else 0)

    return cost


def _contains_cidr(parsed: bool) -> CallCost:
    def cost(arguments: Sequence[Any], result: Any) -> int:
        own = size_of(arguments[0])
        total = traversed(own + own) + traversed(own) + 1
        return total + (traversed(size_of(arguments[1])) if parsed else 0)

    return cost


_BY_FUNCTION: dict[str, CallCost] = {
    "check": AUTHORIZATION_CHECK,
    **dict.fromkeys(NOMINAL, 1),
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selector),
    **dict.fromkeys(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"], _walked),
    **dict.fromkeys(
        [
            "url",
            "lowerAscii",
            "upperAscii",
            "substring",
            "trim",
            "jsonpatch.escapeKey",
            "cidr",
            "isIP",
            "isCIDR",
            "quantity",
            "isQuantity",
            "semver",
            "isSemver",
        ],
        _first,
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first_twice),
    "join": _joined,
    **dict.fromkeys(("find", "findAll"), _searched),
    "validate": _validated,
}
_BY_OVERLOAD: dict[str, CallCost] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _second_plain),
    **dict.fromkeys(("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _first_plain),
    "in_list": _in_list,
    **dict.fromkeys(
        [
            "less_string",
            "greater_string",
            "less_equals_string",
            "greater_equals_string",
            "less_bytes",
            "greater_bytes",
            "less_equals_bytes",
            "greater_equals_bytes",
        ],
        _ordered,
    ),
    **dict.fromkeys(("add_string", "add_bytes"), _added),
    **dict.fromkeys(("matches", "matches_string"), _searched),
    "contains_string": _contained,
}


def _sets(factor: float) -> CallCost:
    return lambda arguments, result: 1 + int(float(size_of(arguments[0]) * size_of(arguments[1])) * factor)


def _allocated(factor: float, size: int) -> int:
    return int(float(size) * (factor if factor >= 0 else 1.0)) + 1 + LIST_BASE


def _output(arguments: Sequence[Any], result: Any) -> int:
    return _allocated(1.0, size_of(result))


def _flattened(arguments: Sequence[Any], result: Any) -> int:
    depth = arguments[1] if len(arguments) == 2 else 1
    return _allocated(float(depth) if type(depth) is int else 1.0, size_of(arguments[0]))


def _self_compared(place: int) -> CallCost:
    def cost(arguments: Sequence[Any], result: Any) -> int:
        values = arguments[place]
        size = size_of(values)
        text = size > 0 and not isinstance(values, Exception) and type(values[0]) in (str, bytes)
        return _allocated(2.0 + TRAVERSAL if text else 2.0, size * size)

    return cost


_TYPES = ["int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes"]
# These libraries declare the costs of their functions.
_OWN: dict[str, CallCost] = {
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    **dict.fromkeys(("list_slice", "lists_range", "list_reverse"), _output),
    **dict.fromkeys(("list_flatten", "list_flatten_int"), _flattened),
    "list_distinct": _self_compared(0),
    **dict.fromkeys((f"list_{name}_sort" for name in _TYPES), _self_compared(0)),
    **dict.fromkeys((f"list_{name}_sortByAssociatedKeys" for name in _TYPES), _self_compared(1)),
}


def needs_result(function: str, overload: str) -> bool:
    """Return whether the cost of a call depends on its result."""
    return function == "join" or overload in ("list_slice", "lists_range", "list_reverse")


def call_cost(function: str, overload: str) -> CallCost:
    """Return the rule for a call whose overload is known (else the empty string). Equality has its own:
    `equality_cost`."""
    own = _OWN.get(overload)
    if own is not None:
        return own
    if function == "ip":
        return 1 if overload == "cidr_ip" else _first
    if function == "containsIP":
        return _contains_ip(overload == "cidr_contains_ip_string")
    if function == "containsCIDR":
        return _contains_cidr(overload == "cidr_contains_cidr_string")
    found = _BY_FUNCTION.get(function)
    if found is not None:
        return found
    return _BY_OVERLOAD.get(overload, 1)
