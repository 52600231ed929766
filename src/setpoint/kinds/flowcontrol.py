"""`flowcontrol.apiserver.k8s.io`: FlowSchema assigns requests to a priority level and divides them into flows;
PriorityLevelConfiguration is a share of the server's concurrency, and what happens when it is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from math import ceil, log2
from typing import Any

from setpoint.kinds.bootstrap.initial_objects import MANDATORY, flow_schemas, priority_levels
from setpoint.kinds.cell_texts import NONE
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.internal_form import internal_form, items, pointer, struct
from setpoint.kinds.strategy import BareStatusStrategy, Column, Context, Strategy
from setpoint.meta.conditions import condition_of
from setpoint.meta.field import (
    Errors,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from setpoint.meta.names import dns1123_label, dns1123_subdomain
from setpoint.meta.objects import Obj

RULE_FORM = {
    "subjects": items(
        {
            "kind": "",
            "user": pointer({"name": ""}),
            "group": pointer({"name": ""}),
            "serviceAccount": pointer({"namespace": "", "name": ""}),
        }
    ),
    "resourceRules": items(
        {"verbs": None, "apiGroups=APIGroups": None, "resources": None, "clusterScope": False, "namespaces": None}
    ),
    "nonResourceRules": items({"verbs": None, "nonResourceURLs": None}),
}
_VERBS = frozenset({"get", "list", "create", "update", "delete", "deletecollection", "patch", "watch", "proxy"})
_MEMBERS = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}
_DISTINGUISHERS = ("ByNamespace", "ByUser")
_DEFAULT_PRECEDENCE, _LAST_PRECEDENCE = 1000, 10000
_FLOW_SCHEMA_FORM = {
    "priorityLevelConfiguration": struct({"name": ""}),
    "matchingPrecedence": 0,
    "distinguisherMethod": pointer({"type": ""}),
    "rules": items(RULE_FORM),
}
_FIXED = {obj["metadata"]["name"]: obj["spec"] for obj in flow_schemas() if obj["metadata"]["name"] in MANDATORY}
_MAX_QUEUES = 10_000_000
_HASH_BITS = 60
_NOT_NEGATIVE = "must be a non-negative integer"
_QUEUING_DEFAULTS = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}
_PRESERVE_ZERO = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
_QUEUING_FORM = {"queues": 0, "handSize": 0, "queueLengthLimit": 0}
_PRIORITY_LEVEL_FORM = {
    "type": "",
    "limited": pointer(
        {
            "nominalConcurrencyShares": 0,
            "limitResponse": struct({"type": "", "queuing": pointer(_QUEUING_FORM)}),
            "lendablePercent": None,
            "borrowingLimitPercent": None,
        }
    ),
    "exempt": pointer({"nominalConcurrencyShares": None, "lendablePercent": None}),
}
_CATCH_ALL = next(obj["spec"] for obj in priority_levels() if obj["metadata"]["name"] == "catch-all")


def _validate_status(obj: Obj, errs: Errors) -> None:
    seen: set[str] = set()
    for i, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        kind, at = condition.get("type", ""), f"status.conditions[{i}].type"
        if kind in seen:
            errs.append(duplicate(at, kind))
        seen.add(kind)
        if not kind:
            errs.append(required(at))


class FlowControlStatusStrategy(BareStatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        _validate_status(obj, errs)


def validate_rule(rule: Obj, path: str, errs: Errors) -> None:
    subjects = rule.get("subjects") or ()
    for i, subject in enumerate(subjects):
        _validate_subject(subject, f"{path}.subjects[{i}]", errs)
    if not subjects:
        errs.append(required(f"{path}.subjects", "subjects must contain at least one value"))
    resources, urls = rule.get("resourceRules") or (), rule.get("nonResourceRules") or ()
    if not resources and not urls:
        errs.append(required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
    for i, matched in enumerate(resources):
        _validate_resources(matched, f"{path}.resourceRules[{i}]", errs)
    for i, matched in enumerate(urls):
        _validate_urls(matched, f"{path}.nonResourceRules[{i}]", errs)


def _validate_subject(subject: Obj, path: str, errs: Errors) -> None:
    kind = subject.get("kind", "")
    if kind not in _MEMBERS:
        errs.append(not_supported(f"{path}.kind", kind, ("Group", "ServiceAccount", "User")))
        return
    member = _MEMBERS[kind]
    named = subject.get(member)
    if named is None:
        errs.append(required(f"{path}.{member}", f"{member} is required when subject kind is '{kind}'"))
    else:
        _validate_named(kind, named, f"{path}.{member}", errs)
    for other, name in _MEMBERS.items():
        if other != kind and subject.get(name) is not None:
            errs.append(forbidden(f"{path}.{name}", f"{name} is forbidden when subject kind is not '{other}'"))


def _validate_named(kind: str, named: Obj, path: str, errs: Errors) -> None:
    name = named.get("name", "")
    if not name:
        errs.append(required(f"{path}.name"))
    if kind != "ServiceAccount":
        return
    if name and name != "*":
        errs.extend(invalid(f"{path}.name", name, text) for text in dns1123_subdomain(name))
    if namespace := named.get("namespace", ""):
        errs.extend(invalid(f"{path}.namespace", namespace, text) for text in dns1123_label(namespace))
    else:
        errs.append(required(f"{path}.namespace", "must specify namespace for service account"))


def _validate_verbs(verbs: Sequence[str], path: str, errs: Errors) -> None:
    if not verbs:
        errs.append(required(path, "verbs must contain at least one value"))
    elif "*" in verbs:
        _alone(verbs, path, "verbs", errs)
    elif not _VERBS.issuperset(verbs):
        errs.append(not_supported(path, verbs, sorted(_VERBS)))


def _alone(values: Sequence[str], path: str, what: str, errs: Errors) -> None:
    if len(values) > 1 and "*" in values:
        errs.append(invalid(path, values, f"if '*' is present, must not specify other {what}"))


def _validate_resources(rule: Obj, path: str, errs: Errors) -> None:
    _validate_verbs(rule.get("verbs") or [], f"{path}.verbs", errs)
    for name, one, many in (("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")):
        values = rule.get(name) or []
        if not values:
            errs.append(required(f"{path}.{name}", f"resource rules must supply at least one {one}"))
        _alone(values, f"{path}.{name}", many, errs)
    namespaces = rule.get("namespaces") or []
    path = f"{path}.namespaces"
    if not namespaces and not rule.get("clusterScope"):
        text = "resource rules that are not cluster scoped must supply at least one namespace"
        errs.append(required(path, text))
    elif "*" in namespaces:
        _alone(namespaces, path, "namespaces", errs)
    else:
        intro = "each member of this list must be '*' or a DNS-1123 label; "
        for i, namespace in enumerate(namespaces):
            errs.extend(invalid(f"{path}[{i}]", namespace, intro + text) for text in dns1123_label(namespace))


def _validate_urls(rule: Obj, path: str, errs: Errors) -> None:
    _validate_verbs(rule.get("verbs") or [], f"{path}.verbs", errs)
    urls = rule.get("nonResourceURLs") or []
    path = f"{path}.nonResourceURLs"
    if not urls:
        errs.append(required(path, "nonResourceURLs must contain at least one value"))
    elif "*" in urls:
        _alone(urls, path, "non-resource URLs", errs)
    else:
        errs.extend(error for i, url in enumerate(urls) if (error := _url_error(url, f"{path}[{i}]")))


def _url_error(url: str, path: str) -> FieldError | None:
    if not url:
        return invalid(path, url, "must not be empty")
    if url == "/":
        return None
    if not url.startswith("/"):
        return invalid(path, url, "must start with slash")
    if " " in url:
        return invalid(path, url, "must not contain white-space")
    if "//" in url:
        return invalid(path, url, "must not contain double slash")
    stars = url.count("*")
    if stars > 1 or (stars and not url.endswith("/*")):
        return invalid(path, url, "wildcard can only do suffix matching")
    return None


def _level(obj: Obj, now: datetime) -> str:
    return str((obj["spec"].get("priorityLevelConfiguration") or {}).get("name", ""))


def _precedence(obj: Obj, now: datetime) -> int:
    return int(obj["spec"].get("matchingPrecedence", 0))


def _distinguisher(obj: Obj, now: datetime) -> str:
    method = obj["spec"].get("distinguisherMethod")
    return NONE if method is None else str(method.get("type", ""))


def _missing(obj: Obj, now: datetime) -> str:
    condition = condition_of(obj, "Dangling")
    return "?" if condition is None else str(condition.get("status", ""))


class FlowSchemaStrategy(Strategy):
    has_status = True
    has_generation = True
    columns = (
        NAME,
        Column("PriorityLevel", _level, description="The level that matching requests belong to."),
        Column("MatchingPrecedence", _precedence, description="Schemas are tried in this order, lowest first."),
        Column("DistinguisherMethod", _distinguisher, description="What makes requests one flow."),
        AGE,
        Column("MissingPL", _missing, description="Whether that level does not exist."),
    )

    def __init__(self) -> None:
        self.subresources = {"status": FlowControlStatusStrategy(self)}

    def sorted_for_table(self, objs: Sequence[Obj]) -> Sequence[Obj]:
        """Return the schemas in matching order."""
        return sorted(objs, key=lambda obj: (obj["spec"].get("matchingPrecedence", 0), obj["metadata"].get("name", "")))

    def default(self, obj: Obj) -> None:
        spec = obj["spec"]
        if not spec.get("matchingPrecedence"):
            spec["matchingPrecedence"] = _DEFAULT_PRECEDENCE

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        name, spec = obj["metadata"].get("name", ""), obj["spec"]
        precedence, path = spec["matchingPrecedence"], "spec.matchingPrecedence"
        if precedence <= 0:
            errs.append(invalid(path, precedence, "must be a positive value"))
        if precedence > _LAST_PRECEDENCE:
            errs.append(invalid(path, precedence, f"must not be greater than {_LAST_PRECEDENCE}"))
        if precedence == 1 and name != "exempt":
            text = "only the schema named 'exempt' may have matchingPrecedence 1"
            errs.append(invalid(path, precedence, text))
        method = spec.get("distinguisherMethod")
        if method is not None and method.get("type", "") not in _DISTINGUISHERS:
            shown = {"Type": method.get("type", "")}
            errs.append(not_supported("spec.distinguisherMethod.type", shown, _DISTINGUISHERS))
        level, path = _level(obj, ctx.now), "spec.priorityLevelConfiguration.name"
        if level:
            errs.extend(invalid(path, level, text) for text in dns1123_subdomain(level))
        else:
            errs.append(required(path, "must reference a priority level"))
        for i, rule in enumerate(spec.get("rules") or ()):
            validate_rule(rule, f"spec.rules[{i}]", errs)
        if name in _FIXED and spec != _FIXED[name]:
            shown = internal_form(spec, _FLOW_SCHEMA_FORM)
            errs.append(invalid("spec", shown, f"spec of '{name}' must equal the fixed value"))
        _validate_status(obj, errs)


def _limited(name: str) -> Callable[[Obj, datetime], Any]:
    def cell(obj: Obj, now: datetime) -> Any:
        return (obj["spec"].get("limited") or {}).get(name, NONE)

    return cell


def _queuing(name: str) -> Callable[[Obj, datetime], Any]:
    def cell(obj: Obj, now: datetime) -> Any:
        response = (obj["spec"].get("limited") or {}).get("limitResponse") or {}
        return (response.get("queuing") or {}).get(name, NONE)

    return cell


def _type(obj: Obj, now: datetime) -> str:
    return str(obj["spec"].get("type", ""))


class PriorityLevelConfigurationStrategy(Strategy):
    has_status = True
    has_generation = True
    columns = (
        NAME,
        Column("Type", _type, description="Whether requests at this level are limited at all."),
        Column(
            "NominalConcurrencyShares",
            _limited("nominalConcurrencyShares"),
            description="The level's part of the server's concurrency.",
        ),
        Column("Queues", _queuing("queues"), description="Number of queues."),
        Column("HandSize", _queuing("handSize"), description="Number of queues that a flow is spread over."),
        Column("QueueLengthLimit", _queuing("queueLengthLimit"), description="Requests that may wait in one queue."),
        AGE,
    )

    def __init__(self) -> None:
        self.subresources = {"status": FlowControlStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        spec = obj["spec"]
        limited, exempt = spec.get("limited"), spec.get("exempt")
        if limited is not None:
            _set_shares(limited, 30)
            queuing = (limited.get("limitResponse") or {}).get("queuing")
            if queuing is not None:
                for name, value in _QUEUING_DEFAULTS.items():
                    if not queuing.get(name):
                        queuing[name] = value
        if exempt is not None:
            _set_shares(exempt, 0)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        name, kind = meta.get("name", ""), spec.get("type", "")
        if _PRESERVE_ZERO in (meta.get("annotations") or {}):
            errs.append(forbidden("metadata.annotations", f"annotation '{_PRESERVE_ZERO}' is forbidden"))
        if (name == "exempt") != (kind == "Exempt"):
            errs.append(invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"))
        limited, exempt = spec.get("limited"), spec.get("exempt")
        # The rules on which member belongs to which type come after all others.
        late: Errors = []
        if exempt is not None and kind != "Exempt":
            late.append(forbidden("spec.exempt", ""))
        if limited is not None and kind != "Limited":
            late.append(forbidden("spec.limited", ""))
        if kind == "Exempt" and exempt is not None:
            _validate_shares(exempt, "spec.exempt", errs)
        elif kind == "Limited" and limited is None:
            late.append(required("spec.limited"))
        elif not kind:
            late.append(required("spec.type"))
        elif kind not in ("Exempt", "Limited"):
            errs.append(not_supported("spec.type", kind, ("Exempt", "Limited")))
        if limited is not None:
            response = limited.get("limitResponse") or {}
            if kind == "Limited":
                _validate_limited(limited, response, errs)
            _validate_response_members(response, late)
        if name == "exempt" and (kind != "Exempt" or limited is not None):
            text = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
            errs.append(invalid("spec", internal_form(spec, _PRIORITY_LEVEL_FORM), text))
        elif name == "catch-all" and spec != _CATCH_ALL:
            text = "spec of 'catch-all' must equal the fixed value"
            errs.append(invalid("spec", internal_form(spec, _PRIORITY_LEVEL_FORM), text))
        _validate_status(obj, errs)
        errs.extend(late)


def _set_shares(holder: Obj, shares: int) -> None:
    if holder.get("nominalConcurrencyShares") is None:
        holder["nominalConcurrencyShares"] = shares
    if holder.get("lendablePercent") is None:
        holder["lendablePercent"] = 0


def _validate_shares(holder: Obj, path: str, errs: Errors) -> None:
    if holder["nominalConcurrencyShares"] < 0:
        errs.append(invalid(f"{path}.nominalConcurrencyShares", holder["nominalConcurrencyShares"], _NOT_NEGATIVE))
    _validate_lendable(holder, path, errs)


def _validate_lendable(holder: Obj, path: str, errs: Errors) -> None:
    if not 0 <= holder["lendablePercent"] <= 100:
        text = "must be between 0 and 100, inclusive"
        errs.append(invalid(f"{path}.lendablePercent", holder["lendablePercent"], text))


def _validate_limited(limited: Obj, response: Obj, errs: Errors) -> None:
    path = "spec.limited"
    if limited["nominalConcurrencyShares"] < 0:
        errs.append(invalid(f"{path}.nominalConcurrencyShares", limited["nominalConcurrencyShares"], _NOT_NEGATIVE))
    kind, queuing = response.get("type", ""), response.get("queuing")
    if kind == "Queue" and queuing is not None:
        _validate_queuing(queuing, f"{path}.limitResponse.queuing", errs)
    elif kind and kind not in ("Queue", "Reject"):
        errs.append(not_supported(f"{path}.limitResponse.type", kind, ("Queue", "Reject")))
    _validate_lendable(limited, path, errs)
    if limited.get("borrowingLimitPercent", 0) < 0:
        text = "if specified, must be a non-negative integer"
        errs.append(invalid(f"{path}.borrowingLimitPercent", limited["borrowingLimitPercent"], text))


def _validate_response_members(response: Obj, late: Errors) -> None:
    path = "spec.limited.limitResponse"
    kind, queuing = response.get("type", ""), response.get("queuing")
    if kind == "Queue" and queuing is None:
        late.append(required(f"{path}.queuing"))
    elif kind != "Queue" and queuing is not None:
        late.append(forbidden(f"{path}.queuing", ""))
    if not kind:
        late.append(required(f"{path}.type"))


def _validate_queuing(queuing: Obj, path: str, errs: Errors) -> None:
    length, queues, hand = queuing["queueLengthLimit"], queuing["queues"], queuing["handSize"]
    if length <= 0:
        errs.append(invalid(f"{path}.queueLengthLimit", length, "must be positive"))
    if queues <= 0:
        errs.append(invalid(f"{path}.queues", queues, "must be positive"))
    elif queues > _MAX_QUEUES:
        errs.append(invalid(f"{path}.queues", queues, f"must not be greater than {_MAX_QUEUES}"))
    if hand <= 0:
        errs.append(invalid(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        errs.append(invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})"))
    elif ceil(log2(queues) * hand) > _HASH_BITS:
        text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_HASH_BITS}"
        errs.append(invalid(f"{path}.handSize", hand, text))


STRATEGIES: dict[str, Strategy] = {
    "FlowSchema": FlowSchemaStrategy(),
    "PriorityLevelConfiguration": PriorityLevelConfigurationStrategy(),
}
