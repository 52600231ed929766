"""The domains of the Kubernetes community may be used with its approval only."""

from __future__ import annotations

import re
from typing import Any

APPROVED = "api-approved.kubernetes.io"
SEE = "see https://github.com/kubernetes/enhancements/pull/1111"


def is_protected(group: str) -> bool:
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))


def approval(obj: dict[str, Any]) -> tuple[str, str]:
    """Return the approval state of a protected group, and the annotation."""
    text = (obj["metadata"].get("annotations") or {}).get(APPROVED, "")
    if not text:
        return "missing", text
    if text.startswith("unapproved"):
        return "bypassed", text
    return "approved" if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+", text) else "invalid", text
