"""From URL to meaning: which resource, which object, which verb. Pure and cached: the same paths come all the time."""

from __future__ import annotations

import re
from binascii import a2b_qp
from functools import lru_cache
from typing import NamedTuple

_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_LONGEST_KEPT = 1024
"""Longer paths are not remembered: strangers could fill the memory with them."""
_MOST_PARAMETERS = 10_000
_MOST_SEGMENTS = 16
"""Maximum number of path segments that are split; no API path is deeper, and the rest stays one segment."""
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
COLLECTIONS = frozenset({"list", "watch"})
"""Verbs that read many objects."""


READS = COLLECTIONS | {"get"}
"""Verbs that change nothing."""


class Target(NamedTuple):
    """What a path names. `resource` is empty for paths outside the API (and for discovery documents)."""

    path: str
    """Decoded."""
    prefix: str = ""
    """`api` or `apis` for a path below those."""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    """What follows the subresource (of a proxy)."""
    watch: bool = False
    """The old `/watch/` prefix."""


UNREADABLE = Target("")
"""A path with a percent sign that begins no escape."""


def parse_path(raw: str) -> Target:
    return _kept(raw) if len(raw) <= _LONGEST_KEPT else _parse_path(raw)


def percent_decoded(raw: str) -> str:
    """Decode percent escapes and, from the wire, bytes beyond ASCII: UTF-8 either way.

    A text with a percent sign that begins no escape is returned as it is. The cost is that of a few copies, however
    many escapes there are: quoted-printable differs by its escape character only, and is decoded in C."""
    if ("%" not in raw and raw.isascii()) or _BAD_ESCAPE.search(raw):
        return raw
    try:
        sent = raw.encode("latin-1")
    except UnicodeEncodeError:
        sent = raw.encode("utf-8", "replace")
    return a2b_qp(sent.replace(b"=", b"=3D").replace(b"%", b"=")).decode("utf-8", "replace")


def _parse_path(raw: str) -> Target:
    if "%" in raw and _BAD_ESCAPE.search(raw):
        return UNREADABLE
    path = percent_decoded(raw)
    if not path.startswith("/"):
        path = "/" + path
    parts = path.split("/", _MOST_SEGMENTS)[1:]
    if parts[0] == "api" and len(parts) >= 3:
        return _resource(path, "api", "", parts[1], parts[2:])
    if parts[0] == "apis" and len(parts) >= 4 and parts[1]:
        return _resource(path, "apis", parts[1], parts[2], parts[3:])
    return Target(path)


_kept = lru_cache(maxsize=8192)(_parse_path)


def _resource(path: str, prefix: str, group: str, version: str, parts: list[str]) -> Target:
    # A trailing slash belongs to a discovery document or to nothing; dots and empty segments never name anything.
    if any(part in ("", ".", "..") for part in parts[:3]):
        if parts == [""]:
            return Target(path)
        if "" in parts[:-1] or any(part in (".", "..") for part in parts[:5]):
            return Target(path)
        if parts[0] == "namespaces" and parts[-1] == "" and len(parts) < 4:
            parts = parts[:-1]
    watch = parts[0] == "watch" and len(parts) > 1
    if watch:
        parts = parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
        elif len(parts) == 2 and not namespace:
            return Target(path)
    if len(parts) > 3 and not parts[2]:
        return Target(path)
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    rest = "/".join(parts[3:])
    return Target(path, prefix, group, version, namespace, parts[0], name, subresource, rest, watch)


def parse_query(query: str) -> dict[str, list[str]]:
    """All values by name, blanks kept. What cannot be read is left out, as Go does: pairs with a bad escape or a
    semicolon, and everything if there are too many."""
    options: dict[str, list[str]] = {}
    if not query or query.count("&") >= _MOST_PARAMETERS:
        return options
    for pair in query.split("&"):
        if not pair or ";" in pair or ("%" in pair and _BAD_ESCAPE.search(pair)):
            continue
        key, _, value = pair.replace("+", " ").partition("=")
        options.setdefault(percent_decoded(key), []).append(percent_decoded(value))
    return options


def truthy(value: str) -> bool:
    """A boolean in a query: anything but `false` and `0` is true, also nothing at all."""
    return value not in ("false", "0")


def verb_of(method: str, target: Target, query: dict[str, list[str]]) -> str:
    """The API verb: what authorization and admission speak of."""
    verb = _VERBS.get(method, "")
    if target.watch and verb == "get":
        return "watch"
    if not target.name or (target.resource == "namespaces" and not target.name):
        if verb == "get":
            return "watch" if "watch" in query and truthy(query["watch"][0]) else "list"
        if verb == "delete":
            return "deletecollection"
    return verb
