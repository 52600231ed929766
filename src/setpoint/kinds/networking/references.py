"""Small pieces of text that networking objects hold: names of things elsewhere, domain-prefixed paths."""

from __future__ import annotations

from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.names import dns1123_subdomain, http_path_chars, path_segment, regex_error

_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def validate_segment(value: str, path: str, errs: Errors) -> None:
    """Validate a name that becomes part of a URL; the caller reports its absence."""
    if value:
        errs.extend(invalid(path, value, text) for text in path_segment(value))


def validate_group(group: str | None, path: str, errs: Errors) -> None:
    if group is not None:
        errs.extend(invalid(path, group, text) for text in dns1123_subdomain(group))


def validate_domain_prefixed_path(value: str, path: str, errs: Errors) -> None:
    """Validate a path such as `acme.io/anything`."""
    if not value:
        errs.append(required(path))
        return
    host, slash, rest = value.partition("/")
    if not (host and slash and rest):
        errs.append(invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")'))
        return
    errs.extend(invalid(path, host, text) for text in dns1123_subdomain(host))
    if not http_path_chars(rest):
        errs.append(invalid(path, rest, regex_error("Invalid path", _HTTP_PATH)))
