"""Validation of the selector and pod template of ReplicaSet, Deployment, StatefulSet and DaemonSet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.core.podspec import PodOptions, validate_pod_template
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.names import dns1123_label
from setpoint.meta.objectmeta import validate_label_selector
from setpoint.meta.selectors import Selector, SelectorError, from_label_selector

MISMATCH = "`selector` does not match template `labels`"
_EMPTY: dict[str, Any] = {}


def usable_selector(selector: Mapping[str, Any] | None) -> Selector | None:
    """Return the selector compiled, or None where it makes no sense (which has been reported field by field before)."""
    found: Errors = []
    validate_label_selector(selector, "", found)
    if found:
        return None
    try:
        return from_label_selector(selector)
    except SelectorError:
        return None


def validate_selector(selector: Mapping[str, Any] | None, path: str, errs: Errors, *, empty: str) -> None:
    """Validate a selector; `empty` is the error for one that selects everything."""
    if selector is None:
        errs.append(required(path))
        return
    validate_label_selector(selector, path, errs)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errs.append(invalid(path, dict(selector), empty))


def validate_labels_match(selector: Selector, template: Mapping[str, Any], path: str, errs: Errors) -> None:
    if selector.empty:
        return
    labels = (template.get("metadata") or _EMPTY).get("labels")
    if not selector.matches(labels or _EMPTY):
        errs.append(invalid(f"{path}.metadata.labels", labels, MISMATCH))


def validate_long_running(template: Mapping[str, Any], path: str, errs: Errors, *, kind: str) -> None:
    """Validate a template of Pods that run forever: always restarted, without a deadline."""
    spec = template.get("spec") or _EMPTY
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        errs.append(not_supported(f"{path}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        errs.append(forbidden(f"{path}.spec.activeDeadlineSeconds", text))


def validate_replicated(spec: Mapping[str, Any], errs: Errors, *, options: PodOptions) -> None:
    """Validate the selector against the template, as ReplicaSet and Deployment require."""
    declared = spec.get("selector")
    validate_selector(declared, "spec.selector", errs, empty="empty selector is invalid for deployment")
    selector = usable_selector(declared)
    if selector is None:
        errs.append(invalid("spec.selector", declared, "invalid label selector"))
        return
    template = spec.get("template") or _EMPTY
    validate_labels_match(selector, template, "spec.template", errs)
    validate_pod_template(template, "spec.template", errs, options=options)
    validate_long_running(template, "spec.template", errs, kind="ReplicaSet")


def name_warning(name: str) -> list[str]:
    """Return a warning for names that are valid for the object but not for the hostnames of its Pods."""
    texts = dns1123_label(name)
    if not texts:
        return []
    return [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        f"a DNS label is recommended: [{' '.join(texts)}]"
    ]
