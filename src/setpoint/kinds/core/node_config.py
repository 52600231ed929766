"""`configSource` of a Node and its status: removed as a feature, but what is stored is still checked."""

from __future__ import annotations

from typing import Any

from setpoint.meta.field import Errors, forbidden, invalid, required
from setpoint.meta.names import config_map_key, dns1123_label, dns1123_subdomain

_ONE = "exactly one reference subfield must be non-nil"


def validate_config_source(source: dict[str, Any], path: str, errs: Errors) -> None:
    config_map = source.get("configMap")
    if config_map is None:
        errs.append(invalid(path, {"ConfigMap": None}, _ONE))
        return
    at = f"{path}.configMap"
    for name in ("uid", "resourceVersion"):
        if config_map.get(name):
            errs.append(forbidden(f"{at}.{name}", f"{name} must not be set in spec"))
    _validate_reference(config_map, at, errs)


def validate_config_status(status: dict[str, Any], path: str, errs: Errors) -> None:
    for part in ("assigned", "active", "lastKnownGood"):
        if part not in status:
            continue
        config_map = status[part].get("configMap")
        if config_map is None:
            errs.append(invalid(f"{path}.{part}", {"ConfigMap": None}, _ONE))
            continue
        at = f"{path}.{part}.configMap"
        for name in ("uid", "resourceVersion"):
            if not config_map.get(name):
                errs.append(required(f"{at}.{name}"))
        _validate_reference(config_map, at, errs)


def _validate_reference(config_map: dict[str, Any], path: str, errs: Errors) -> None:
    for name, rule in (
        ("namespace", dns1123_label),
        ("name", dns1123_subdomain),
        ("kubeletConfigKey", config_map_key),
    ):
        value = config_map.get(name, "")
        if not value:
            errs.append(required(f"{path}.{name}"))
        for text in rule(value) if value else ():
            errs.append(invalid(f"{path}.{name}", value, text))
