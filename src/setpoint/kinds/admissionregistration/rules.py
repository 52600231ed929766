"""Rules that webhooks and policies share: selection of requests, match conditions, names reserved for static files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from setpoint.kinds.expressions import Purpose, Usage, expression_errors
from setpoint.kinds.strategy import Context
from setpoint.meta.field import Errors, duplicate, invalid, not_supported, required, too_many
from setpoint.meta.names import path_segment, qualified_name
from setpoint.meta.objectmeta import validate_label_selector
from setpoint.meta.objects import Obj

MATCH_POLICIES = ("Equivalent", "Exact")
FAILURE_POLICIES = ("Fail", "Ignore")
REINVOCATION_POLICIES = ("IfNeeded", "Never")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_MUTATING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")


def default_match(holder: Obj) -> None:
    holder.setdefault("matchPolicy", "Equivalent")
    holder.setdefault("namespaceSelector", {})
    holder.setdefault("objectSelector", {})


def default_rules(rules: Sequence[Obj] | None) -> None:
    for rule in rules or ():
        rule.setdefault("scope", "*")


def default_match_resources(match: Obj | None) -> None:
    if match is not None:
        default_match(match)
        default_rules(match.get("resourceRules"))
        default_rules(match.get("excludeResourceRules"))


def one_of(value: str | None, allowed: Sequence[str], path: str, errs: Errors) -> None:
    """Validate a required value that must be one of the supported ones."""
    if value is None or (not value and "" not in allowed):
        errs.append(required(path))
    elif value not in allowed:
        errs.append(not_supported(path, value, allowed))


def known(value: str | None, allowed: Sequence[str], path: str, errs: Errors) -> None:
    if value is not None and value not in allowed:
        errs.append(not_supported(path, value, allowed))


def _validate_resources(resources: Sequence[str], path: str, errs: Errors) -> None:
    if not resources:
        errs.append(required(path))
    whole: set[str] = set()  # resources with all of their subresources: `pods/*`
    everywhere: set[str] = set()  # subresources of all resources: `*/status`
    without_subresource = False
    for i, text in enumerate(resources):
        if not text:
            errs.append(required(f"{path}[{i}]"))
            continue
        resource, slash, subresource = text.partition("/")
        if not slash:
            without_subresource = text != "*"
            continue
        if resource in whole:
            errs.append(invalid(f"{path}[{i}]", text, f"if '{resource}/*' is present, must not specify {text}"))
        if subresource in everywhere:
            errs.append(invalid(f"{path}[{i}]", text, f"if '*/{subresource}' is present, must not specify {text}"))
        if subresource == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        errs.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and without_subresource:
        text = "if '*' is present, must not specify other resources without subresources"
        errs.append(invalid(path, resources, text))


def validate_rule(rule: Obj, path: str, errs: Errors) -> None:
    operations = rule.get("operations") or []
    if not operations:
        errs.append(required(f"{path}.operations"))
    if len(operations) > 1 and "*" in operations:
        text = "if '*' is present, must not specify other operations"
        errs.append(invalid(f"{path}.operations", operations, text))
    for i, operation in enumerate(operations):
        known(operation, _OPERATIONS, f"{path}.operations[{i}]", errs)
    for name, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(name) or []
        if not values:
            errs.append(required(f"{path}.{name}"))
        if len(values) > 1 and "*" in values:
            errs.append(invalid(f"{path}.{name}", values, f"if '*' is present, must not specify other {what}"))
    for i, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            errs.append(required(f"{path}.apiVersions[{i}]"))
    _validate_resources(rule.get("resources") or [], f"{path}.resources", errs)
    known(rule.get("scope"), _SCOPES, f"{path}.scope", errs)


def _validate_named_rule(rule: Obj, path: str, errs: Errors) -> None:
    names = rule.get("resourceNames") or []
    for i, name in enumerate(names):
        errs.extend(invalid(f"{path}.resourceNames[{i}]", name, text) for text in path_segment(name))
        if name in names[:i]:
            errs.append(duplicate(f"{path}.resourceNames[{i}]", name))
    validate_rule(rule, path, errs)


def validate_match_resources(match: Obj | None, path: str, errs: Errors) -> None:
    if match is None:
        return
    one_of(match.get("matchPolicy"), MATCH_POLICIES, f"{path}.matchPolicy", errs)
    for name in ("namespaceSelector", "objectSelector"):
        validate_label_selector(match.get(name), f"{path}.{name}", errs)
    for name in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(match.get(name) or ()):
            _validate_named_rule(rule, f"{path}.{name}[{i}]", errs)


def validate_mutating_operations(match: Obj, path: str, errs: Errors) -> None:
    """Reject DELETE, which cannot be mutated."""
    for rule in match.get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            known(operation, _MUTATING_OPERATIONS, f"{path}.resourceRules.operations", errs)


_MAX_CONDITIONS = 64
_CONDITION = Usage(Purpose.MATCH_CONDITION, has_authorizer=True)


def validate_expression(text: str, shown: str, usage: Usage, path: str, errs: Errors) -> None:
    errs.extend(expression_errors(text, shown, usage, path))


def validate_match_conditions(
    conditions: Sequence[Obj] | None,
    path: str,
    errs: Errors,
    has_params: bool = False,
    stored: frozenset[str] = frozenset(),
) -> None:
    conditions = conditions or ()
    if len(conditions) > _MAX_CONDITIONS:
        errs.append(too_many(path, len(conditions), _MAX_CONDITIONS))
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


STATIC_SUFFIX = ".static.k8s.io"
_RESERVED_TEXT = (
    f'names ending with "{STATIC_SUFFIX}" are reserved for static manifest-based configurations '
    "and cannot be managed via the API"
)


def validate_static_name(obj: Obj, errs: Errors, ctx: Context) -> None:
    name = obj["metadata"].get("name", "")
    if name.endswith(STATIC_SUFFIX) and not ctx.from_file:
        errs.append(invalid("metadata.name", name, _RESERVED_TEXT))


def static_name_warnings(obj: Obj) -> list[str]:
    return [f"metadata.name: {_RESERVED_TEXT}"] if obj["metadata"].get("name", "").endswith(STATIC_SUFFIX) else []
