"""Static cost estimates for calls: the language's own functions and Kubernetes' library functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from setpoint.meta.cel.runtime_cost import (
    AUTHORIZATION_CHECK,
    LIST_BASE,
    NOMINAL,
    REGEX,
    STRUCT_BASE,
    TRAVERSAL,
)
from setpoint.meta.cel.sizes import MAX_UINT64, ONE, UNKNOWN, CallEstimate, CostRange, SizeRange
from setpoint.meta.cel.types import Kind, Type

MAX_FORMAT_SIZE = 64
MAX_NAME_FORMAT_REGEX_SIZE = 128
_UNIT = CallEstimate(CostRange(1, 1))
_ADDRESS = SizeRange(4, 16)
_Sizer = Callable[[tuple[str, ...], Type], SizeRange | None]


class Node(NamedTuple):
    """The static information about an argument."""

    path: tuple[str, ...]
    type: Type
    size: SizeRange | None
    literal: Any = None


_WALKS = frozenset(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"])
_READS_ARGUMENT = frozenset(["cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"])
_TRANSFORMS = frozenset(["lowerAscii", "upperAscii", "substring", "trim"])
_UNIT_EQUALITY = frozenset(
    {
        "net.IP",
        "net.CIDR",
        "kubernetes.Quantity",
        "kubernetes.Semver",
        "kubernetes.authorization.Authorizer",
        "kubernetes.authorization.PathCheck",
        "kubernetes.authorization.GroupCheck",
        "kubernetes.authorization.ResourceCheck",
        "kubernetes.authorization.Decision",
    }
)


def call_estimate(
    function: str, overload: str, target: Node | None, arguments: Sequence[Node], sizer: _Sizer | None
) -> CallEstimate | None:
    """Return the estimate of a call, or None if it is not one of these functions."""

    def size(node: Node) -> SizeRange:
        if node.size is not None:
            return node.size
        estimate = sizer(node.path, node.type) if sizer is not None else None
        return estimate or UNKNOWN

    own = _OWN.get(overload)
    if own is not None:
        return own(target, arguments, size)
    if function in NOMINAL:
        return _UNIT
    if function == "check":
        return CallEstimate(CostRange(AUTHORIZATION_CHECK, AUTHORIZATION_CHECK))
    if function in _WALKS and target is not None:
        return CallEstimate(_walk(function, target, size))
    if function in _TRANSFORMS and target is not None:
        return CallEstimate(size(target).times(TRAVERSAL), size(target))
    if function in _READS_ARGUMENT and arguments:
        return CallEstimate(size(arguments[0]).times(TRAVERSAL))
    rule = _LIBRARY_RULES.get(function)
    return rule(overload, target, arguments, size) if rule is not None else None


_Size = Callable[[Node], SizeRange]


def _element(node: Node) -> Node | None:
    if not node.type.parameters:
        return None
    return Node((*node.path, "@items") if node.path else (), node.type.parameters[0], None)


def _walk(function: str, target: Node, size: _Size) -> CostRange:
    each = CostRange(1, 1)
    element = _element(target)
    if element is not None:
        if element.type.kind in (Kind.STRING, Kind.BYTES):
            each = each.plus(size(element).times(TRAVERSAL))
        return size(target).times_cost(each)
    if function == "includes":
        return size(target).times_cost(each)
    return size(target).times(TRAVERSAL)


def _url(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if len(arguments) != 1:
        return None
    return CallEstimate(size(arguments[0]).times(TRAVERSAL), size(arguments[0]))


def _selector(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if len(arguments) != 1:
        return None
    length = size(arguments[0])
    requirements = length.times(0.5).times(float(LIST_BASE + STRUCT_BASE))
    return CallEstimate(CostRange(LIST_BASE, LIST_BASE).plus(length.times(TRAVERSAL)).plus(requirements))


def _replace(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if target is None or len(arguments) < 2:
        return None
    whole, old, new = size(target), size(arguments[0]), size(arguments[1])
    most_kept = least_kept = 0
    if old.min == 0:
        most = min(whole.max + 1, MAX_UINT64)
        most_kept = whole.max
    elif new.max <= old.min:
        most, most_kept = 0, whole.max
    else:
        most = _ceil(float(whole.max) / float(old.min))
    if old.max == 0:
        least = min(whole.min + 1, MAX_UINT64)
        least_kept = whole.min
    elif old.max <= new.min:
        least, least_kept = 0, whole.min
    else:
        least = _ceil(float(whole.min) / float(old.max))
    result = SizeRange(least, most).multiplied(new).plus(SizeRange(least_kept, most_kept))
    return CallEstimate(whole.times(2 * TRAVERSAL), result)


def _ceil(value: float) -> int:
    # The reference converts a float that is too large for its integer: on its machines that gives the top bit alone.
    rounded = math.ceil(value)
    return rounded if rounded < 1 << 64 else 1 << 63


def _split(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if target is None:
        return None
    whole = size(target)
    most = whole.max
    if len(arguments) > 1 and type(arguments[1].literal) is int:
        most = arguments[1].literal & MAX_UINT64
    return CallEstimate(whole.times(2 * TRAVERSAL), SizeRange(0, most))


def _join(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if target is None:
        return None
    count = size(target)
    element = _element(target)
    result = count.multiplied(size(element)) if element is not None else SizeRange(0, 0)
    if arguments:
        between = SizeRange(max(count.min - 1, 0), max(count.max - 1, 0))
        result = result.plus(size(arguments[0]).multiplied(between))
    return CallEstimate(result.times(TRAVERSAL), result)


def _find(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if target is None or not arguments:
        return None
    whole = size(target)
    cost = whole.plus(ONE).times(TRAVERSAL).multiplied(size(arguments[0]).times(REGEX))
    return CallEstimate(cost, SizeRange(0, whole.max))


def _ip(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if overload == "cidr_ip":
        return _UNIT
    return CallEstimate(size(arguments[0]).times(TRAVERSAL)) if arguments else None


def _canonical(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    return CallEstimate(size(arguments[0]).times(2 * TRAVERSAL)) if arguments else None


def _contains_ip(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if not arguments:
        return None
    cost = _ADDRESS.plus(_ADDRESS).times(TRAVERSAL)
    if overload == "cidr_contains_ip_string":
        cost = cost.plus(size(arguments[0]).times(TRAVERSAL))
    return CallEstimate(cost)


def _contains_cidr(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if not arguments:
        return None
    cost = _ADDRESS.plus(_ADDRESS).times(TRAVERSAL).plus(_ADDRESS.times(TRAVERSAL)).plus(CostRange(1, 1))
    if overload == "cidr_contains_cidr_string":
        cost = cost.plus(size(arguments[0]).times(TRAVERSAL))
    return CallEstimate(cost)


def _validate(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if not arguments:
        return None
    return CallEstimate(size(arguments[0]).times(TRAVERSAL).times(MAX_NAME_FORMAT_REGEX_SIZE * REGEX))


def _equal(overload: str, target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate | None:
    if len(arguments) != 2 or arguments[0].type != arguments[1].type:
        return None
    name = arguments[0].type.name
    if name in _UNIT_EQUALITY:
        return _UNIT
    if name == "kubernetes.NamedFormat":
        return CallEstimate(CostRange(1, MAX_FORMAT_SIZE).times(TRAVERSAL))
    if name == "kubernetes.URL":
        most = arguments[1].size.max if arguments[1].size is not None else 1
        return CallEstimate(CostRange(1, most).times(TRAVERSAL))
    return None


def _sets(factor: float) -> Callable[[Node | None, Sequence[Node], _Size], CallEstimate]:
    def rule(target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate:
        both = size(arguments[0]).multiplied(size(arguments[1]))
        return CallEstimate(both.times(factor).plus(CostRange(1, 1)))

    return rule


def _allocating(factor: float, result: SizeRange) -> CallEstimate:
    return CallEstimate(result.times(factor).plus(CostRange(1, 1)).plus(CostRange(LIST_BASE, LIST_BASE)), result)


def _constant(node: Node, otherwise: int) -> int:
    return max(node.literal, 0) if type(node.literal) is int else otherwise


def _slice(target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate:
    assert target is not None
    length = (_constant(arguments[1], size(target).max) - _constant(arguments[0], 0)) & MAX_UINT64
    return _allocating(1, SizeRange(length, length))


def _range(target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate:
    count = _constant(arguments[0], MAX_UINT64)
    return _allocating(1, SizeRange(count, count))


def _reverse(target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate:
    assert target is not None
    return _allocating(1, size(target))


def _flatten(target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate:
    assert target is not None
    return _allocating(float(_constant(arguments[0], MAX_UINT64)) if arguments else 1, size(target))


def _distinct(target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate:
    assert target is not None
    return _allocating(2.0, size(target).multiplied(size(target)))


def _sort(kind: str, by_key: bool) -> Callable[[Node | None, Sequence[Node], _Size], CallEstimate]:
    factor = 2.0 + TRAVERSAL if kind in ("string", "bytes") else 2.0

    def rule(target: Node | None, arguments: Sequence[Node], size: _Size) -> CallEstimate:
        assert target is not None
        compared = size(arguments[0] if by_key else target)
        return _allocating(factor, compared.multiplied(compared))

    return rule


_SORTABLE = [
    "int",
    "uint",
    "double",
    "bool",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "string",
    "bytes",
]
# These libraries declare the costs of their functions.
_OWN: dict[str, Callable[[Node | None, Sequence[Node], _Size], CallEstimate]] = {
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _distinct,
    **{f"list_{kind}_sort": _sort(kind, by_key=False) for kind in _SORTABLE},
    **{f"list_{kind}_sortByAssociatedKeys": _sort(kind, by_key=True) for kind in _SORTABLE},
}
_LIBRARY_RULES: dict[str, Callable[[str, Node | None, Sequence[Node], _Size], CallEstimate | None]] = {
    "url": _url,
    "jsonpatch.escapeKey": _url,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    "ip": _ip,
    "ip.isCanonical": _canonical,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
}


_Rule = Callable[[Node | None, Sequence[Node]], CallEstimate]


def standard_estimate(overload: str, target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    """Estimate a call without its arguments. Functions that traverse neither text nor list cost one unit."""
    rule = _STANDARD_RULES.get(overload)
    return _UNIT if rule is None else rule(target, arguments)


def _size(node: Node | None) -> SizeRange:
    return UNKNOWN if node is None or node.size is None else node.size


def _format(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(_size(target).times(TRAVERSAL))


def _to_bytes(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    size = _size(arguments[0])  # A character is up to four bytes; the product may wrap, as in the reference.
    return CallEstimate(size.times(TRAVERSAL), SizeRange(size.min, (size.max * 4) & MAX_UINT64))


def _to_string(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    size = _size(arguments[0])
    return CallEstimate(size.times(TRAVERSAL), SizeRange(size.min // 4, size.max))


def _quote(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    size = _size(arguments[0])
    return CallEstimate(size.times(TRAVERSAL), SizeRange(size.min + 2, (size.max * 2 + 2) & MAX_UINT64))


def _affix(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(_size(arguments[0]).times(TRAVERSAL))


def _in_list(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(_size(arguments[1]).times(1))


def _matches(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    text, pattern = (arguments[0], arguments[1]) if target is None else (target, arguments[0])
    return CallEstimate(_size(text).plus(ONE).times(TRAVERSAL).multiplied(_size(pattern).times(REGEX)))


def _contains(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(_size(target).times(TRAVERSAL).multiplied(_size(arguments[0]).times(TRAVERSAL)))


def _add_text(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    size = _size(arguments[0]).plus(_size(arguments[1]))
    return CallEstimate(size.times(TRAVERSAL), size)


def _add_list(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(CostRange(1, 1), _size(arguments[0]).plus(_size(arguments[1])))


def _compare(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    most = min(_size(arguments[0]).max, _size(arguments[1]).max)
    return CallEstimate(SizeRange(1 if most > 0 else 0, most).times(TRAVERSAL))


_STANDARD_RULES: dict[str, _Rule] = {
    "string_format": _format,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_string,
    "strings_quote": _quote,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": _in_list,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contains,
    "add_string": _add_text,
    "add_bytes": _add_text,
    "add_list": _add_list,
    **{
        f"{order}_{kind}": _compare
        for order in ("less", "greater", "less_equals", "greater_equals")
        for kind in ("string", "bytes")
    },
    "equals": _compare,
    "not_equals": _compare,
}
