"""The objects of a kustomization, with unique ids, and the order of its output."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize.resource import Id, Resource
from setpoint.meta.selectors import SelectorError, parse_labels

_FIRST = (
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
)
_LAST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def ordered(resources: list[Resource], given: Any) -> list[Resource]:
    """Sort by the `sortOptions` in `given`; without them by kind. Raise Failed."""
    first, last = list(_FIRST), list(_LAST)
    if given is not None:
        order = (given or {}).get("order")
        if order not in ("fifo", "legacy"):
            raise Failed("the field 'sortOptions.order' must be one of [fifo, legacy]")
        own = given.get("legacySortOptions")
        if order == "fifo" and own is not None:
            raise Failed(
                "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'"
            )
        if order == "fifo":
            return resources
        if own is not None:
            first, last = list(own.get("orderFirst") or ()), list(own.get("orderLast") or ())
    places = {kind: at - len(first) for at, kind in enumerate(first)} | {kind: at + 1 for at, kind in enumerate(last)}

    def key(one: Resource) -> tuple[Any, ...]:
        found: Id = one.id
        kind = "_".join((found.group or "~G", found.version or "~V", found.kind or "~K"))
        return places.get(found.kind, 0), kind, f"{one.namespace or '~X'}|{found.name or '~N'}"

    return sorted(resources, key=key)


_LONGEST_PATTERN = 1000


class Selector(NamedTuple):
    """The `target` of a patch: regular expressions, and a label and an annotation selector."""

    group: str = ""
    version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    labels: str = ""
    annotations: str = ""

    @classmethod
    def read(cls, given: dict[str, Any]) -> Selector:
        group, _, version = _text(given, "apiVersion").rpartition("/")
        return cls(
            _text(given, "group") or group,
            _text(given, "version") or version,
            _text(given, "kind"),
            _text(given, "name"),
            _text(given, "namespace"),
            _text(given, "labelSelector"),
            _text(given, "annotationSelector"),
        )

    @property
    def names_nothing(self) -> bool:
        return not any(self[:5])

    def matches_id(self, found: Id) -> bool:
        return all(
            matches(pattern, value)
            for pattern, value in zip(self[:5], (found.group, found.version, found.kind, found.name, found.namespace))
        )

    def matches_metadata(self, resource: Resource) -> bool:
        for text, field in ((self.labels, "labels"), (self.annotations, "annotations")):
            if text:
                try:
                    selector = parse_labels(text)
                except SelectorError as error:
                    raise Failed(f"{text}: {error}") from None
                if not selector.matches(resource.meta.get(field) or {}):
                    return False
        return True


def _text(given: dict[str, Any], key: str) -> str:
    found = given.get(key)
    if found is not None and not isinstance(found, str):
        kind = "bool" if isinstance(found, bool) else "number" if isinstance(found, int | float) else "value"
        raise Failed(f"invalid Kustomization: json: cannot unmarshal {kind} into field {key} of type string")
    return found or ""


def matches(pattern: str, value: str) -> bool:
    """Return whether a regular expression matches the whole value; an empty one matches everything."""
    if not pattern or pattern == value:
        return True
    if len(pattern) > _LONGEST_PATTERN:
        raise Failed(f"the pattern {pattern[:40]}... is too long")
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error as error:
        raise Failed(f"error parsing regexp: {error}: `^(?:{pattern})$`") from None


class ResourceMap:
    def __init__(self) -> None:
        self.all: list[Resource] = []

    def append(self, resource: Resource) -> None:
        found = resource.id
        if any(one.id == found for one in self.all):
            raise Failed(f"may not add resource with an already registered id: {found}")
        self.all.append(resource)

    def extend(self, resources: list[Resource]) -> None:
        for resource in resources:
            self.append(resource)

    def absorb(self, resource: Resource) -> None:
        """Add a generated object, or merge or replace an existing one, depending on its behavior."""
        wanted = resource.id
        found = [one for one in self.all if wanted in one.ids]
        if not found:
            if resource.behavior in ("merge", "replace"):
                raise Failed(f"id {wanted} does not exist; cannot merge or replace")
            self.append(resource)
            return
        if len(found) > 1:
            raise Failed(f"found multiple objects that could accept merge of {wanted}")
        old = found[0]
        if resource.behavior not in ("merge", "replace"):
            behavior = resource.behavior or "create"
            raise Failed(f"id {wanted} exists; can not use behavior: '{behavior}', behavior must be merge or replace")
        self.all[self.all.index(old)] = _in_place_of(old, resource)

    def by_id(self, wanted: Id) -> Resource:
        """Return the object with this current or former id. Raise Failed unless there is exactly one."""
        found = [one for one in self.all if wanted in one.ids]
        if len(found) != 1:
            how = "multiple" if found else "no"
            raise Failed(f"{how} matches for Id {wanted}; failed to find unique target for patch {wanted}")
        return found[0]

    def matching(self, test: Callable[[Id], bool]) -> list[Resource]:
        return [one for one in self.all if any(test(found) for found in one.ids)]

    def select(self, selector: Selector) -> list[Resource]:
        return [
            one
            for one in self.all
            if (matches(selector.namespace, one.first_id.namespace) or matches(selector.namespace, one.id.namespace))
            and (matches(selector.name, one.first_id.name) or matches(selector.name, one.id.name))
            and selector._replace(name="", namespace="").matches_id(one.id)
            and selector.matches_metadata(one)
        ]

    def drop_empty(self) -> None:
        self.all = [one for one in self.all if one.obj]


def _in_place_of(old: Resource, new: Resource) -> Resource:
    """Return the new object with the name of the old one and, for `merge`, its content."""
    for key in ("labels", "annotations"):
        both = {**(old.meta.get(key) or {}), **(new.meta.get(key) or {})}
        if both:
            new.meta[key] = both
    new.meta["name"] = old.name
    new.meta.pop("namespace", None)
    if old.namespace:
        new.meta["namespace"] = old.namespace
    if new.behavior == "merge":
        for key in ("data", "binaryData"):
            both = {**(old.obj.get(key) or {}), **(new.obj.get(key) or {})}
            if both:
                new.obj[key] = both
        new.origin = old.origin or new.origin
    new.before, new.prefixes, new.suffixes = list(old.before), list(old.prefixes), list(old.suffixes)
    new.hashed = new.hashed and old.hashed
    new.behavior, new.variables = old.behavior, list(old.variables)
    return new
