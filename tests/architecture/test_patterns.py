"""No regular expression of the server or of simulated nodes has an input on which it runs long."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGES = ("setpoint.meta", "setpoint.kinds", "setpoint.view", "setpoint.store", "setpoint.apiserver", "setpoint.node")
PIECES = (
    "a",
    "0",
    "-",
    ".",
    "/",
    " ",
    ":",
    '"',
    "\\",
    "a.",
    "a-",
    "a/",
    "a,",
    "0:",
    "a=b,",
    "é",
    "$(",
    "<a ",
    " a=",
    "<a b='",
    "1 ",
)
ENDS = ("", "!")
METHODS = ("match", "fullmatch", "search", "sub", "findall", "finditer", "split")


def patterns(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from patterns(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from patterns(one)


def all_patterns() -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    """Yield the qualified name of each pattern, the pattern, and the methods that its module calls on it."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for info in pkgutil.walk_packages(package.__path__, f"{name}."):
            module = importlib.import_module(info.name)
            source = Path(str(module.__file__)).read_text()
            for variable, value in vars(module).items():
                for pattern in patterns(value):
                    used = {one for one in METHODS if re.search(rf"\b{re.escape(variable)}\.{one}\b", source)}
                    yield f"{info.name}.{variable}", pattern, used or {"match"}


def seconds(pattern: re.Pattern[Any], methods: set[str], length: int) -> float:
    """Return the CPU time of the slowest text of `length` characters."""
    worst = 0.0
    for piece in PIECES:
        for end in ENDS:
            text: Any = piece * (length // len(piece)) + end
            if isinstance(pattern.pattern, bytes):
                text = text.encode()
            for method in methods:
                more = ("",) if method == "sub" and isinstance(text, str) else (b"",) if method == "sub" else ()
                started = time.process_time()
                found = getattr(pattern, method)(*more, text)
                if method == "finditer":
                    list(found)
                worst = max(worst, time.process_time() - started)
    return worst


def test_an_exponential_pattern_is_detected() -> None:
    assert seconds(re.compile("(a+)+b"), {"fullmatch"}, 22) > 0.05


def test_no_pattern_runs_long() -> None:
    checked = set()
    for place, pattern, methods in all_patterns():
        key = (pattern.pattern, pattern.flags, *sorted(methods))
        if key in checked:
            continue
        checked.add(key)
        # Short texts come first: an exponential pattern would not end on a long one.
        for length in (16, 24, 1500):
            # One fast attempt is enough: a garbage collection may fall into an attempt.
            assert any(seconds(pattern, methods, length) < 0.05 for _ in range(4)), (place, methods, length)
    assert len(checked) > 80
