"""The slow second pass over a value that did not decode cleanly: reports errors with upstream's messages and order.

Upstream decodes in document order. It records the first type error and continues, but an error from a type with a
decoder of its own (quantity, time, int-or-string) ends the decoding at once and takes precedence. Unknown and duplicate
fields are recorded on the way, by paths such as `spec.containers[0].foo`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, NoReturn

from setpoint.meta.goformat import quote
from setpoint.meta.json_syntax import read_json
from setpoint.meta.quantity import QuantityError
from setpoint.meta.quantity import canonical as canonical_quantity
from setpoint.meta.schema import Shape, Type
from setpoint.meta.times import TimeError, canonical_micro, canonical_time, parse_duration

MAX_STRICT_ENTRIES = 100
_MAX_INT_DIGITS = 20


class DecodeError(ValueError):
    """The value does not fit its type; the message is upstream's."""


class NumberText(float):
    """A number that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> NumberText:
        made = super().__new__(cls, text)
        made.text = text
        return made


class Pairs(list[tuple[str, Any]]):
    """A JSON object with all its keys, including duplicates."""


def _read_int(text: str) -> int | NumberText:
    return int(text) if len(text) <= _MAX_INT_DIGITS else NumberText(text)


def read_exactly(raw: bytes) -> Any:
    """Parse JSON with floats and overlong integers as NumberText."""
    return read_json(raw, parse_float=NumberText, parse_int=_read_int)


def _read_pairs(raw: bytes) -> Any:
    return read_json(raw, parse_float=NumberText, parse_int=_read_int, object_pairs_hook=Pairs)


def number_text(number: float) -> str:
    """Return a number as upstream's JSON encoder writes it."""
    if isinstance(number, NumberText):
        return number.text
    if isinstance(number, int):
        return str(number)
    mantissa, _, exponent = repr(number).partition("e")
    if number != 0 and not 1e-6 <= abs(number) < 1e21:
        return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}"
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction.rstrip("0")
    if exponent.startswith("-"):
        sign = "-" if number < 0 else ""
        return f"{sign}0.{'0' * (-int(exponent) - 1)}{whole.lstrip('-')}{fraction}"
    if exponent:
        return whole + fraction.ljust(int(exponent), "0")
    return f"{whole}.{fraction}" if fraction else whole


def number_texts(value: Any) -> Any:
    """Return the same value with every float as a NumberText, for values that were not read from JSON."""
    if isinstance(value, dict):
        return {key: number_texts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [number_texts(one) for one in value]
    return NumberText(number_text(value)) if isinstance(value, float) else value


def report(type: Type, value: Any, raw: bytes | None) -> list[str]:
    """Return the unknown and duplicate fields. Raises the DecodeError that the value deserves, if any."""
    if raw is not None:
        try:
            value = _read_pairs(raw)
        except (ValueError, RecursionError):  # The value was read by a more lenient reader.
            value = number_texts(value)
    reporter = _Reporter()
    reporter.walk(type, value, "")
    if reporter.saved is not None:
        raise DecodeError(reporter.saved.message())
    return reporter.strict if type.go else sorted(reporter.strict, key=_custom_order)


def _custom_order(finding: str) -> tuple[int, str]:
    """Return the sort key: duplicates, unknown metadata, other fields by name, metadata of embedded objects."""
    if finding.startswith("duplicate"):
        return 0, ""
    if finding.startswith('unknown field "metadata.'):
        return 1, finding
    return (3 if ".metadata." in finding else 2), finding


class _Finding:
    """A type error or another error message."""

    def __init__(
        self, text: str = "", what: str = "", go: str = "", struct: str = "", path: Iterable[str] = ()
    ) -> None:
        self.text, self.what, self.go, self.struct, self.path = text, what, go, struct, tuple(path)

    def message(self) -> str:
        if self.text:
            return self.text
        if self.path:
            field = f"{self.struct}.{'.'.join(self.path)}"
            return f"json: cannot unmarshal {self.what} into Go struct field {field} of type {self.go}"
        return f"json: cannot unmarshal {self.what} into Go value of type {self.go}"


def describe(value: Any) -> str:
    """Return the kind of a JSON value by upstream's name."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "object" if isinstance(value, dict | Pairs) else "array"


class _Reporter:
    def __init__(self) -> None:
        self.saved: _Finding | None = None
        self.strict: list[str] = []
        self.struct = ""
        self.path: list[str] = []

    def wrong(self, what: str, go: str) -> _Finding:
        return _Finding("", what, go, self.struct, self.path)

    def save(self, finding: _Finding) -> None:
        if self.saved is None:
            self.saved = finding

    def note(self, what: str, where: str) -> None:
        entry = f"{what} field {quote(where)}"
        if len(self.strict) < MAX_STRICT_ENTRIES and entry not in self.strict:
            self.strict.append(entry)

    def walk(self, type: Type, value: Any, where: str) -> None:
        if value is None:
            return
        shape = type.shape
        if shape is Shape.STRUCT:
            self.walk_struct(type, value, where)
        elif shape is Shape.MAP:
            if not isinstance(value, dict | Pairs):
                self.mistyped(type, value, where)
            else:
                for key, one in self.items(value, where):
                    below = f"{where}.{key}" if where else key
                    if type.item is not None:
                        self.walk(type.item, one, below)
                    elif not type.go:
                        self.walk_pruned(one, below)
        elif shape is Shape.LIST:
            if describe(value) != "array":
                self.mistyped(type, value, where)
            elif type.item is not None:
                for at, one in enumerate(value):
                    self.walk(type.item, one, f"{where}[{at}]")
        elif type.go:
            self.check_scalar(type, value)
        elif shape is not Shape.ANY:
            self.walk_pruned(value, where)

    def mistyped(self, type: Type, value: Any, where: str) -> None:
        if type.go:
            self.save(self.wrong(describe(value), type.go))
        else:  # Validated by its schema later, after pruning.
            self.walk_pruned(value, where)

    def walk_pruned(self, value: Any, where: str) -> None:
        """Report on a value for which a custom type has no schema."""
        if isinstance(value, dict | Pairs):
            for key, _ in self.items(value, where):
                self.note("unknown", f"{where}.{key}" if where else key)
        elif isinstance(value, list):
            for at, one in enumerate(value):
                self.walk_pruned(one, f"{where}[{at}]")

    def items(self, value: Any, where: str) -> Iterable[tuple[str, Any]]:
        if isinstance(value, dict):
            yield from value.items()
            return
        seen = set()
        for key, one in value:
            if key in seen:
                self.note("duplicate", f"{where}.{key}" if where else key)
            seen.add(key)
            yield key, one

    def walk_struct(self, type: Type, value: Any, where: str) -> None:
        if not isinstance(value, dict | Pairs):
            self.mistyped(type, value, where)
            return
        struct, depth = self.struct, len(self.path)
        seen = set()
        for key, one in value.items() if isinstance(value, dict) else value:
            field = type.fields.get(key)
            below = f"{where}.{key}" if where else key
            if field is None:
                if not type.preserve_unknown:
                    self.note("unknown", below)
                continue
            if key in seen:
                self.note("duplicate", below)
            seen.add(key)
            self.struct = type.name.rpartition(".")[2]
            if field.type.go and not type.go:
                self.walk_part(field.type, one, where, below)
                continue
            if field.embedded:
                self.path += field.embedded.split(".")
            self.path.append(key)
            self.walk(field.type, one, below)
            self.struct = struct
            del self.path[depth:]

    def walk_part(self, type: Type, value: Any, where: str, below: str) -> None:
        """Report on kind, version or metadata of a custom or embedded object, each of which upstream decodes
        separately."""
        if type.shape is Shape.STRING:
            if describe(value) != "string":
                self.end(_Finding(f"{below}: Invalid value: {_shown(value)}: must be a string"))
            return
        inner = _Reporter()
        try:
            inner.walk(type, value, below)
            problem = inner.saved.message() if inner.saved is not None else ""
        except DecodeError as error:
            problem = str(error)
        self.strict += [entry for entry in inner.strict if entry not in self.strict]
        if problem:
            self.end(_Finding(f"{below}: Invalid value: {_shown(value)}: {problem}" if where else problem))

    def check_scalar(self, type: Type, value: Any) -> None:
        shape, what = type.shape, describe(value)
        if shape is Shape.STRING:
            if what != "string":
                self.save(self.wrong(what, type.go))
        elif shape is Shape.BOOL:
            if what != "bool":
                self.save(self.wrong(what, type.go))
        elif shape in (Shape.INT32, Shape.INT64):
            if what != "number":
                self.save(self.wrong(what, type.go))
            elif not _fits(value, 31 if shape is Shape.INT32 else 63):
                self.save(self.wrong(f"number {number_text(value)}", type.go))
        elif shape is Shape.FLOAT:
            if what != "number":
                self.save(self.wrong(what, type.go))
        elif shape is Shape.BYTES:
            if what == "string":
                if (at := _base64_error(value.encode())) is not None:
                    self.save(_Finding(f"illegal base64 data at input byte {at}"))
            elif what != "array":
                self.save(self.wrong(what, type.go))
            else:
                self.check_byte_list(value)
        elif shape is Shape.ANY:
            if type.item is not None:
                self.check_schema_union(type, type.item, value)
        else:
            self.check_self_reading(shape, value, what)

    def check_byte_list(self, value: list[Any]) -> None:
        for one in value:
            if one is None or (isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 256):
                continue
            what = describe(one)
            self.save(self.wrong(f"number {number_text(one)}" if what == "number" else what, "uint8"))

    def check_self_reading(self, shape: Shape, value: Any, what: str) -> None:
        if shape is Shape.QUANTITY:
            text = value if what == "string" else number_text(value) if what == "number" else what
            try:
                canonical_quantity(text)
            except QuantityError as error:
                self.end(_Finding(str(error)))
        elif shape is Shape.INT_OR_STRING:
            if what == "number" and not _fits(value, 31):
                self.end(self.wrong(f"number {number_text(value)}", "int32"))
            elif what not in ("number", "string"):
                self.end(self.wrong(what, "int32"))
        elif what != "string":
            self.end(self.wrong(what, "string"))
        else:
            try:
                if shape is Shape.TIME:
                    canonical_time(value)
                elif shape is Shape.MICROTIME:
                    canonical_micro(value)
                else:
                    parse_duration(value)
            except TimeError as error:
                self.end(_Finding(str(error)))

    def check_schema_union(self, type: Type, schema: Type, value: Any) -> None:
        """Report on a union; upstream uses a separate decoder for it, whose first error ends the decoding."""
        inner, what = _Reporter(), describe(value)
        if what == "object":
            inner.walk(schema, value, "")
        elif type.name.endswith("OrBool"):
            if what != "bool":
                self.end(_Finding("boolean or JSON schema expected"))
        elif what == "array":
            for one in value:
                if type.name.endswith("OrArray"):
                    inner.walk(schema, one, "")
                elif one is not None and describe(one) != "string":
                    inner.save(inner.wrong(describe(one), "string"))
        if (saved := inner.saved) is not None:
            if not saved.text:
                saved.struct, saved.path = self.struct, (*self.path, *saved.path)
            self.end(saved)

    def end(self, finding: _Finding) -> NoReturn:
        raise DecodeError(finding.message())


def _shown(value: Any) -> str:
    return json.dumps(_as_dicts(value), separators=(",", ":"), sort_keys=True)


def _as_dicts(value: Any) -> Any:
    if isinstance(value, Pairs):
        return {key: _as_dicts(one) for key, one in value}
    return [_as_dicts(one) for one in value] if isinstance(value, list) else value


def _fits(value: Any, bits: int) -> bool:
    return isinstance(value, int) and -(1 << bits) <= value < 1 << bits


# -- base64 -----------------------------------------------------------------------------------------------------------

_ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def lenient_base64(text: str) -> str | None:
    """Return base64 that may be broken into lines as one line, or None if it is not base64."""
    if not text.isascii() or _base64_error(text.encode()) is not None:
        return None
    return b64encode(b64decode(text)).decode()


def _base64_error(data: bytes) -> int | None:
    """Return the offset at which upstream's decoder fails, or None if it succeeds."""
    at, end = 0, len(data)
    while True:
        filled = 0
        while filled < 4:
            if at == end:
                return at - filled if filled else None
            byte = data[at]
            at += 1
            if byte in _ALPHABET:
                filled += 1
            elif byte not in b"\r\n":
                return at - 1 if byte != ord("=") or filled < 2 else _padding_error(data, at, filled)


def _padding_error(data: bytes, at: int, filled: int) -> int | None:
    """Return the offset of a padding error; `at` is past the first padding character of the last group."""
    end = len(data)
    if filled == 2:
        while at < end and data[at] in b"\r\n":
            at += 1
        if at == end:
            return end
        if data[at] != ord("="):
            return at - 1
        at += 1
    while at < end and data[at] in b"\r\n":
        at += 1
    return at if at < end else None
