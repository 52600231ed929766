"""Whether a container that ended is started again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Obj = Mapping[str, Any]


def matching_action(container: Obj, exit_code: int) -> str:
    """What the first of the container's own rules that speaks of this exit code says; empty: none does."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        listed = exit_code in (codes.get("values") or ())
        if (codes.get("operator") == "In") == listed and codes:
            return str(rule.get("action", ""))
    return ""


def restarts(container: Obj, spec: Obj, exit_code: int) -> bool:
    policy = container.get("restartPolicy")
    if policy is not None and matching_action(container, exit_code) in ("Restart", "RestartAllContainers"):
        return True
    policy = policy or spec.get("restartPolicy") or "Always"
    return bool(policy == "Always" or (policy == "OnFailure" and exit_code != 0))


def restarts_when_killed(container: Obj, spec: Obj) -> bool:
    """After a probe failed: there is no exit code yet."""
    return bool((container.get("restartPolicy") or spec.get("restartPolicy") or "Always") != "Never")
