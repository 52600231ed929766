"""Values as Go sees them, and Go's `fmt` for them: `Sprint`, `Sprintln` and `Sprintf`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from setpoint.meta import goformat
from setpoint.meta.goformat import plain, quote


class Int(int):
    """Go's `int`, for constants and lengths; numbers from JSON are `int64`."""

    __slots__ = ()


class Byte(int):
    """A byte of a string."""

    __slots__ = ()


class Boxed:
    """A value from a map or list, which is an `interface {}` in Go; None inside is nil."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Absent:
    def __repr__(self) -> str:
        return "<no value>"


ABSENT: Final = _Absent()
"""An absent value: a missing key, or a dereferenced nil."""


def unboxed(value: Any) -> Any:
    if isinstance(value, Boxed):
        return ABSENT if value.value is None else value.value
    return value


def plain_value(value: Any) -> Any:
    """Return the plain value for functions that accept anything; None if it is absent."""
    value = unboxed(value)
    return None if value is ABSENT else value


def type_name(value: Any) -> str:
    if isinstance(value, Boxed):
        return "interface {}"
    if isinstance(value, Int):
        return "int"
    if isinstance(value, Byte):
        return "uint8"
    return goformat.type_name(value)


def is_true(value: Any) -> bool:
    value = unboxed(value)
    return value is not ABSENT and value is not None and bool(value)


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


_WIDEST = 1_000_000
"""The maximum width or precision, as in Go."""


def sprint(args: Sequence[Any]) -> str:
    """Format values with spaces only between two operands that are not strings."""
    out: list[str] = []
    for at, arg in enumerate(args):
        if at and not isinstance(arg, str) and not isinstance(args[at - 1], str):
            out.append(" ")
        out.append(plain(arg))
    return "".join(out)


def sprintln(args: Sequence[Any]) -> str:
    return " ".join(map(plain, args)) + "\n"


def sprintf(format: str, args: Sequence[Any]) -> str:
    return _Printf(format, args).run()


class _Spec:
    """The flags between `%` and the verb."""

    __slots__ = ("minus", "plus", "precision", "sharp", "space", "width", "zero")

    def __init__(self) -> None:
        self.plus = self.minus = self.sharp = self.space = self.zero = False
        self.width: int | None = None
        self.precision: int | None = None


class _Printf:
    def __init__(self, format: str, args: Sequence[Any]) -> None:
        self._format = format
        self._args = args
        self._at = 0
        self._arg = 0
        self._reordered = False
        self._good_index = True

    def run(self) -> str:
        out: list[str] = []
        format = self._format
        while True:
            percent = format.find("%", self._at)
            if percent < 0:
                out.append(format[self._at :])
                break
            out.append(format[self._at : percent])
            self._at = percent + 1
            out.append(self._directive())
        if not self._reordered and self._arg < len(self._args):
            extra = ", ".join(
                "<nil>" if arg is None else f"{type_name(arg)}={plain(arg)}" for arg in self._args[self._arg :]
            )
            out.append(f"%!(EXTRA {extra})")
        return "".join(out)

    def _directive(self) -> str:
        format, spec = self._format, _Spec()
        self._good_index = True
        before = ""
        while self._at < len(format) and format[self._at] in "#0+- ":
            self._flag(spec, format[self._at])
            self._at += 1
        after_index = self._index()
        if format[self._at : self._at + 1] == "*":
            self._at += 1
            spec.width, complaint = self._star("BADWIDTH")
            before += complaint
            if spec.width is not None and spec.width < 0:
                spec.width, spec.minus, spec.zero = -spec.width, True, False
            after_index = False
        else:
            spec.width = self._digits()
            if after_index and spec.width is not None:
                self._good_index = False
        if format[self._at : self._at + 1] == ".":
            self._at += 1
            if after_index:
                self._good_index = False
            after_index = self._index()
            if format[self._at : self._at + 1] == "*":
                self._at += 1
                spec.precision, complaint = self._star("BADPREC")
                before += complaint
                if spec.precision is not None and spec.precision < 0:
                    spec.precision, before = None, before + "%!(BADPREC)"
                after_index = False
            else:
                spec.precision = self._digits() or 0
        if not after_index:
            self._index()
        if self._at >= len(format):
            return before + "%!(NOVERB)"
        verb = format[self._at]
        self._at += 1
        if verb == "%":
            return before + "%"
        if verb == "v":
            spec.plus = False  # requests field names, which maps always have
        if not self._good_index:
            return f"{before}%!{verb}(BADINDEX)"
        if self._arg >= len(self._args):
            return f"{before}%!{verb}(MISSING)"
        arg = self._args[self._arg]
        self._arg += 1
        return before + formatted(arg, verb, spec)

    @staticmethod
    def _flag(spec: _Spec, flag: str) -> None:
        match flag:
            case "#":
                spec.sharp = True
            case "0":
                spec.zero = True
            case "+":
                spec.plus = True
            case "-":
                spec.minus = True
            case " ":
                spec.space = True

    def _digits(self) -> int | None:
        start = self._at
        while self._at < len(self._format) and "0" <= self._format[self._at] <= "9":
            self._at += 1
        digits = self._format[start : self._at]
        return min(int(digits[:8]), _WIDEST) if digits else None

    def _star(self, complaint: str) -> tuple[int | None, str]:
        if self._arg < len(self._args):
            value = self._args[self._arg]
            self._arg += 1
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _WIDEST:
                return int(value), ""
        return None, f"%!({complaint})"

    def _index(self) -> bool:
        """Parse an argument index such as `[2]`; return whether there was one."""
        if self._format[self._at : self._at + 1] != "[":
            return False
        self._reordered = True
        end = self._format.find("]", self._at)
        digits = self._format[self._at + 1 : end] if end >= 0 else ""
        self._at = end + 1 if end >= 0 else self._at + 1
        if digits.isascii() and digits.isdigit() and 1 <= int(digits[:9]) <= len(self._args):
            self._arg = int(digits) - 1
            return True
        self._good_index = False
        return end >= 0


def formatted(value: Any, verb: str, spec: _Spec) -> str:
    if value is None:
        return _padded("<nil>", spec) if verb in "Tv" else f"%!{verb}(<nil>)"
    if verb == "T":
        return _padded(type_name(value), spec)
    if isinstance(value, dict | list):
        return _container(value, verb, spec)
    if isinstance(value, bool):
        found = _padded("true" if value else "false", spec) if verb in "tv" else None
    elif isinstance(value, int):
        found = _integer(value, verb, spec)
    elif isinstance(value, float):
        found = _float(value, verb, spec)
    else:
        found = _text(str(value), verb, spec)
    return f"%!{verb}({type_name(value)}={plain(value)})" if found is None else found


def _container(value: Any, verb: str, spec: _Spec) -> str:
    def inner(one: Any) -> str:
        if one is None:
            return "interface {}(nil)" if verb == "v" and spec.sharp else "<nil>"
        return formatted(one, verb, spec)

    syntax = verb == "v" and spec.sharp
    if isinstance(value, list):
        if syntax:
            return f"[]interface {{}}{{{', '.join(map(inner, value))}}}"
        return "[" + " ".join(map(inner, value)) + "]"
    pairs = [f"{formatted(key, verb, spec)}:{inner(value[key])}" for key in sorted(value)]
    return f"map[string]interface {{}}{{{', '.join(pairs)}}}" if syntax else "map[" + " ".join(pairs) + "]"


def _padded(text: str, spec: _Spec) -> str:
    if spec.width is None or spec.width <= len(text):
        return text
    if spec.minus:
        return text.ljust(spec.width)
    return text.rjust(spec.width, "0" if spec.zero else " ")


def _text(text: str, verb: str, spec: _Spec) -> str | None:
    if verb in "xX":
        data = utf8(text)[: spec.precision]
        digits = [f"{byte:02x}" for byte in data]
        mark = "0x" if spec.sharp else ""
        shown = " ".join(mark + one for one in digits) if spec.space else mark * bool(digits) + "".join(digits)
        return _padded(shown.upper() if verb == "X" else shown, spec)
    if verb not in "svq":
        return None
    if spec.precision is not None:
        text = text[: spec.precision]
    if verb == "q" and spec.sharp and "`" not in text and all(char.isprintable() or char == "\t" for char in text):
        return _padded(f"`{text}`", spec)
    if verb == "q" or (verb == "v" and spec.sharp):
        text = quote(text)
        if spec.plus:
            text = "".join(char if ord(char) < 0x7F else _escape(char) for char in text)
    return _padded(text, spec)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


_BASES = {"b": "b", "o": "o", "O": "o", "d": "d", "v": "d", "x": "x", "X": "X"}
_MARKS = {"b": "0b", "o": "0", "O": "0o", "x": "0x", "X": "0X"}


def _integer(value: int, verb: str, spec: _Spec) -> str | None:
    if verb in "cqU":
        return _character(value, verb, spec)
    base = _BASES.get(verb)
    if base is None:
        return None
    digits = format(abs(int(value)), base)
    sign = "-" if value < 0 else "+" if spec.plus else " " if spec.space else ""
    mark = _MARKS.get(verb, "") if spec.sharp or verb == "O" else ""
    if spec.precision is not None:
        digits = "" if spec.precision == 0 and value == 0 else digits.rjust(spec.precision, "0")
    elif spec.zero and not spec.minus and spec.width is not None:
        digits = digits.rjust(spec.width - len(sign), "0")
    text = sign + ("" if mark == "0" and digits.startswith("0") else mark) + digits
    if spec.width is None or spec.width <= len(text):
        return text
    return text.ljust(spec.width) if spec.minus else text.rjust(spec.width)


def _character(value: int, verb: str, spec: _Spec) -> str:
    char = chr(value) if 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000 else "\ufffd"
    if verb == "U":
        shown = f"U+{value:0{spec.precision or 4}X}"
        if spec.sharp and char.isprintable():
            shown += f" '{char}'"
        zero, spec.zero = spec.zero, False
        shown = _padded(shown, spec)
        spec.zero = zero
        return shown
    if verb == "c":
        return _padded(char, spec)
    shown = quote(char)[1:-1]
    return _padded("'" + {'\\"': '"', "'": "\\'"}.get(shown, shown) + "'", spec)


def _float(value: float, verb: str, spec: _Spec) -> str | None:
    if verb not in "veEfFgGx":
        return None
    precision = spec.precision
    if value != value or abs(value) == float("inf"):
        text = "NaN" if value != value else "Inf" if value > 0 else "-Inf"
    elif verb in "eEfF":
        text = format(value, f".{6 if precision is None else precision}{verb.lower()}")
    elif verb == "x":
        text = value.hex()
    elif precision is None:
        text = plain(value)
    else:
        text = format(value, f".{precision}g")
    if verb in "EG":
        text = text.upper()
    sign = "-" if text.startswith("-") else "+" if spec.plus else " " if spec.space else ""
    digits = text.removeprefix("-")
    if spec.zero and not spec.minus and spec.width is not None and digits[0].isdigit():
        return sign + digits.rjust(spec.width - len(sign), "0")
    zero, spec.zero = spec.zero, False
    text = _padded(sign + digits, spec)
    spec.zero = zero
    return text


def shown(value: Any) -> str:
    """Format a value as `fmt` prints an operand."""
    return plain(value.value if isinstance(value, Boxed) else value)
