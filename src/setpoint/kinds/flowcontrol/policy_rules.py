"""The rules of a FlowSchema: who asks, and for what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.kinds.internal_form import items, pointer
from setpoint.meta.field import Errors, FieldError, forbidden, invalid, not_supported, required
from setpoint.meta.names import dns1123_label, dns1123_subdomain

RULE_FORM = {
    "subjects": items({
        "kind": "", "user": pointer({"name": ""}), "group": pointer({"name": ""}),
        "serviceAccount": pointer({"namespace": "", "name": ""}),
    }),
    "resourceRules": items(
        {"verbs": None, "apiGroups=APIGroups": None, "resources": None, "clusterScope": False, "namespaces": None}
    ),
    "nonResourceRules": items({"verbs": None, "nonResourceURLs": None}),
}  # fmt: skip
_VERBS = frozenset({"get", "list", "create", "update", "delete", "deletecollection", "patch", "watch", "proxy"})
_MEMBERS = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}


def validate_rule(rule: dict[str, Any], path: str, errs: Errors) -> None:
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


def _validate_subject(subject: dict[str, Any], path: str, errs: Errors) -> None:
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


def _validate_named(kind: str, named: dict[str, Any], path: str, errs: Errors) -> None:
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


def _validate_resources(rule: dict[str, Any], path: str, errs: Errors) -> None:
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


def _validate_urls(rule: dict[str, Any], path: str, errs: Errors) -> None:
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
