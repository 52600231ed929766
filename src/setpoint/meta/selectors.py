"""Label and field selectors: parsed once, compiled to a predicate.

`parse_labels("app in (a,b),!canary")` and `parse_fields("status.phase=Running")` give a Selector whose `matches` takes
a plain dict. `from_label_selector` compiles the structured form that objects hold. Parsing costs time in proportion to
the length of the text (about a second for each megabyte), and a test costs time in proportion to the labels tested.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from setpoint.meta.caching import memoized
from setpoint.meta.field import aggregate_message, invalid
from setpoint.meta.names import _label_value, _qualified_name

_Labels = Mapping[str, str]


class SelectorError(ValueError):
    """The text is not a selector; the message is for the user."""


class Requirement(NamedTuple):
    key: str
    operator: str
    """One of =, !=, in, notin, exists, !, gt, lt."""
    values: tuple[str, ...]


class Selector(NamedTuple):
    requirements: tuple[Requirement, ...]
    matches: Callable[[_Labels], bool]

    @property
    def empty(self) -> bool:
        return not self.requirements

    def exact(self, key: str) -> str | None:
        """Return the one value that the selector requires for `key`, or None."""
        for requirement in self.requirements:
            if requirement.key == key and requirement.operator in ("=", "in") and len(requirement.values) == 1:
                return requirement.values[0]
        return None


def _everything(_: _Labels) -> bool:
    return True


def _nothing(_: _Labels) -> bool:
    return False


EVERYTHING = Selector((), _everything)
NOTHING = Selector((Requirement("", "in", ()),), _nothing)


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?\d{1,19}", text) and abs(int(text)) < 2**63 else None


def _compile_one(requirement: Requirement) -> Callable[[_Labels], bool]:
    key, values = requirement.key, requirement.values
    if requirement.operator in ("=", "in"):
        if len(values) == 1:
            only = values[0]
            return lambda labels: labels.get(key) == only
        allowed = frozenset(values)
        return lambda labels: labels.get(key) in allowed
    if requirement.operator in ("!=", "notin"):
        refused = frozenset(values)
        return lambda labels: labels.get(key) not in refused
    if requirement.operator == "exists":
        return lambda labels: key in labels
    if requirement.operator == "!":
        return lambda labels: key not in labels
    bound = int(values[0])
    above = requirement.operator == "gt"

    def compare(labels: _Labels) -> bool:
        value = _integer(labels.get(key, ""))
        return value is not None and (value > bound if above else value < bound)

    return compare


def _is_exact(requirement: Requirement) -> bool:
    return requirement.operator in ("=", "in") and len(requirement.values) == 1


_MAX_LINEAR = 8
"""Maximum number of requirements that are tested one after the other; more are grouped by key."""


def _compile(requirements: tuple[Requirement, ...]) -> Selector:
    if not requirements:
        return EVERYTHING
    if len(requirements) == 1:
        return Selector(requirements, _compile_one(requirements[0]))
    if len(requirements) > _MAX_LINEAR:
        return Selector(requirements, _compile_many(requirements))
    if all(map(_is_exact, requirements)):
        # Nearly all selectors are of this form; one loop is a fraction of the work.
        pairs = tuple((requirement.key, requirement.values[0]) for requirement in requirements)

        def matches(labels: _Labels) -> bool:
            for key, value in pairs:  # noqa: SIM110 - a generator costs more than all the rest
                if labels.get(key) != value:
                    return False
            return True

        return Selector(requirements, matches)
    tests = [_compile_one(requirement) for requirement in requirements]
    return Selector(requirements, lambda labels: all(test(labels) for test in tests))


class _KeyRequirements:
    """The combined requirements of a selector for the value of one label."""

    __slots__ = ("above", "allowed", "below", "refused")

    def __init__(self) -> None:
        self.allowed: frozenset[str] | None = None
        """Allowed values; None means any value."""
        self.refused: set[str] = set()
        self.above: int | None = None
        self.below: int | None = None

    def add(self, requirement: Requirement) -> None:
        operator, values = requirement.operator, requirement.values
        if operator in ("=", "in"):
            self.allowed = frozenset(values) if self.allowed is None else self.allowed.intersection(values)
        elif operator in ("!=", "notin"):
            self.refused.update(values)
        elif operator == "gt":
            self.above = int(values[0]) if self.above is None else max(self.above, int(values[0]))
        elif operator == "lt":
            self.below = int(values[0]) if self.below is None else min(self.below, int(values[0]))

    def allows(self, value: str) -> bool:
        if value in self.refused or (self.allowed is not None and value not in self.allowed):
            return False
        if self.above is None and self.below is None:
            return True
        number = _integer(value)
        if number is None:
            return False
        return (self.above is None or number > self.above) and (self.below is None or number < self.below)


def _compile_many(requirements: tuple[Requirement, ...]) -> Callable[[_Labels], bool]:
    """Return a test whose cost depends on the number of labels, not on the number of requirements."""
    needed: set[str] = set()
    absent: set[str] = set()
    by_key: dict[str, _KeyRequirements] = {}
    for requirement in requirements:
        key, operator = requirement.key, requirement.operator
        if operator == "!":
            absent.add(key)
            continue
        if operator not in ("!=", "notin"):
            needed.add(key)
        if operator != "exists":
            by_key.setdefault(key, _KeyRequirements()).add(requirement)

    def matches(labels: _Labels) -> bool:
        if len(labels) < len(needed) or not needed <= labels.keys() or not absent.isdisjoint(labels):
            return False
        for key, value in labels.items():
            of_key = by_key.get(key)
            if of_key is not None and not of_key.allows(value):
                return False
        return True

    return matches


# -- labels -------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"==|!=|[()!=,<>]|[^()!=,<> \t\r\n]+")
_SYMBOLS = frozenset("()!=,<>")
_OPERATORS = {"in": "in", "=": "=", "==": "=", ">": "gt", "<": "lt", "notin": "notin", "!=": "!="}
_BINARY = "in, notin, =, ==, !=, gt, lt"
_END = ("end", "")


class _Parser:
    """Parses one token at a time, in linear time and without storing tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.finditer(text)
        self._ahead = self._read()

    def _read(self) -> tuple[str, str]:
        """Return the next token and its text: a symbol, "id" for an identifier, "in" and "notin", or "end"."""
        match = next(self._tokens, None)
        if match is None:
            return _END
        text = match[0]
        if text[0] in _SYMBOLS or text in ("in", "notin"):
            return text, text
        return "id", text

    def peek(self) -> tuple[str, str]:
        token, literal = self._ahead
        return ("id" if token in ("in", "notin") else token), literal

    def take(self) -> tuple[str, str]:
        found = self.peek()
        self._ahead = self._read()
        return found

    def take_operator(self) -> tuple[str, str]:
        """Return the same as `take`, with "in" and "notin" as operators rather than as identifiers."""
        found = self._ahead
        self._ahead = self._read()
        return found

    def parse(self) -> tuple[Requirement, ...]:
        requirements: list[Requirement] = []
        while True:
            token, literal = self.peek()
            if token in ("id", "!"):
                try:
                    requirements.append(self.requirement())
                except SelectorError as error:
                    raise SelectorError(f"unable to parse requirement: {error}") from None
                token, literal = self.take()
                if token == "end":
                    return tuple(sorted(requirements, key=lambda requirement: requirement.key))
                if token != ",":
                    raise SelectorError(f"found '{literal}', expected: ',' or 'end of string'")
                token, literal = self.peek()
                if token not in ("id", "!"):
                    raise SelectorError(f"found '{literal}', expected: identifier after ','")
            elif token == "end":
                return tuple(requirements)
            else:
                raise SelectorError(f"found '{literal}', expected: !, identifier, or 'end of string'")

    def requirement(self) -> Requirement:
        token, key = self.take()
        negated = token == "!"
        if negated:
            token, key = self.take()
        if token != "id":
            raise SelectorError(f"found '{key}', expected: identifier")
        wrong = _qualified_name(key)
        if wrong:
            raise SelectorError(invalid("<nil>", key, "; ".join(wrong)).message())
        if self.peek()[0] in ("end", ","):
            return Requirement(key, "!" if negated else "exists", ())
        token, literal = self.take_operator()
        if negated or token not in _OPERATORS:
            if negated and token in _OPERATORS:
                operator = _OPERATORS[token]
            else:
                raise SelectorError(f"found '{literal}', expected: {_BINARY}")
        else:
            operator = _OPERATORS[token]
        values = self.value_set() if operator in ("in", "notin") else self.exact_value()
        return _checked(key, operator, values)

    def value_set(self) -> set[str]:
        token, literal = self.take()
        if token != "(":
            raise SelectorError(f"found '{literal}' expected: '('")
        token, literal = self.peek()
        if token == ")":
            self.take()
            return {""}
        if token not in ("id", ","):
            raise SelectorError(f"found '{literal}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            token, literal = self.take()
            if token == "id":
                values.add(literal)
                token, literal = self.peek()
                if token == ")":
                    break
                if token != ",":
                    raise SelectorError(f"found '{literal}', expected: ',' or ')'")
            elif token == ",":
                if not values:
                    values.add("")
                following = self.peek()[0]
                if following == ")":
                    values.add("")
                    break
                if following == ",":
                    values.add("")
            else:
                raise SelectorError(f"found '{literal}', expected: ',', or identifier")
        self.take()
        return values

    def exact_value(self) -> set[str]:
        token, _ = self.peek()
        if token in ("end", ","):
            return {""}
        token, literal = self.take()
        if token == "id":
            return {literal}
        raise SelectorError(f"found '{literal}', expected: identifier")


def _checked(key: str, operator: str, values: set[str]) -> Requirement:
    ordered = sorted(values)
    errors = []
    if operator in ("gt", "lt"):
        for i, value in enumerate(ordered):
            if _integer(value) is None:
                errors.append(invalid(f"values[{i}]", value, "for 'Gt', 'Lt' operators, the value must be an integer"))
    for i, value in enumerate(ordered):
        wrong = _label_value(value)
        if wrong:
            errors.append(invalid(f"values[{i}][{key}]", value, "; ".join(wrong)))
    if errors:
        raise SelectorError(aggregate_message(errors))
    return Requirement(key, operator, tuple(ordered))


@memoized(maxsize=1024)
def parse_labels(text: str) -> Selector:
    """Parse a label selector. Raises SelectorError with upstream's message."""
    return _compile(_Parser(text).parse()) if text else EVERYTHING


# -- fields -------------------------------------------------------------------------------------------------------


_FIELD_TERM = re.compile(r"(?:[^,\\]|\\.)*\\?", re.DOTALL)
"""Everything up to the next comma that is not escaped."""


def _split_terms(text: str) -> list[str]:
    """Split at commas that are not escaped; escapes are retained."""
    if "\\" not in text:
        return text.split(",")
    terms, at = [], 0
    while at <= len(text):
        match = _FIELD_TERM.match(text, at)
        assert match is not None  # The pattern also matches the empty text.
        terms.append(match[0])
        at = match.end() + 1
    return terms


def escape_field(value: str) -> str:
    """Escape a value for a field selector."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _unescape(value: str) -> str:
    if not any(char in value for char in "\\,="):
        return value
    out, escaped = [], False
    for char in value:
        if escaped:
            if char not in "\\,=":
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{char}")
            out.append(char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(char)}")
        else:
            out.append(char)
    if escaped:
        raise SelectorError("invalid field selector: invalid escape sequence: \\")
    return "".join(out)


@memoized(maxsize=1024)
def parse_fields(text: str) -> Selector:
    """Parse a field selector. Raises SelectorError; the caller checks whether the kind supports the fields."""
    requirements = []
    for term in sorted(_split_terms(text)):
        if not term:
            continue
        found = re.search("!=|==|=", term)
        if not found:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        if term in ("=", "=="):
            continue
        operator = "!=" if found.group() == "!=" else "="
        requirements.append(Requirement(term[: found.start()], operator, (_unescape(term[found.end() :]),)))
    return _compile_fields(tuple(requirements))


def _compile_fields(requirements: tuple[Requirement, ...]) -> Selector:
    """Compile a field selector. An absent field counts as empty. A test takes one step per distinct field."""
    if not requirements:
        return EVERYTHING
    by_key: dict[str, _KeyRequirements] = {}
    for requirement in requirements:
        by_key.setdefault(requirement.key, _KeyRequirements()).add(requirement)
    if len(requirements) == 1:
        key, operator, (value,) = requirements[0]
        if operator == "=":
            return Selector(requirements, lambda fields: fields.get(key, "") == value)
        return Selector(requirements, lambda fields: fields.get(key, "") != value)
    tests = tuple(by_key.items())

    def matches(fields: _Labels) -> bool:
        for key, of_key in tests:  # noqa: SIM110 - a generator costs more than all the rest
            if not of_key.allows(fields.get(key, "")):
                return False
        return True

    return Selector(requirements, matches)


# -- the structured form ------------------------------------------------------------------------------------------

_STRUCTURED = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def from_label_selector(selector: Mapping[str, Any] | None) -> Selector:
    """Compile a LabelSelector of an object: None selects nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    requirements = [Requirement(key, "in", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        operator = _STRUCTURED.get(expression.get("operator", ""))
        if operator is None:
            raise SelectorError(f'"{expression.get("operator", "")}" is not a valid label selector operator')
        requirements.append(Requirement(expression.get("key", ""), operator, tuple(expression.get("values") or ())))
    return _compile(tuple(requirements))


def from_map(labels: Mapping[str, str] | None) -> Selector:
    """Compile the plain map form (Service, ReplicationController): empty selects nothing."""
    if not labels:
        return NOTHING
    return _compile(tuple(Requirement(key, "in", (value,)) for key, value in labels.items()))


def format_labels(selector: Mapping[str, Any] | None) -> str:
    """Return a LabelSelector as text, the way tables and `Scale.status.selector` show it."""
    if selector is None:
        return "<none>"
    parts: list[tuple[str, str]] = [(k, f"{k}={v}") for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key", ""), sorted(expression.get("values") or ())
        shown = {
            "In": f"{key} in ({','.join(values)})",
            "NotIn": f"{key} notin ({','.join(values)})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }.get(expression.get("operator", ""), "<error>")
        parts.append((key, shown))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0])) or "<none>"
