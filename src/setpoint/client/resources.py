"""Built-in resources by kind or plural, and the URL paths and queries of any resource."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from setpoint.kinds.catalog import RESOURCES, Resource

BY_KIND: dict[tuple[str, str], Resource] = {(resource.api_version, resource.kind): resource for resource in RESOURCES}
"""The built-in resources by (apiVersion, kind)."""
BY_PLURAL: dict[tuple[str, str, str], Resource] = {
    (resource.group, resource.version, resource.plural): resource for resource in RESOURCES
}
"""The built-in resources by (group, version, plural)."""


def builtin(plural: str, group: str = "", version: str = "v1") -> Resource:
    """Return a built-in resource: `builtin("pods")`, `builtin("deployments", "apps")`. Raise KeyError."""
    return BY_PLURAL[(group, version, plural)]


_plain = re.compile(r"[A-Za-z0-9._:~-]+").fullmatch


def path_segment(text: str, what: str) -> str:
    """Return one encoded path segment. Raise an error for text that a server or proxy could read as several
    segments."""
    if text in (".", ".."):
        raise ValueError(f"invalid {what} \"{text}\": may not be '{text}'")
    if _plain(text):
        return text
    for char in "/%":
        if char in text:
            raise ValueError(f"invalid {what} \"{text}\": may not contain '{char}'")
    return quote(text, safe="")


def path_of(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    path = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    if namespace and resource.namespaced:
        path += f"/namespaces/{path_segment(namespace, 'namespace')}"
    path += f"/{resource.plural}"
    if name:
        path += f"/{path_segment(name, 'resource name')}"
        if subresource:
            path += f"/{subresource}"
    return path


def query_of(options: Mapping[str, str | int | bool | None]) -> str:
    """Encode the options that are set."""
    given = {}
    for key, value in options.items():
        if value is True:
            given[key] = "true"
        elif value or (value == 0 and type(value) is int):
            given[key] = str(value)
    return urlencode(given, quote_via=quote) if given else ""
