"""Tolerations, and the taint effects they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.meta.field import Errors, forbidden, invalid, not_supported
from setpoint.meta.goformat import quote
from setpoint.meta.integers import parse_integer
from setpoint.meta.names import _label_value, _qualified_name

Item = Mapping[str, Any]
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_INT64 = range(-(2**63), 2**63)


def validate_tolerations(
    tolerations: Sequence[Item], path: str, errs: Errors, *, allow_comparison: bool = False
) -> None:
    for i, toleration in enumerate(tolerations):
        get = toleration.get
        key, operator, value, effect = get("key", ""), get("operator", ""), get("value", ""), get("effect", "")
        if key:
            for text in _qualified_name(key):
                errs.append(invalid(f"{path}[{i}].key", key, text))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errs.append(invalid(f"{path}[{i}].operator", operator, text))
        if effect != "NoExecute" and "tolerationSeconds" in toleration:
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errs.append(invalid(f"{path}[{i}].effect", effect, text))
        if operator == "Exists":
            if value:
                text = "value must be empty when `operator` is 'Exists'"
                errs.append(invalid(f"{path}[{i}].operator", value, text))
        elif operator in ("Equal", ""):
            texts = _label_value(value)
            if texts:
                errs.append(invalid(f"{path}[{i}].operator", value, ";".join(texts)))
        elif operator not in ("Lt", "Gt"):
            errs.append(not_supported(f"{path}[{i}].operator", operator, ("Equal", "Exists")))
        elif not allow_comparison:
            errs.append(not_supported(f"{path}[{i}].operator", operator, ("Equal", "Exists", "Lt", "Gt")))
        else:
            _validate_number(value, f"{path}[{i}].value", errs)
        if effect and effect not in EFFECTS:
            errs.append(not_supported(f"{path}[{i}].effect", effect, EFFECTS))


def _validate_number(value: str, path: str, errs: Errors) -> None:
    digits = value[1:] if value[:1] == "-" else value
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and value != "-0"
    if not plain:
        text = "must be a valid decimal integer in canonical form"
        errs.append(invalid(path, value, text))
    unsigned = value[1:] if value[:1] in ("-", "+") else value
    if not (unsigned.isascii() and unsigned.isdigit()):
        errs.append(invalid(path, value, f"strconv.ParseInt: parsing {quote(value)}: invalid syntax"))
    elif parse_integer(value) not in _INT64:
        errs.append(invalid(path, value, f"strconv.ParseInt: parsing {quote(value)}: value out of range"))


def validate_only_added_tolerations(
    new: Sequence[Item], old: Sequence[Item], path: str, errs: Errors, *, allow_comparison: bool = False
) -> None:
    """Validate that stored tolerations stay; only tolerationSeconds may change."""

    def timeless(toleration: Item) -> dict[str, Any]:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [timeless(toleration) for toleration in new]
    if any(timeless(toleration) not in kept for toleration in old):
        errs.append(forbidden(path, "existing toleration can not be modified except its tolerationSeconds"))
        return
    validate_tolerations(new, path, errs, allow_comparison=allow_comparison)
