"""URLs in expressions. Go's net/url defines what is accepted, the components, and the error messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.values import CelError, Opaque
from setpoint.meta.goformat import quote

_HEX = frozenset("0123456789abcdefABCDEF")
_PORT = re.compile(r"(?::[0-9]*)?", re.ASCII)
_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
_PATH = _UNRESERVED | frozenset("$&+,/:;=@")
_VALID_PATH = _PATH | frozenset("!'()*[]")
_HOST = _UNRESERVED | frozenset("!$&'()*+,;=:[]<>\"")
_USER = _UNRESERVED | frozenset("!$&'()*+,;=:%@")


class UrlError(ValueError):
    """The text is not a URL; the message is Go's."""


@dataclass(frozen=True, slots=True)
class Url:
    scheme: str
    user: str | None
    host: str
    path: str
    raw_path: str
    query: str
    fragment: str
    opaque: str
    force_query: bool

    @property
    def port(self) -> str:
        return _split_host(self.host)[1]

    @property
    def hostname(self) -> str:
        name = _split_host(self.host)[0]
        return name[1:-1] if name.startswith("[") and name.endswith("]") else name

    @property
    def escaped_path(self) -> str:
        if self.raw_path and _valid_encoded(self.raw_path) and _unescape(self.raw_path, "path") == self.path:
            return self.raw_path
        return "*" if self.path == "*" else _escape(self.path, _PATH)

    def values(self) -> dict[str, list[str]]:
        """Return the parameters of the query; those that cannot be read are left out."""
        result: dict[str, list[str]] = {}
        for part in self.query.split("&"):
            if not part or ";" in part:
                continue
            key, _, value = part.partition("=")
            try:
                result.setdefault(_unescape(key, "query"), []).append(_unescape(value, "query"))
            except UrlError:
                continue
        return result

    def __str__(self) -> str:
        text = f"{self.scheme}:" if self.scheme else ""
        if self.opaque:
            text += self.opaque
        else:
            if self.scheme or self.host or self.user is not None:
                if self.host or self.path or self.user is not None:
                    text += "//" if self.host or self.user is not None or self.scheme else ""
                if self.user is not None:
                    text += f"{self.user}@"
                text += _escape(self.host, _HOST)
            path = self.escaped_path
            if path and not path.startswith("/") and self.host:
                text += "/"
            text += path
        if self.force_query or self.query:
            text += f"?{self.query}"
        return text + (f"#{self.fragment}" if self.fragment else "")


def _split_host(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and _PORT.fullmatch(f":{port}") else (host, "")


def parse_request_uri(text: str) -> Url:
    """Parse an absolute URL or an absolute path, without a fragment. Raises UrlError."""
    return _wrapped(text, via_request=True)


def parse(text: str) -> Url:
    """Parse any URL. Raises UrlError."""
    rest, _, fragment = text.partition("#")
    url = _wrapped(rest, via_request=False)
    if not fragment:
        return url
    return Url(url.scheme, url.user, url.host, url.path, url.raw_path, url.query, fragment, url.opaque, url.force_query)


def _wrapped(text: str, via_request: bool) -> Url:
    try:
        return _parse(text, via_request)
    except UrlError as error:
        raise UrlError(f"parse {quote(text)}: {error}") from None


def _parse(text: str, via_request: bool) -> Url:
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise UrlError("net/url: invalid control character in URL")
    if not text and via_request:
        raise UrlError("empty url")
    if text == "*":
        return Url("", None, "", "*", "", "", "", "", False)
    scheme, rest = _scheme(text)
    force_query = rest.endswith("?") and rest.count("?") == 1
    query = ""
    if force_query:
        rest = rest[:-1]
    else:
        rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme.lower(), None, "", "", "", query, "", rest, force_query)
        if via_request:
            raise UrlError("invalid URI for request")
        first, slash, _ = rest.partition("/")
        if ":" in first:
            raise UrlError("first path segment in URL cannot contain colon")
    user: str | None = None
    host = ""
    if (scheme or (not via_request and not rest.startswith("///"))) and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, host = _authority(authority)
    path = _unescape(rest, "path")
    raw_path = "" if _escape(path, _PATH) == rest else rest
    return Url(scheme.lower(), user, host, path, raw_path, query, "", "", force_query)


def _scheme(text: str) -> tuple[str, str]:
    for index, character in enumerate(text):
        if character.isascii() and character.isalpha():
            continue
        if character.isascii() and (character.isdigit() or character in "+-."):
            if index == 0:
                return "", text
            continue
        if character == ":":
            if index == 0:
                raise UrlError("missing protocol scheme")
            return text[:index], text[index + 1 :]
        return "", text
    return "", text


def _authority(authority: str) -> tuple[str | None, str]:
    user_text, at, host_text = authority.rpartition("@")
    host = _host(host_text)
    if not at:
        return None, host
    if any(character not in _USER for character in user_text):
        raise UrlError("net/url: invalid userinfo")
    _unescape(user_text, "user")
    return user_text, host


def _host(host: str) -> str:
    opening = host.rfind("[")
    if opening > 0:
        raise UrlError("invalid IP-literal")
    if opening == 0:
        closing = host.rfind("]")
        if closing < 0:
            raise UrlError("missing ']' in host")
        port = host[closing + 1 :]
        if not _PORT.fullmatch(port):
            raise UrlError(f"invalid port {quote(port)} after host")
        return _unescape(host, "host")
    colon = host.rfind(":")
    if colon >= 0 and not _PORT.fullmatch(host[colon:]):
        raise UrlError(f"invalid port {quote(host[colon:])} after host")
    return _unescape(host, "host")


def _unescape(text: str, mode: str) -> str:
    if "%" not in text and mode != "host":
        return text.replace("+", " ") if mode == "query" else text
    data = bytearray()
    at = 0
    while at < len(text):
        character = text[at]
        if character == "%":
            digits = text[at + 1 : at + 3]
            if len(digits) < 2 or digits[0] not in _HEX or digits[1] not in _HEX:
                raise UrlError(f"invalid URL escape {quote(text[at : at + 3])}")
            if mode == "host" and int(digits[0], 16) < 8 and digits != "25":
                raise UrlError(f"invalid URL escape {quote(text[at : at + 3])}")
            data.append(int(digits, 16))
            at += 3
            continue
        if mode == "host" and ord(character) < 0x80 and character not in _HOST:
            raise UrlError(f"invalid character {quote(character)} in host name")
        data.extend((" " if mode == "query" and character == "+" else character).encode("utf-8", "surrogatepass"))
        at += 1
    return data.decode("utf-8", "replace")


def _escape(text: str, allowed: frozenset[str]) -> str:
    return "".join(
        character if character in allowed else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "replace"))
        for character in text
    )


def _valid_encoded(text: str) -> bool:
    return all(character in _VALID_PATH or character == "%" for character in text)


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
