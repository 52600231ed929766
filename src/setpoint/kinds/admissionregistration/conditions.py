"""Match conditions: expressions that narrow down what a webhook or policy sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from setpoint.kinds.expressions import Purpose, Usage, expression_errors
from setpoint.meta.field import Errors, duplicate, invalid, required, too_many
from setpoint.meta.names import qualified_name

_LIMIT = 64
_CONDITION = Usage(Purpose.MATCH_CONDITION, has_authorizer=True)


def validate_expression(text: str, shown: str, usage: Usage, path: str, errs: Errors) -> None:
    errs.extend(expression_errors(text, shown, usage, path))


def validate_match_conditions(
    conditions: Sequence[dict[str, Any]] | None, path: str, errs: Errors,
    has_params: bool = False, stored: frozenset[str] = frozenset(),
) -> None:  # fmt: skip
    conditions = conditions or ()
    if len(conditions) > _LIMIT:
        errs.append(too_many(path, len(conditions), _LIMIT))
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        expression, name = condition.get("expression", "").strip(), condition.get("name", "")
        if not expression:
            errs.append(required(f"{path}[{i}].expression"))
        else:
            usage = replace(_CONDITION, has_params=has_params, stored=expression in stored)
            validate_expression(expression, expression, usage, f"{path}[{i}].expression", errs)
        if not name:
            errs.append(required(f"{path}[{i}].name"))
            continue
        errs.extend(invalid(f"{path}[{i}].name", name, text) for text in qualified_name(name))
        if name in seen:
            errs.append(duplicate(f"{path}[{i}].name", name))
        seen.add(name)
