"""Conditions of certificate signing requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Obj = dict[str, Any]


def conditions_of(csr: Mapping[str, Any]) -> list[Obj]:
    return (csr.get("status") or {}).get("conditions") or []


def is_decided(csr: Mapping[str, Any]) -> bool:
    return any(found["type"] in ("Approved", "Denied") for found in conditions_of(csr))


def is_to_be_signed(csr: Mapping[str, Any]) -> bool:
    kinds = {found["type"] for found in conditions_of(csr)}
    failed = any(found["type"] == "Failed" and found.get("status", "True") == "True" for found in conditions_of(csr))
    return "Approved" in kinds and "Denied" not in kinds and not failed


def is_issued(csr: Mapping[str, Any]) -> bool:
    return bool((csr.get("status") or {}).get("certificate"))


def with_condition(csr: Obj, condition: Obj) -> Obj:
    status = csr.get("status") or {}
    return {**csr, "status": {**status, "conditions": [*conditions_of(csr), condition]}}
