"""Which writes a policy, a binding or a webhook is for: rules, selectors, and equivalent versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.apiserver.admission.dynamic.review_request import namespace_of
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.plugin import Attributes, Obj, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import NotFound
from setpoint.meta.selectors import Selector, from_label_selector

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Criteria:
    """`rules` None: every resource."""

    namespaces: Selector
    objects: Selector
    rules: Sequence[Rule] | None
    excluded: Sequence[Rule]
    equivalent: bool

    @classmethod
    def of_match_resources(cls, match: Obj) -> Criteria:
        return cls(
            from_label_selector(match.get("namespaceSelector") or {}),
            from_label_selector(match.get("objectSelector") or {}),
            match.get("resourceRules") or None,
            match.get("excludeResourceRules") or (),
            match.get("matchPolicy") == "Equivalent",
        )

    @classmethod
    def of_webhook(cls, hook: Obj) -> Criteria:
        return cls(
            from_label_selector(hook.get("namespaceSelector") or {}),
            from_label_selector(hook.get("objectSelector") or {}),
            hook.get("rules") or (),
            (),
            hook.get("matchPolicy") == "Equivalent",
        )

    def concerns(self, served: Served, operation: str, resource: Resource, subresource: str) -> bool:
        """Whether a request of this sort could match, whatever its object, name and namespace are."""
        if self.rules is None:
            return True
        versions = [resource, *(served.equivalents(resource) if self.equivalent else ())]
        return any(_of_sort(rule, operation, one, subresource) for rule in self.rules for one in versions)


def _has(items: Sequence[str] | None, wanted: str) -> bool:
    return any(item in ("*", wanted) for item in items or ())


def _of_sort(rule: Rule, operation: str, resource: Resource, subresource: str) -> bool:
    if not (
        _has(rule.get("operations"), operation)
        and _has(rule.get("apiGroups"), resource.group)
        and _has(rule.get("apiVersions"), resource.version)
    ):
        return False
    for pattern in rule.get("resources") or ():
        name, _, part = pattern.partition("/")
        if name in ("*", resource.plural) and part in ("*", subresource):
            return True
    return False


def _in_scope(rule: Rule, attrs: Attributes, resource: Resource, namespace: str) -> bool:
    scope = rule.get("scope") or "*"
    if scope == "*":
        return True
    is_namespace = (resource.group, resource.version, resource.plural) == ("", "v1", "namespaces")
    return (scope == "Namespaced") == (bool(namespace) and not is_namespace)


def _by_rules(
    rules: Sequence[Rule], equivalent: bool, attrs: Attributes, namespace: str, served: Served
) -> Resource | None:
    """As which resource the request matches; the one that was asked for, if it does."""

    def matches(rule: Rule, resource: Resource) -> bool:
        names = rule.get("resourceNames")
        return (
            _in_scope(rule, attrs, resource, namespace)
            and _of_sort(rule, attrs.operation, resource, attrs.subresource)
            and (not names or attrs.name in names)
        )

    if any(matches(rule, attrs.resource) for rule in rules):
        return attrs.resource
    if not equivalent:
        return None
    others = served.equivalents(attrs.resource)
    return next((other for rule in rules for other in others if matches(rule, other)), None)


class Matcher:
    def __init__(self, reader: Reader, served: Served) -> None:
        self._reader = reader
        self._served = served

    def match(self, criteria: Criteria, attrs: Attributes) -> Resource | None:
        """As which resource the request matches. Raises NotFound where the namespace it depends on is not there."""
        namespace = namespace_of(attrs)
        missing: NotFound | None = None
        try:
            if not self._by_namespace(criteria.namespaces, attrs, namespace):
                return None
        except NotFound as error:
            missing = error
        if not criteria.objects.empty and not any(
            obj is not None and criteria.objects.matches(labels_of(attrs.shape.show(obj) if attrs.shape else obj))
            for obj in (attrs.obj, attrs.old)
        ):
            return None
        if _by_rules(criteria.excluded, criteria.equivalent, attrs, namespace, self._served) is not None:
            return None
        if criteria.rules is None:
            found: Resource | None = attrs.resource
        else:
            found = _by_rules(criteria.rules, criteria.equivalent, attrs, namespace, self._served)
        if found is not None and missing is not None:
            raise missing
        return found

    def _by_namespace(self, selector: Selector, attrs: Attributes, namespace: str) -> bool:
        of_namespaces = attrs.resource.plural == "namespaces"
        if selector.empty or (not namespace and not of_namespaces):
            return True
        if of_namespaces and not attrs.subresource and attrs.operation in ("CREATE", "UPDATE"):
            assert attrs.obj is not None
            return selector.matches(labels_of(attrs.obj))
        return selector.matches(labels_of(self.namespace(namespace)))

    def namespace(self, name: str) -> Obj:
        found = self._reader.get("", "namespaces", "", name)
        if found is None:
            raise NotFound.of("", "namespaces", name)
        return found


def labels_of(obj: Obj) -> dict[str, str]:
    labels: dict[str, str] = (obj.get("metadata") or {}).get("labels") or {}
    return labels
