"""Where objects carry CEL: every rule that lets users write an expression asks here whether it compiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Purpose(Enum):
    """What an expression is for: decides the variables it may use and the type it must have."""

    MATCH_CONDITION = "match condition"  # bool
    VALIDATION = "validation"  # bool
    MESSAGE = "message"  # string
    AUDIT_ANNOTATION = "audit annotation"  # string or null
    VARIABLE = "variable"  # any
    APPLY_CONFIGURATION = "apply configuration"  # Object{}
    JSON_PATCH = "json patch"  # list of JSONPatch{}
    DEVICE_SELECTOR = "device selector"  # bool
    SCHEMA_RULE = "schema rule"  # bool
    SCHEMA_MESSAGE = "schema message"  # string


@dataclass(frozen=True, slots=True)
class Usage:
    """Where an expression stands."""

    purpose: Purpose
    has_params: bool = False
    has_authorizer: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    """Expressions that this one may refer to as `variables.<name>`."""
    schema: Mapping[str, Any] | None = None
    """For schema rules: the (structural) schema that `self` has."""
    uncorrelatable: str = ""
    """For schema rules: where `oldSelf` stops to mean anything, if it does; a rule there may not use it."""
    stored: bool = False
    """The object had this very expression before: what used to compile still does."""


def check_expression(text: str, usage: Usage) -> list[str]:
    """What is wrong with the expression, in words; empty: nothing. The one place where the compiler is called."""
    return []
