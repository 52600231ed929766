"""Names of drivers, pools, attributes and requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.shared_names import validate_driver_name
from setpoint.meta.field import Errors, duplicate, invalid, required, too_long, too_many
from setpoint.meta.names import c_identifier, dns1123_label, dns1123_subdomain, dns1123_subdomain_caseless
from setpoint.meta.objects import ObjView

_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DOMAIN_LIMIT, _IDENTIFIER_LIMIT, _POOL_LIMIT = 63, 32, 253
KEY_LIMIT = _DOMAIN_LIMIT + 1 + _IDENTIFIER_LIMIT
_NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
Requests = Mapping[str, frozenset[str]]
"""Names of a claim's requests, with the names of their subrequests."""


def label_rule(name: str, path: str, errs: Errors) -> None:
    errs.extend(invalid(path, name, text) for text in dns1123_label(name))


def long_name_rule(name: str, path: str, errs: Errors) -> None:
    errs.extend(invalid(path, name, text) for text in dns1123_subdomain(name))


def required_label(name: str, path: str, errs: Errors) -> None:
    if name:
        label_rule(name, path, errs)
    else:
        errs.append(required(path))


def validate_pool_name(name: str, path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path))
        return
    if len(name.encode()) > _POOL_LIMIT:
        errs.append(too_long(path, _POOL_LIMIT))
    for part in name.split("/"):
        long_name_rule(part, path, errs)


def declared_pool_name(name: str, path: str, late: Errors) -> None:
    if not name:
        late.append(required(path))
        return
    if len(name.encode()) > _POOL_LIMIT:
        late.append(too_long(path, _POOL_LIMIT))
    for i, part in enumerate(name.split("/")):
        if not part:
            late.append(invalid(path, name, f"segment {i}: must not be empty"))
            continue
        late.extend(invalid(path, part, f"segment {i}: {text}") for text in dns1123_subdomain(part))


def declared_driver_name(name: str, path: str, late: Errors) -> None:
    if not name:
        late.append(required(path))
        return
    late.extend(invalid(path, name, text) for text in dns1123_subdomain_caseless(name))
    if len(name) > _DOMAIN_LIMIT:
        late.append(too_long(path, _DOMAIN_LIMIT, "characters"))


def declared_uuid(uid: str | None, path: str, late: Errors) -> None:
    if uid is not None and not _UUID.fullmatch(uid):
        late.append(invalid(path, uid, "must be a lowercase UUID in 8-4-4-4-12 format"))


def _identifier(name: str, path: str, errs: Errors) -> None:
    if len(name.encode()) > _IDENTIFIER_LIMIT:
        errs.append(too_long(path, _IDENTIFIER_LIMIT))
    errs.extend(invalid(path, name, text) for text in c_identifier(name))


def validate_qualified_name(name: str, path: str, errs: Errors) -> None:
    """Validate the name of an attribute or capacity: an identifier, optionally with its domain."""
    parts = name.split("/")
    if len(parts) == 1:
        _identifier(name, path, errs)
    elif len(parts) == 2:
        domain, identifier = parts
        if domain:
            validate_driver_name(domain, path, errs)
        else:
            errs.append(invalid(path, "", "the domain must not be empty"))
        if identifier:
            _identifier(identifier, path, errs)
        else:
            errs.append(invalid(path, "", "the name must not be empty"))


def declared_full_name(name: str | None, path: str, late: Errors) -> None:
    if name is None:
        return
    parts = name.split("/")
    if len(parts) == 1:
        _identifier(name, path, late)
    elif len(parts) == 2:
        domain, identifier = parts
        if domain:
            if len(domain.encode()) > _DOMAIN_LIMIT:
                late.append(too_long(path, _DOMAIN_LIMIT))
            late.extend(invalid(path, domain, f"prefix: {text}") for text in dns1123_subdomain(domain))
        else:
            late.append(invalid(path, "", "prefix must not be empty"))
        if identifier:
            _identifier(identifier, path, late)
        else:
            late.append(invalid(path, "", "name must not be empty"))
    if len(parts) == 1:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        late.append(invalid(path, name, text))


def shortened(key: str, limit: int) -> str:
    """Return a key as it is shown in paths."""
    if len(key) <= limit:
        return key
    rest = limit - 3
    return key[: (rest + 1) // 2] + "..." + key[len(key) - rest // 2 :]


def request_names(devices: ObjView) -> Requests:
    return {
        request.get("name", ""): frozenset(sub.get("name", "") for sub in request.get("firstAvailable") or ())
        for request in devices.get("requests") or ()
    }


def validate_reference(name: str, requests: Requests, path: str, errs: Errors) -> None:
    parts = name.split("/")
    if len(parts) > 2:
        errs.append(invalid(path, name, _NOT_A_REQUEST))
        return
    for part in parts:
        label_rule(part, path, errs)
    known = requests.get(parts[0])
    if known is None or (len(parts) == 2 and parts[1] not in known):
        errs.append(invalid(path, name, _NOT_A_REQUEST))


def validate_references(names: Sequence[str] | None, requests: Requests, path: str, errs: Errors, late: Errors) -> None:
    names = names or ()
    if oversized(names, 32, path, late):
        return
    declared_unique(names, names, path, late)
    for i, name in enumerate(names):
        validate_reference(name, requests, f"{path}[{i}]", errs)


def oversized(items: Sequence[Any], limit: int, path: str, late: Errors) -> bool:
    """Return whether there are too many items, which are then not validated one by one."""
    if len(items) <= limit:
        return False
    late.append(too_many(path, len(items), limit))
    return True


def declared_unique(items: Sequence[Any], keys: Sequence[Any], path: str, late: Errors) -> None:
    seen: set[Any] = set()
    for i, (item, key) in enumerate(zip(items, keys)):
        if key in seen:
            late.append(duplicate(f"{path}[{i}]", item))
        seen.add(key)
