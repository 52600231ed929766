"""Names of CSI drivers and provisioners, and the parameters that classes pass to them."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.meta.field import Errors, invalid, required, too_long
from setpoint.meta.names import dns1123_subdomain, qualified_name

_MAX_PARAMETERS = 512
_MAX_SIZE = 256 * 1024


def validate_driver_name(name: str, path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path))
        return
    if len(name.encode()) > 63:
        errs.append(too_long(path, 63))
    errs.extend(invalid(path, name, text) for text in dns1123_subdomain(name.lower()))


def validate_provisioner(name: str, path: str, errs: Errors) -> None:
    """Validate a given provisioner; the caller reports its absence."""
    if name:
        lowered = name.lower()
        errs.extend(invalid(path, lowered, text) for text in qualified_name(lowered))


def validate_parameters(parameters: Mapping[str, str] | None, path: str, errs: Errors, *, needed: bool) -> None:
    parameters = parameters or {}
    if len(parameters) > _MAX_PARAMETERS:
        errs.append(too_long(path, _MAX_PARAMETERS))
        return
    if "" in parameters:
        errs.append(invalid(path, "", "field can not be empty."))
    if text_size(parameters) > _MAX_SIZE:
        errs.append(too_long(path, _MAX_SIZE))
    if needed and not parameters:
        errs.append(required(path, "must contain at least one key/value pair"))


def text_size(texts: Mapping[str, str] | None) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in (texts or {}).items())
