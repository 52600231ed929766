"""Evaluates podFailurePolicy and successPolicy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from setpoint.controllers.job.indexes import Indexes

Obj = dict[str, Any]


class Verdict(NamedTuple):
    """The decision of the failure policy about a failed Pod."""

    action: str = ""
    """Ignore, FailIndex, Count or FailJob; empty if no rule matches."""
    message: str = ""
    """Why the Job fails; empty if it does not."""

    @property
    def counts(self) -> bool:
        """Return whether the failure counts towards the backoff limits."""
        return self.action != "Ignore"


def apply_failure_policy(job: Mapping[str, Any], pod: Obj) -> Verdict:
    """Return the decision of the first rule that matches the Pod."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        cause = _cause(rule, pod)
        if cause:
            action = rule["action"]
            message = f"{cause} matching {action} rule at index {number}" if action == "FailJob" else ""
            return Verdict(action, message)
    return Verdict()


def _cause(rule: Mapping[str, Any], pod: Obj) -> str:
    meta, status = pod["metadata"], pod.get("status") or {}
    name = f"{meta['namespace']}/{meta['name']}"
    codes = rule.get("onExitCodes")
    if codes is not None:
        for found in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
            ended = (found.get("state") or {}).get("terminated")
            if ended is not None and _matches(codes, found["name"], ended.get("exitCode", 0)):
                return f"Container {found['name']} for pod {name} failed with exit code {ended['exitCode']}"
        return ""
    patterns = rule.get("onPodConditions") or ()
    for condition in status.get("conditions") or ():
        if any((condition["type"], condition["status"]) == (each["type"], each["status"]) for each in patterns):
            return f"Pod {name} has condition {condition['type']}"
    return ""


def _matches(codes: Mapping[str, Any], container: str, code: int) -> bool:
    if code == 0 or codes.get("containerName") not in (None, container):
        return False
    listed = code in (codes.get("values") or ())
    return {"In": listed, "NotIn": not listed}.get(codes.get("operator", ""), False)


def success_message(job: Mapping[str, Any], succeeded: Indexes) -> str:
    """Return why the success policy is met; empty if it is not."""
    policy, completions = job["spec"].get("successPolicy"), job["spec"].get("completions") or 0
    if policy is None or not succeeded:
        return ""
    for number, rule in enumerate(policy.get("rules") or ()):
        wanted, enough = rule.get("succeededIndexes"), rule.get("succeededCount")
        if wanted is not None:
            required = Indexes.parse(wanted, completions)
            there = required.common(succeeded)
            met = bool(required) and (there == len(required) or (enough is not None and there >= enough))
        else:
            met = enough is not None and len(succeeded) >= enough
        if met:
            return f"Matched rules at index {number}"
    return ""
