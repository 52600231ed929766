"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration, which differ in one field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from setpoint.kinds.admissionregistration.rules import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    REINVOCATION_POLICIES,
    default_match,
    default_rules,
    known,
    static_name_warnings,
    validate_match_conditions,
    validate_rule,
    validate_static_name,
)
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.kinds.webhook_clients import validate_client_config
from setpoint.meta.field import Errors, duplicate, invalid, not_supported, required
from setpoint.meta.names import dns1035_label, dns1123_subdomain
from setpoint.meta.objectmeta import validate_label_selector
from setpoint.meta.objects import Obj

_SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_SELECTORS = ("namespaceSelector", "objectSelector")

# Reviews are never sent to webhooks: a webhook that creates a review to decide would wait for itself.
_NEVER_SENT = {
    "authentication.k8s.io": ("selfsubjectreviews", "tokenreviews"),
    "authorization.k8s.io": (
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    ),
}
Hooks = Sequence[Obj]


@dataclass(frozen=True, slots=True)
class _Ratcheting:
    """Ratcheting validation: rules that the stored object already breaks and an update may break too."""

    conditions: bool = False
    side_effects: bool = False
    versions: bool = False
    duplicates: bool = False
    selector_values: bool = False
    expressions: frozenset[str] = frozenset()


def _ratcheting(hooks: Hooks, old: Hooks) -> _Ratcheting:
    names = [hook.get("name", "") for hook in old]
    selector_errors: Errors = []
    for hook in old:
        for name in _SELECTORS:
            validate_label_selector(hook.get(name), "", selector_errors)
    return _Ratcheting(
        conditions=len(hooks) == len(old)
        and all(a.get("matchConditions") == b.get("matchConditions") for a, b in zip(hooks, old)),
        side_effects=any(hook.get("sideEffects") not in _NO_SIDE_EFFECTS for hook in old),
        versions=any(
            versions and not set(versions) & set(_REVIEW_VERSIONS)
            for versions in (hook.get("admissionReviewVersions") for hook in old)
        ),
        duplicates=len(set(names)) < len(names),
        selector_values=bool(selector_errors),
        expressions=frozenset(
            condition.get("expression", "") for hook in old for condition in hook.get("matchConditions") or ()
        ),
    )


def _validate_name(name: str, path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path))
    elif texts := dns1123_subdomain(name):
        errs.append(invalid(path, name, ",".join(texts)))
    elif name.count(".") < 2:
        errs.append(invalid(path, name, "should be a domain with at least three segments separated by dots"))


def _validate_versions(versions: Sequence[str], tolerated: bool, path: str, errs: Errors) -> None:
    shown = ", ".join(_REVIEW_VERSIONS)
    if not versions:
        errs.append(required(path, f"must specify one of {shown}"))
        return
    for i, version in enumerate(versions):
        if version in versions[:i]:
            errs.append(invalid(f"{path}[{i}]", version, "duplicate version"))
            continue
        errs.extend(invalid(f"{path}[{i}]", version, text) for text in dns1035_label(version))
    if not tolerated and not set(versions) & set(_REVIEW_VERSIONS):
        errs.append(invalid(path, versions, f"must include at least one of {shown}"))


def _validate_hook(hook: Obj, tolerance: _Ratcheting, mutating: bool, path: str, errs: Errors) -> None:
    _validate_name(hook.get("name", ""), f"{path}.name", errs)
    for i, rule in enumerate(hook.get("rules") or ()):
        validate_rule(rule, f"{path}.rules[{i}]", errs)
    known(hook.get("failurePolicy"), FAILURE_POLICIES, f"{path}.failurePolicy", errs)
    known(hook.get("matchPolicy"), MATCH_POLICIES, f"{path}.matchPolicy", errs)
    effects, allowed = hook.get("sideEffects"), _SIDE_EFFECTS if tolerance.side_effects else _NO_SIDE_EFFECTS
    if effects is None:
        errs.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(allowed)}"))
    elif effects not in allowed:
        errs.append(not_supported(f"{path}.sideEffects", effects, allowed))
    seconds = hook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        errs.append(invalid(f"{path}.timeoutSeconds", seconds, text))
    for name in _SELECTORS:
        validate_label_selector(hook.get(name), f"{path}.{name}", errs, allow_invalid_values=tolerance.selector_values)
    if mutating:
        known(hook.get("reinvocationPolicy"), REINVOCATION_POLICIES, f"{path}.reinvocationPolicy", errs)
    validate_client_config(hook.get("clientConfig") or {}, f"{path}.clientConfig", errs)
    if not tolerance.conditions:
        conditions = hook.get("matchConditions")
        validate_match_conditions(conditions, f"{path}.matchConditions", errs, stored=tolerance.expressions)


def _count(obj: Obj, now: datetime) -> int:
    return len(obj.get("webhooks") or ())


class WebhookConfigurationStrategy(Strategy):
    qualified_finalizers = False
    allow_unconditional_update = False
    has_generation = True
    spec_fields = ("webhooks",)
    columns = (NAME, Column("Webhooks", _count, type="integer", description="Number of webhooks."), AGE)
    mutating = False

    def default(self, obj: Obj) -> None:
        for hook in obj.get("webhooks") or ():
            hook.setdefault("failurePolicy", "Fail")
            default_match(hook)
            hook.setdefault("timeoutSeconds", 10)
            if self.mutating:
                hook.setdefault("reinvocationPolicy", "Never")
            default_rules(hook.get("rules"))
            service = (hook.get("clientConfig") or {}).get("service")
            if service is not None:
                service.setdefault("port", 443)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj, _Ratcheting(), errs)
        validate_static_name(obj, errs, ctx)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj, _ratcheting(obj.get("webhooks") or (), old.get("webhooks") or ()), errs)

    def _validate(self, obj: Obj, tolerance: _Ratcheting, errs: Errors) -> None:
        seen: set[str] = set()
        for i, hook in enumerate(obj.get("webhooks") or ()):
            path, name = f"webhooks[{i}]", hook.get("name", "")
            _validate_hook(hook, tolerance, self.mutating, path, errs)
            versions = hook.get("admissionReviewVersions") or []
            _validate_versions(versions, tolerance.versions, f"{path}.admissionReviewVersions", errs)
            if name in seen and not tolerance.duplicates:
                errs.append(duplicate(f"{path}.name", name))
            if name:
                seen.add(name)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        warnings = []
        for i, hook in enumerate(obj.get("webhooks") or ()):
            for j, rule in enumerate(hook.get("rules") or ()):
                groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
                if "*" in groups or "*" in resources:
                    continue
                named = [
                    f"{resource}.{group}"
                    for group in groups
                    for resource in resources
                    if resource in _NEVER_SENT.get(group, ())
                ]
                text = "is excluded from admission webhooks; this rule will have no effect"
                warnings += [f"webhooks[{i}].rules[{j}]: {name} {text}" for name in dict.fromkeys(named)]
        return warnings

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return static_name_warnings(obj) + self.warnings_on_create(obj, ctx)


class MutatingWebhookConfigurationStrategy(WebhookConfigurationStrategy):
    mutating = True


class ValidatingWebhookConfigurationStrategy(WebhookConfigurationStrategy):
    mutating = False


STRATEGIES = {
    "MutatingWebhookConfiguration": MutatingWebhookConfigurationStrategy(),
    "ValidatingWebhookConfiguration": ValidatingWebhookConfigurationStrategy(),
}
