"""Matching of writes to policies, bindings and webhooks: rules, selectors, equivalent versions, exempt resources.

A HookIndex finds the hooks that can apply to a request without evaluating each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from setpoint.apiserver.admission.dynamic.admission_review import namespace_of
from setpoint.apiserver.admission.dynamic.served_resources import ServedResources
from setpoint.apiserver.admission.plugin import Attributes, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import Selector, from_label_selector

_REVIEWS = {
    "authentication.k8s.io": ("selfsubjectreviews", "tokenreviews"),
    "authorization.k8s.io": (
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    ),
}
GROUP = "admissionregistration.k8s.io"
_POLICIES = (
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)
_WEBHOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def is_review(resource: Resource) -> bool:
    """Return whether no policy and no webhook applies to the resource: it may itself be needed to evaluate them."""
    return resource.plural in _REVIEWS.get(resource.group, ())


def exempt_from_policies(resource: Resource) -> bool:
    """Return whether policies do not apply to the resource, because it is a review or configures policies."""
    if resource.group == GROUP:
        return resource.plural in _POLICIES
    return is_review(resource)


def exempt_from_webhooks(resource: Resource) -> bool:
    """Return whether webhooks do not apply to the resource, because it is a review or configures admission."""
    if resource.group == GROUP:
        return resource.plural in _POLICIES or resource.plural in _WEBHOOKS
    return is_review(resource)


Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Criteria:
    """The match criteria of a policy, a binding or a webhook."""

    namespaces: Selector
    objects: Selector
    rules: Sequence[Rule] | None
    """Rules of which one must match; None means every resource."""
    excluded: Sequence[Rule]
    """Rules of which none may match."""
    equivalent: bool
    """Whether rules also match other versions of the same resource."""

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

    def may_match(self, served: ServedResources, operation: str, resource: Resource, subresource: str) -> bool:
        """Return whether a request of this kind could match, whatever its object, name and namespace are."""
        if self.rules is None:
            return True
        versions = [resource, *(served.equivalents(resource) if self.equivalent else ())]
        return any(_matches_kind(rule, operation, one, subresource) for rule in self.rules for one in versions)


def _allows(items: Sequence[str] | None, wanted: str) -> bool:
    return any(item in ("*", wanted) for item in items or ())


def _matches_kind(rule: Rule, operation: str, resource: Resource, subresource: str) -> bool:
    if not (
        _allows(rule.get("operations"), operation)
        and _allows(rule.get("apiGroups"), resource.group)
        and _allows(rule.get("apiVersions"), resource.version)
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


def _matched_resource(
    rules: Sequence[Rule], equivalent: bool, attrs: Attributes, namespace: str, served: ServedResources
) -> Resource | None:
    """Return the resource as which the request matches, the requested one if possible, or None if no rule matches."""

    def matches(rule: Rule, resource: Resource) -> bool:
        names = rule.get("resourceNames")
        return (
            _in_scope(rule, attrs, resource, namespace)
            and _matches_kind(rule, attrs.operation, resource, attrs.subresource)
            and (not names or attrs.name in names)
        )

    if any(matches(rule, attrs.resource) for rule in rules):
        return attrs.resource
    if not equivalent:
        return None
    others = served.equivalents(attrs.resource)
    return next((other for rule in rules for other in others if matches(rule, other)), None)


class Matcher:
    def __init__(self, reader: Reader, served: ServedResources) -> None:
        self._reader = reader
        self._served = served

    def match(self, criteria: Criteria, attrs: Attributes) -> Resource | None:
        """Return the resource as which the request matches, or None. Raises NotFound if the namespace does not
        exist."""
        namespace = namespace_of(attrs)
        missing: NotFound | None = None
        try:
            if not self._by_namespace(criteria.namespaces, attrs, namespace):
                return None
        except NotFound as error:
            missing = error
        if not criteria.objects.empty and not any(
            obj is not None and criteria.objects.matches(labels_of(attrs.view.render(obj) if attrs.view else obj))
            for obj in (attrs.obj, attrs.old)
        ):
            return None
        if _matched_resource(criteria.excluded, criteria.equivalent, attrs, namespace, self._served) is not None:
            return None
        if criteria.rules is None:
            found: Resource | None = attrs.resource
        else:
            found = _matched_resource(criteria.rules, criteria.equivalent, attrs, namespace, self._served)
        if found is not None and missing is not None:
            raise missing
        return found

    def _by_namespace(self, selector: Selector, attrs: Attributes, namespace: str) -> bool:
        is_namespace_request = attrs.resource.plural == "namespaces"
        if selector.empty or (not namespace and not is_namespace_request):
            return True
        if is_namespace_request and not attrs.subresource and attrs.operation in ("CREATE", "UPDATE"):
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


class _HasCriteria(Protocol):
    """A hook with match criteria."""

    criteria: Criteria


H = TypeVar("H", bound=_HasCriteria)
_RequestKind = tuple[str, str, str, str, str]


class HookIndex(Generic[H]):
    """Hooks by the kinds of requests that they can apply to; the hooks of each kind are computed once."""

    def __init__(self, served: ServedResources) -> None:
        self._served = served
        self._hooks: Sequence[H] = ()
        self._found: dict[_RequestKind, tuple[H, ...]] = {}

    def replace(self, hooks: Sequence[H]) -> None:
        self._hooks, self._found = hooks, {}

    def for_request(self, attrs: Attributes) -> tuple[H, ...]:
        """Return the hooks that the request could match, in order."""
        if not self._hooks:
            return ()
        resource = attrs.resource
        kind = (attrs.operation, resource.group, resource.version, resource.plural, attrs.subresource)
        found = self._found.get(kind)
        if found is None:
            found = self._found[kind] = tuple(
                hook
                for hook in self._hooks
                if hook.criteria.may_match(self._served, attrs.operation, resource, attrs.subresource)
            )
        return found
