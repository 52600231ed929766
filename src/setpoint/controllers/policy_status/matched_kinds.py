"""The kinds a policy is checked against, which are those that its rules name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from setpoint.kinds.catalog import Resource

MOST_KINDS: Final = 10
"""The maximum number of kinds of one rule; the rules after it are skipped."""
Served = Callable[[bool], Awaitable[Sequence[Resource]]]
"""Returns the served resources; a true argument bypasses the cache."""


class GroupVersionKind(NamedTuple):
    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def kind_of(api_version: str, kind: str) -> GroupVersionKind:
    group, _, version = api_version.rpartition("/")
    return GroupVersionKind(group, version, kind)


async def matched_kinds(policy: dict[str, Any], served: Served) -> list[GroupVersionKind]:
    """Return the matched kinds sorted by group, version and kind. Unknown resources trigger one new discovery per
    policy."""
    found: set[GroupVersionKind] = set()
    known = await served(False)
    rediscovered = False
    for rule in (policy["spec"].get("matchConstraints") or {}).get("resourceRules") or ():
        count = 0
        for group, version, name in _named(rule):
            kinds = list(_kinds(known, group, version, name))
            if not kinds and not rediscovered:
                rediscovered = True
                known = await served(True)
                kinds = list(_kinds(known, group, version, name))
            for kind in kinds:
                found.add(kind)
                count += 1
                if count == MOST_KINDS:
                    return sorted(found)
    return sorted(found)


def _named(rule: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the (group, version, resource) of a rule; none if a group or version is a wildcard."""
    groups, versions = sorted(rule.get("apiGroups") or ()), sorted(rule.get("apiVersions") or ())
    if any("*" in name for name in (*groups, *versions)):
        return
    resources = sorted(name for name in rule.get("resources") or () if "*" not in name and "/" not in name)
    for group in groups:
        for version in versions:
            for resource in resources:
                yield group, version, resource


def _kinds(served: Iterable[Resource], group: str, version: str, name: str) -> Iterator[GroupVersionKind]:
    """Yield the matching kinds. An empty group matches any group, as in upstream's mapper."""
    for resource in served:
        if (not group or resource.group == group) and resource.version == version:
            if name.lower() in (resource.plural, resource.singular_name or resource.kind.lower()):
                yield GroupVersionKind(resource.group, resource.version, resource.kind)
