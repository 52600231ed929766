"""No regular expression of the server, or of simulated nodes, takes long, whatever it is given."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOMS = ("setpoint.meta", "setpoint.kinds", "setpoint.store", "setpoint.apiserver", "setpoint.node")
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
    """With the place of each, and what is done with it there."""
    for room in ROOMS:
        package = importlib.import_module(room)
        for info in pkgutil.walk_packages(package.__path__, f"{room}."):
            module = importlib.import_module(info.name)
            source = Path(str(module.__file__)).read_text()
            for name, value in vars(module).items():
                for pattern in patterns(value):
                    used = {one for one in METHODS if re.search(rf"\b{re.escape(name)}\.{one}\b", source)}
                    yield f"{info.name}.{name}", pattern, used or {"match"}


def seconds(pattern: re.Pattern[Any], methods: set[str], length: int) -> float:
    """What the worst text of so many characters costs."""
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


def test_a_bad_pattern_would_be_found() -> None:
    assert seconds(re.compile("(a+)+b"), {"fullmatch"}, 22) > 0.05


def test_no_pattern_can_be_made_to_run_long() -> None:
    looked_at = set()
    for place, pattern, methods in all_patterns():
        key = (pattern.pattern, pattern.flags, *sorted(methods))
        if key in looked_at:
            continue
        looked_at.add(key)
        # First the lengths at which those that double with every character can still be waited for.
        for length in (16, 24, 1500):
            # Once is enough: somebody else's garbage may be collected in between.
            assert any(seconds(pattern, methods, length) < 0.05 for _ in range(4)), (place, methods, length)
    assert len(looked_at) > 80
