"""What programs that use the network have in common: options, waiting for the network, and how long failures take."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import NamedTuple

from setpoint.node.runtime.network import Failure
from setpoint.node.runtime.shell.session import Session

_LOOKS, _BETWEEN_LOOKS = 50, 0.1
_TAKES = {Failure.REFUSED: 0.0, Failure.CLOSED: 0.0, Failure.UNREACHABLE: 3.0, Failure.LOST: 134.0}
"""Seconds until a program learns of the failure, as Linux has it."""
_URL = re.compile(
    r"(?:(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://)?(?:[^/@?#]*@)?(?P<host>\[[0-9a-fA-F:]+\]|[^/:?#]+)"
    r"(?::(?P<port>\d{1,5}))?(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?",
    re.DOTALL,
)
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)")


class Url(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def tls(self) -> bool:
        return self.scheme == "https"


def url_of(text: str) -> Url | None:
    """Return the parts of an address of a page, http unless it says otherwise; None if there is no host in it."""
    found = _URL.fullmatch(text)
    if found is None:
        return None
    scheme = (found["scheme"] or "http").lower()
    port = int(found["port"] or (443 if scheme == "https" else 80))
    return Url(scheme, found["host"].strip("[]"), port, found["path"] or "/", found["query"] or "")


def options_of(arguments: list[str], with_value: frozenset[str]) -> tuple[dict[str, str], list[str]]:
    """Return options, those in `with_value` with what follows them, and the other words."""
    found: dict[str, str] = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each.startswith("--") and len(each) > 2:
            name, equals, value = each[2:].partition("=")
            found[name] = value if equals or name not in with_value or not rest else rest.pop(0)
        elif each.startswith("-") and len(each) > 1:
            letters = each[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                found[letter] = ""
                if letter in with_value:
                    found[letter], letters = letters or (rest.pop(0) if rest else ""), ""
        else:
            words.append(each)
    return found, words


def seconds_of(options: dict[str, str], *names: str) -> float | None:
    """Return the first of the options that is a number; None if none is."""
    for name in names:
        if (match := _SECONDS.fullmatch(options.get(name, ""))) is not None and float(match[1]) > 0:
            return float(match[1])
    return None


def network_ready(session: Session) -> Generator[float, None, None]:
    """Wait until Services and their endpoints are known, at most for a few seconds."""
    for _ in range(_LOOKS):
        if session.network.ready:
            return
        yield _BETWEEN_LOOKS


def takes(failure: Failure, limit: float | None = None) -> tuple[float, bool]:
    """Return how long the failure takes to show, and whether the limit ends the wait before that."""
    needed = _TAKES[failure]
    return (limit, True) if limit is not None and limit < needed else (needed, False)
