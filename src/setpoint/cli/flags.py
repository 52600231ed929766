"""Command-line flags as in kubectl: `--name value`, `--name=value`, `-n value`, `-nvalue`, `-n=value`, `-it`, anywhere
on the line, until `--`.

The messages are those of the library that kubectl uses, so that users and scripts can match on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from setpoint.meta.goformat import parse_bool, quote


class UsageProblem(Exception):
    """An invalid command line. The message gives the reason; a hint at `--help` is added when it is printed."""


class Flag(NamedTuple):
    """A flag, created by `text`, `switch`, `number` and so on."""

    name: str
    short: str
    default: Any
    help: str
    read: Callable[[str], Any]
    """Parses the value; raises ValueError with the reason."""
    takes: str = "string"
    """The type of the value in the help; empty for a switch."""
    bare: str | None = None
    """The value of the flag without a value, which then requires `=`; None if a value is required."""
    many: str = ""
    """How repeated flags combine: `list` (values also split at commas), `array` (values as they are); empty if they do
    not."""
    hidden: bool = False
    choices: tuple[str, ...] = ()
    """The valid values, for completion and help; empty means any."""
    required: bool = False
    alias: tuple[str, ...] = ()
    """Other names, which the help does not show."""
    deprecated: str = ""
    """The deprecation message for users of the flag, which the help does not show; empty if it is not deprecated."""

    attribute: str = ""
    """The attribute name of the value if it is not derived from the name: for a flag that hides a common one."""
    group: str = ""
    """The heading in the help of a command with many flags; empty for none."""
    common: bool = False
    """Whether `--help` shows the flag although it belongs to a group; `--help-all` shows all flags."""

    @property
    def key(self) -> str:
        return self.attribute or self.name.replace("-", "_")


def text(name: str, short: str = "", default: str = "", help: str = "", **more: Any) -> Flag:
    return Flag(name, short, default, help, str, **more)


def switch(name: str, short: str = "", default: bool = False, help: str = "", **more: Any) -> Flag:
    return Flag(name, short, default, help, read_bool, "", "true", **more)


def number(
    name: str,
    short: str = "",
    default: int = 0,
    help: str = "",
    least: int | None = None,
    most: int | None = None,
    bits: int = 64,
    **more: Any,
) -> Flag:
    def read(value: str) -> int:
        found = _int(value, bits)
        if (least is not None and found < least) or (most is not None and found > most):
            raise ValueError(f"must be between {least} and {most}" if most is not None else f"must be at least {least}")
        return found

    return Flag(name, short, default, help, read, "int", **more)


def decimal(name: str, short: str = "", default: float = 0.0, help: str = "", **more: Any) -> Flag:
    return Flag(name, short, default, help, _float, "float", **more)


def duration(name: str, short: str = "", default: float = 0.0, help: str = "", **more: Any) -> Flag:
    """Return a flag for a duration such as `1m30s`, in seconds."""
    return Flag(name, short, default, help, _seconds, "duration", **more)


def texts(name: str, short: str = "", default: Sequence[str] = (), help: str = "", **more: Any) -> Flag:
    """Return a flag for a list: `--x a,b --x c`."""
    return Flag(name, short, tuple(default), help, str, "strings", many="list", **more)


def array(name: str, short: str = "", default: Sequence[str] = (), help: str = "", **more: Any) -> Flag:
    """Return a flag for an array, whose values may contain commas: `--x a,b --x c`."""
    return Flag(name, short, tuple(default), help, str, "stringArray", many="array", **more)


def about(group: str, *flags: Flag) -> tuple[Flag, ...]:
    """Return the flags with a common heading in the help, in this order."""
    return tuple(flag._replace(group=group) for flag in flags)


class Values:
    """The values of flags as attributes: `--dry-run` is `values.dry_run`."""

    def __init__(self, flags: Iterable[Flag]) -> None:
        self._given: set[str] = set()
        self.occurrences: list[tuple[Flag, str]] = []
        """The flags that were given with their texts, in the order of the command line."""
        for flag in flags:
            setattr(self, flag.key, list(flag.default) if flag.many else flag.default)

    def __getattr__(self, key: str) -> Any:  # for type checkers: the attributes are the names of the flags
        raise AttributeError(key)

    def given(self, name: str) -> bool:
        """Return whether a flag was given on the command line, with any value."""
        return name in self._given

    def set_default(self, name: str, value: Any) -> None:
        """Set the value of a flag unless it was given."""
        if name not in self._given:
            setattr(self, name.replace("-", "_"), value)

    def _set(self, flag: Flag, value: str, shown: str) -> None:
        if flag.many:
            found: list[str] = getattr(self, flag.key) if flag.name in self._given else []
            found += _fields(value) if flag.many == "list" else [value]
            setattr(self, flag.key, found)
        else:
            try:
                setattr(self, flag.key, flag.read(value))
            except ValueError as error:
                raise UsageProblem(f"invalid argument {quote(value)} for {quote(shown)} flag: {error}") from None
        self._given.add(flag.name)
        self.occurrences.append((flag, value))


class Line(NamedTuple):
    """A parsed command line."""

    values: Values
    args: list[str]
    dash: int
    """The number of `args` before `--`; -1 if there was none."""


class Flags:
    """The flags of one command, by name."""

    def __init__(self, flags: Iterable[Flag]) -> None:
        self.all = tuple(flags)
        self._by_name = {name: flag for flag in self.all for name in (flag.name, *flag.alias)}
        self._by_short = {flag.short: flag for flag in self.all if flag.short}

    def parse(self, words: Sequence[str], *, interspersed: bool = True) -> Line:
        """Parse a command line. Raise UsageProblem. Unless `interspersed`, the first argument ends the flags (`exec pod
        cmd -x`)."""
        values, args, dash = Values(self.all), list[str](), -1
        rest = list(reversed(words))
        while rest:
            word = rest.pop()
            if word == "--":
                dash = len(args)
                args += reversed(rest)
                break
            if len(word) < 2 or word[0] != "-":
                args.append(word)
                if not interspersed:
                    args += reversed(rest)
                    break
            elif word.startswith("--"):
                self._long(word, rest, values)
            else:
                self._short(word, rest, values)
        missing = [flag.name for flag in self.all if flag.required and not values.given(flag.name)]
        if missing and not (getattr(values, "help", False) or getattr(values, "help_all", False)):
            raise UsageProblem("required flag(s) " + ", ".join(f'"{name}"' for name in missing) + " not set")
        return Line(values, args, dash)

    def first_argument(self, words: Sequence[str]) -> int:
        """Return the index of the first word that is neither a flag nor its value; -1 if there is none. Errors are
        ignored."""
        skip = False
        for index, word in enumerate(words):
            if skip:
                skip = False
            elif word == "--":
                return -1
            elif len(word) < 2 or word[0] != "-":
                return index
            elif word.startswith("--"):
                flag = self._by_name.get(word[2:])
                skip = flag is not None and flag.bare is None
            else:
                skip = self._short_wants_more(word)
        return -1

    def _short_wants_more(self, word: str) -> bool:
        for index, letter in enumerate(word[1:], 1):
            flag = self._by_short.get(letter)
            if flag is None:
                return False
            if flag.bare is None:
                return index == len(word) - 1
        return False

    def _long(self, word: str, rest: list[str], values: Values) -> None:
        name, equals, value = word[2:].partition("=")
        if not name or name[0] == "-":
            raise UsageProblem(f"bad flag syntax: {word}")
        flag = self._by_name.get(name)
        if flag is None:
            raise UsageProblem(f"unknown flag: --{name}{self._meant(name)}")
        if not equals:
            if flag.bare is not None:
                value = flag.bare
            elif rest:
                value = rest.pop()
            else:
                raise UsageProblem(f"flag needs an argument: --{name}")
        values._set(flag, value, f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}")

    def _short(self, word: str, rest: list[str], values: Values) -> None:
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            flag = self._by_short.get(letter)
            if flag is None:
                raise UsageProblem(f"unknown shorthand flag: {letter!r} in {word}")
            if letters.startswith("="):
                value, letters = letters[1:], ""
            elif flag.bare is not None:
                value = flag.bare
            elif letters:
                value, letters = letters, ""
            elif rest:
                value = rest.pop()
            else:
                raise UsageProblem(f"flag needs an argument: {letter!r} in {word}")
            values._set(flag, value, f"-{flag.short}, --{flag.name}")

    def _meant(self, name: str) -> str:
        # Imported here because it is only needed after an error.
        from difflib import get_close_matches

        matches = get_close_matches(name, [flag.name for flag in self.all if not flag.hidden], 1, 0.75)
        return f" (did you mean --{matches[0]}?)" if matches else ""


def shown_default(flag: Flag) -> str:
    """Return the default as the help shows it; empty for zero values."""
    if flag.many:
        return f"[{','.join(flag.default)}]" if flag.default else ""
    if flag.takes == "duration":
        from setpoint.meta.times import format_duration  # only the help needs it

        return format_duration(round(flag.default * 1e9)) if flag.default else ""
    if isinstance(flag.default, bool):
        return "true" if flag.default else ""
    if isinstance(flag.default, str):
        return f"'{flag.default}'" if flag.default else ""
    return str(flag.default) if flag.default else ""


def _fields(value: str) -> list[str]:
    """Split a value as one line of CSV, as kubectl does."""
    if '"' not in value:
        return value.split(",") if value else []
    import csv

    return next(csv.reader([value]), [])


def read_bool(value: str) -> bool:
    parsed = parse_bool(value)
    if parsed is None:
        raise ValueError(f"strconv.ParseBool: parsing {quote(value)}: invalid syntax")
    return parsed


def _int(value: str, bits: int = 64) -> int:
    try:
        found = int(value, 0) if value.strip() == value and "_" not in value else None
    except ValueError:
        found = int(value) if value.isascii() and value.isdigit() else None
    if found is None:
        raise ValueError(f"strconv.ParseInt: parsing {quote(value)}: invalid syntax")
    if not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
        raise ValueError(f"strconv.ParseInt: parsing {quote(value)}: value out of range")
    return found


def _float(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"strconv.ParseFloat: parsing {quote(value)}: invalid syntax") from None


def _seconds(value: str) -> float:
    from setpoint.meta.times import parse_duration  # few command lines have a duration

    return parse_duration(value) / 1e9
