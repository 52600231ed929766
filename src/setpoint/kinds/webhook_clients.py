"""Client configuration of webhooks: a URL, or a service of the cluster."""

from __future__ import annotations

import re

from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_subdomain, port_number
from setpoint.meta.objects import ObjView

_FORM = "; desired format: https://host[/path]"
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")
_HOST_SAFE = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"]")
_USER_SAFE = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PORT = re.compile("(:[0-9]*)?")


class _Malformed(Exception):
    pass


def _check_escapes(text: str) -> None:
    for match in re.finditer("%.{0,2}", text, re.DOTALL):
        if not re.fullmatch("%[0-9A-Fa-f]{2}", match[0]):
            raise _Malformed(f"invalid URL escape {quote(match[0])}")


def _check_host(host: str) -> None:
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise _Malformed("missing ']' in host")
        port = host[end + 1 :]
    else:
        colon = host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
    if not _PORT.fullmatch(port):
        raise _Malformed(f"invalid port {quote(port)} after host")
    _check_escapes(host)
    for char in host:
        if char < "\x80" and char != "%" and not _HOST_SAFE.match(char):
            raise _Malformed(f"invalid character {quote(char)} in host name")


def _split(url: str) -> tuple[str, str, str | None, str, str]:
    """Return the scheme, host, user information, query and fragment by Go's rules."""
    rest, _, fragment = url.partition("#")
    if any(char < " " or char == "\x7f" for char in rest):
        raise _Malformed("net/url: invalid control character in URL")
    scheme = ""
    if match := _SCHEME.match(rest):
        scheme, rest = match[0][:-1].lower(), rest[match.end() :]
    elif rest.startswith(":"):
        raise _Malformed("missing protocol scheme")
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return scheme, "", None, query, fragment
        if ":" in rest.partition("/")[0]:
            raise _Malformed("first path segment in URL cannot contain colon")
    host, user = "", None
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        information, at, host = authority.rpartition("@")
        _check_host(host)
        if at:
            if not _USER_SAFE.fullmatch(information):
                raise _Malformed("net/url: invalid userinfo")
            user = information
    _check_escapes(rest)
    return scheme, host, user, query, fragment


def _validate_url(url: str, path: str, errs: Errors) -> None:
    read = url.partition("#")[0]
    try:
        scheme, host, user, query, fragment = _split(url)
        read = url
        _check_escapes(fragment)
    except _Malformed as problem:
        text = f"url must be a valid URL: parse {quote(read)}: {problem}{_FORM}"
        errs.append(required(path, text))
        return
    if scheme != "https":
        errs.append(invalid(path, scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not host:
        errs.append(invalid(path, host, f"host must be specified{_FORM}"))
    if user is not None:
        errs.append(invalid(path, user, "user information is not permitted in the URL"))
    if fragment:
        errs.append(invalid(path, fragment, "fragments are not permitted in the URL"))
    if query:
        errs.append(invalid(path, query, "query parameters are not permitted in the URL"))


def _validate_service(service: ObjView, path: str, errs: Errors) -> None:
    """Validate a service reference. The errors of name and namespace are exchanged, as upstream does."""
    for field, reported in (("namespace", "name"), ("name", "namespace")):
        if not service.get(field):
            errs.append(required(f"{path}.{reported}"))
    port = service.get("port") or 0
    if texts := port_number(port):
        errs.append(invalid(f"{path}.port", port, "port is not valid: " + ", ".join(texts)))
    url_path = service.get("path")
    path = f"{path}.path"
    if not url_path or url_path == "/":
        return
    if url_path == "//":
        errs.append(invalid(path, url_path, "segment[0] may not be empty"))
        return
    if not url_path.startswith("/"):
        errs.append(invalid(path, url_path, "must start with a '/'"))
    for i, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            errs.append(invalid(path, url_path, f"segment[{i}] may not be empty"))
            continue
        errs.extend(invalid(path, url_path, f"segment[{i}]: {text}") for text in dns1123_subdomain(step))


def validate_client_config(config: ObjView, path: str, errs: Errors) -> None:
    """Validate that a webhook has either a URL or a service, by the rules of that."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        errs.append(required(path, "exactly one of url or service is required"))
    elif url is not None:
        _validate_url(url, f"{path}.url", errs)
    elif service is not None:
        _validate_service(service, f"{path}.service", errs)
