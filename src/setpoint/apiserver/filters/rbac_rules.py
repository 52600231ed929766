"""RBAC rules as values: what one allows, whether some cover others, how they are written in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from setpoint.apiserver.filters.authorize import Access, Rule
from setpoint.meta.goformat import quote_all

_PARTS = (
    ("apiGroups", "APIGroups"), ("resources", "Resources"), ("nonResourceURLs", "NonResourceURLs"),
    ("resourceNames", "ResourceNames"), ("verbs", "Verbs"),
)  # fmt: skip


def concerns(rule: Rule, access: Access) -> bool:
    """Whether the rule allows this verb on this kind of thing; names and paths are looked at by `permits`."""
    if not _has(rule.get("verbs"), access.verb):
        return False
    if access.path is not None:
        return bool(rule.get("nonResourceURLs"))
    return _has(rule.get("apiGroups"), access.group) and _covers_resource(rule.get("resources") or (), access)


def permits(rule: Rule, access: Access) -> bool:
    """For a rule that `concerns` the access."""
    if access.path is not None:
        return covers_path(rule.get("nonResourceURLs") or (), access.path)
    names = rule.get("resourceNames")
    return not names or access.name in names


def _has(allowed: Sequence[str] | None, wanted: str) -> bool:
    return bool(allowed) and ("*" in allowed or wanted in allowed)  # type: ignore[operator]


def _covers_resource(resources: Sequence[str], access: Access) -> bool:
    if "*" in resources:
        return True
    if access.subresource:
        return f"{access.resource}/{access.subresource}" in resources or f"*/{access.subresource}" in resources
    return access.resource in resources


def covers_path(patterns: Iterable[str], path: str) -> bool:
    for pattern in patterns:
        if pattern == path or (pattern.endswith("*") and path.startswith(pattern.rstrip("*"))):
            return True
    return False


# -- comparing ----------------------------------------------------------------------------------------------------


def uncovered(owner: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """What `wanted` allows and `owner` does not, in rules of one verb on one thing each."""
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(own, part) for own in owner)]


def _parts(rule: Rule) -> Iterable[Rule]:
    names = rule.get("resourceNames")
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                part = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                if names:
                    yield from (part | {"resourceNames": [name]} for name in names)
                else:
                    yield part
    for url in rule.get("nonResourceURLs") or ():
        for verb in rule.get("verbs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [url]}


def _covers(owner: Rule, part: Rule) -> bool:
    """`part` has one verb and one group, resource, name or path."""
    verbs = owner.get("verbs") or ()
    if part["verbs"][0] not in verbs and "*" not in verbs:
        return False
    urls = part.get("nonResourceURLs")
    if urls:
        return not owner.get("resourceNames") and covers_path(owner.get("nonResourceURLs") or (), urls[0])
    groups, resources = owner.get("apiGroups") or (), owner.get("resources") or ()
    if part["apiGroups"][0] not in groups and "*" not in groups:
        return False
    resource = part["resources"][0]
    if resource not in resources and "*" not in resources:
        _, slash, subresource = resource.partition("/")
        if not slash or f"*/{subresource}" not in resources:
            return False
    names = owner.get("resourceNames")
    return not names or ("resourceNames" in part and part["resourceNames"][0] in names)


def compacted(rules: Iterable[Rule]) -> list[Rule]:
    """Rules on the same single thing become one, with the verbs of all."""
    whole: list[Rule] = []
    simple: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for rule in rules:
        names, groups, resources = (list(rule.get(key) or ()) for key in ("resourceNames", "apiGroups", "resources"))
        if rule.get("nonResourceURLs") or len(names) > 1 or len(groups) != 1 or len(resources) != 1:
            whole.append(rule)
        else:
            simple.setdefault((groups[0], resources[0], tuple(names)), []).extend(rule.get("verbs") or ())
    for (group, resource, named), verbs in simple.items():
        one = {"verbs": verbs, "apiGroups": [group], "resources": [resource]}
        whole.append(one | {"resourceNames": list(named)} if named else one)
    return whole


def described(rule: Rule) -> str:
    shown = (f"{title}:{quote_all(rule[key])}" for key, title in _PARTS if rule.get(key))
    return "{" + ", ".join(shown) + "}"
