"""Static cost estimates for calls of the language's own functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from setpoint.meta.cel.library_cost import Node
from setpoint.meta.cel.runtime_cost import REGEX, TRAVERSAL
from setpoint.meta.cel.sizes import MOST, ONE, UNKNOWN, CallEstimate, CostRange, SizeRange

_UNIT = CallEstimate(CostRange(1, 1))
_Rule = Callable[[Node | None, Sequence[Node]], CallEstimate]


def standard_estimate(overload: str, target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    """Estimate a call without its arguments. Functions that traverse neither text nor list cost one unit."""
    rule = _RULES.get(overload)
    return _UNIT if rule is None else rule(target, arguments)


def _size(node: Node | None) -> SizeRange:
    return UNKNOWN if node is None or node.size is None else node.size


def _format(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(_size(target).times(TRAVERSAL))


def _to_bytes(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    size = _size(arguments[0])  # a character is up to four bytes; the product may wrap, as the reference lets it
    return CallEstimate(size.times(TRAVERSAL), SizeRange(size.least, (size.most * 4) & MOST))


def _to_string(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    size = _size(arguments[0])
    return CallEstimate(size.times(TRAVERSAL), SizeRange(size.least // 4, size.most))


def _quote(target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    size = _size(arguments[0])
    return CallEstimate(size.times(TRAVERSAL), SizeRange(size.least + 2, (size.most * 2 + 2) & MOST))


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
    most = min(_size(arguments[0]).most, _size(arguments[1]).most)
    return CallEstimate(SizeRange(1 if most > 0 else 0, most).times(TRAVERSAL))


_RULES: dict[str, _Rule] = {
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
