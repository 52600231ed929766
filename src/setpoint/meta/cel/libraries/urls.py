"""URLs in expressions."""

from __future__ import annotations

from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.libraries.go_urls import Url, UrlError, parse, parse_request_uri
from setpoint.meta.cel.values import CelError, Opaque


class UrlValue(Opaque):
    __slots__ = ("url",)
    TYPE = t.struct("kubernetes.URL")

    def __init__(self, url: Url) -> None:
        self.url = url

    def equals(self, other: Any) -> bool:
        return isinstance(other, UrlValue) and str(self.url) == str(other.url)


def _to_url(text: str) -> UrlValue:
    try:
        parse_request_uri(text)
        return UrlValue(parse(text))
    except UrlError as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_request_uri(text)
    except UrlError:
        return False
    return True


_U = "kubernetes.URL"
URLS = Library(
    "kubernetes.urls",
    (
        ("string_to_url", f"url(string) -> {_U}", _to_url),
        ("url_get_scheme", f"{_U}::getScheme() -> string", lambda value: value.url.scheme),
        ("url_get_host", f"{_U}::getHost() -> string", lambda value: value.url.host),
        ("url_get_hostname", f"{_U}::getHostname() -> string", lambda value: value.url.hostname),
        ("url_get_port", f"{_U}::getPort() -> string", lambda value: value.url.port),
        ("url_get_escaped_path", f"{_U}::getEscapedPath() -> string", lambda value: value.url.escaped_path),
        ("url_get_query", f"{_U}::getQuery() -> map(string, list(string))", lambda value: value.url.values()),
        ("is_url_string", "isURL(string) -> bool", _is_url),
    ),
)
