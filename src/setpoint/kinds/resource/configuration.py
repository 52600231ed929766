"""Selectors, which are expressions about a device, and configuration that only the device's driver understands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from setpoint.kinds.expressions import Purpose, Usage, expression_errors
from setpoint.kinds.resource.identifiers import declared_driver_name, oversized
from setpoint.meta.field import Errors, invalid, required, too_long

_MAX_BYTES = 10 * 1024
_SELECTOR = Usage(Purpose.DEVICE_SELECTOR)


def validate_selectors(
    selectors: Sequence[dict[str, Any]] | None, path: str, errs: Errors, late: Errors, stored: bool = False
) -> None:
    """Validate selectors; `stored` says that they are in use already and need not be compiled again."""
    selectors = selectors or ()
    if oversized(selectors, 32, path, late):
        return
    for i, selector in enumerate(selectors):
        cel, at = selector.get("cel"), f"{path}[{i}].cel"
        if cel is None:
            errs.append(required(at))
        elif not stored:
            expression = cel.get("expression", "")
            if len(expression.encode()) > _MAX_BYTES:
                errs.append(too_long(f"{at}.expression", _MAX_BYTES))
                continue
            errs.extend(expression_errors(expression, expression, _SELECTOR, f"{at}.expression"))


def validate_configuration(config: dict[str, Any], path: str, errs: Errors, late: Errors, stored: bool = False) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        errs.append(required(f"{path}.opaque"))
        return
    declared_driver_name(opaque.get("driver", ""), f"{path}.opaque.driver", late)
    validate_raw(opaque.get("parameters"), f"{path}.opaque.parameters", errs, stored)


def validate_raw(value: Any, path: str, errs: Errors, stored: bool = False) -> None:
    if value is None:
        errs.append(required(path))
    elif not stored and len(orjson.dumps(value)) > _MAX_BYTES:
        errs.append(too_long(path, _MAX_BYTES))
    elif not isinstance(value, dict):
        errs.append(invalid(path, "<value omitted>", "must be a valid JSON object"))
