"""Fields that older versions had, for which annotations stand now: numbers, or else the object cannot be read."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.strategy import Obj
from setpoint.meta.errors import BadRequest
from setpoint.meta.goformat import quote
from setpoint.meta.integers import parse_integer

ROLLBACK_TO = "deprecated.deployment.rollback.to"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def check_rollback(obj: Obj) -> None:
    annotations = obj.get("metadata", {}).get("annotations")
    if not annotations or ROLLBACK_TO not in annotations:
        return
    text = annotations[ROLLBACK_TO]
    if not text:
        del annotations[ROLLBACK_TO]
        if not annotations:
            del obj["metadata"]["annotations"]
        return
    _check("Deployment", text, f"failed to parse annotation[{ROLLBACK_TO}]={text} as int64: ")


def rollback_revision(obj: Obj) -> int | None:
    text = _annotation(obj, ROLLBACK_TO)
    return parse_integer(text) if text else None


def check_template_generation(obj: Obj) -> None:
    annotations = obj.get("metadata", {}).get("annotations")
    if annotations and TEMPLATE_GENERATION in annotations:
        _check("DaemonSet", annotations[TEMPLATE_GENERATION], "")


def template_generation(obj: Obj) -> int:
    return parse_integer(_annotation(obj, TEMPLATE_GENERATION) or "0")


def set_template_generation(obj: Obj, generation: int) -> None:
    meta, text = obj["metadata"], str(generation)
    annotations = meta.get("annotations") or {}
    if annotations.get(TEMPLATE_GENERATION) != text:
        meta["annotations"] = {**annotations, TEMPLATE_GENERATION: text}


def _annotation(obj: Obj, name: str) -> Any:
    return (obj["metadata"].get("annotations") or {}).get(name)


def _check(kind: str, text: str, prefix: str) -> None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        problem = "invalid syntax"
    elif not -(2**63) <= parse_integer(text) < 2**63:
        problem = "value out of range"
    else:
        return
    why = f"{prefix}strconv.ParseInt: parsing {quote(text)}: {problem}"
    raise BadRequest(f'{kind} in version "v1" cannot be handled as a {kind}: {why}')
