"""Describe roles and bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from setpoint.cli.describe.context import DescribeContext, Writer
from setpoint.cli.describe.metadata import write_head
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj


@dataclass(slots=True)
class _Rule:
    """The verbs of one resource of one group, or of one path, with at most one name."""

    groups: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)

    def order(self) -> str:
        return (
            f"&PolicyRule{{Verbs:{plain(self.verbs)},APIGroups:{plain(self.groups)},Resources:{plain(self.resources)},"
            f"ResourceNames:{plain(self.names)},NonResourceURLs:{plain(self.paths)},}}"
        )


async def role(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj, namespaced=False)
    w.write(0, "PolicyRule:\n")
    w.row(1, "Resources", "Non-Resource URLs", "Resource Names", "Verbs")
    w.row(1, "---------", "-----------------", "--------------", "-----")
    for row in rule_rows(obj.get("rules") or ()):
        w.row(1, *row)
    return w.text()


def rule_rows(rules: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return rows of resource, paths, names and verbs, one for each resource."""
    return [
        (_resource(rule), plain(rule.paths), plain(rule.names), plain(rule.verbs))
        for rule in sorted(_joined(rules), key=_Rule.order)
    ]


def _joined(rules: Sequence[Mapping[str, Any]]) -> list[_Rule]:
    """Merge all rules of the same resource; a path has one for each verb."""
    found: dict[tuple[str, str, str | None], _Rule] = {}
    paths = []
    for rule in rules:
        for single in _singles(rule):
            if single.paths:
                paths.append(single)
                continue
            key = single.groups[0], single.resources[0], single.names[0] if single.names else None
            known = found.setdefault(key, single)
            known.verbs += [verb for verb in single.verbs if verb not in known.verbs]
    return [*paths, *found.values()]


def _singles(rule: Mapping[str, Any]) -> Iterator[_Rule]:
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                for name in rule.get("resourceNames") or (None,):
                    yield _Rule([group], [resource], [] if name is None else [name], [], [verb])
    for path in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield _Rule(paths=[path], verbs=[verb])


def _resource(rule: _Rule) -> str:
    if not rule.resources:
        return ""
    resource, slash, subresource = rule.resources[0].partition("/")
    group = f".{rule.groups[0]}" if rule.groups and rule.groups[0] else ""
    return f"{resource}{group}{slash}{subresource}"


async def binding(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj, namespaced=False)
    to = obj.get("roleRef") or {}
    w.write(0, "Role:\n")
    w.field("Kind", to.get("kind", ""), 1)
    w.field("Name", to.get("name", ""), 1)
    w.write(0, "Subjects:\n")
    w.row(1, "Kind", "Name", "Namespace")
    w.row(1, "----", "----", "---------")
    for subject in obj.get("subjects") or ():
        w.row(1, subject.get("kind", ""), subject.get("name", ""), subject.get("namespace", ""))
    return w.text()
