"""A custom kind in one version, as the rest of the server sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from setpoint.kinds.apiextensions.custom_strategy import CustomStrategy
from setpoint.kinds.apiextensions.custom_type import custom_type
from setpoint.kinds.apiextensions.version_order import deprecation_warning
from setpoint.kinds.catalog import SCALE, STATUS, Resource
from setpoint.meta.schema import Type

Obj = dict[str, Any]
VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


_LAST_VERBS = ("delete", "deletecollection", "get", "list", "watch")


@dataclass(slots=True)
class Life:
    """What may change about a definition without changing how its objects are served."""

    terminating: bool = False


@dataclass(frozen=True)
class CustomResource(Resource):
    listed_as: str = ""
    stored_version: str = ""
    definition: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The definition's spec."""
    life: Life = field(default_factory=Life, repr=False, compare=False)

    is_custom = True

    @property
    def discovery_verbs(self) -> tuple[str, ...]:
        return _LAST_VERBS if self.life.terminating else self.verbs

    @property
    def list_kind(self) -> str:
        return self.listed_as

    @cached_property
    def storage(self) -> tuple[str, str]:
        return self.group, self.stored_version

    @cached_property
    def served(self) -> Mapping[str, Any]:
        """What the definition says of this version."""
        return next(version for version in self.definition["versions"] if version["name"] == self.version)

    @property
    def schema(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = (self.served.get("schema") or {}).get("openAPIV3Schema")
        return found

    @property
    def preserves(self) -> bool:
        return bool(self.definition.get("preserveUnknownFields"))

    @cached_property
    def type(self) -> Type:
        return custom_type(self.schema, self.preserves)

    @cached_property
    def bare_type(self) -> Type:
        """The type of what was converted to this version: no defaults are filled in."""
        return custom_type(self.schema, self.preserves, defaults=False)

    @cached_property
    def strategy(self) -> CustomStrategy:
        strategy = CustomStrategy(self.served, self.api_version, self.kind, self.preserves)
        strategy.type = self.type
        if not self.namespaced:
            strategy.field_labels = strategy.field_labels - {"metadata.namespace"}
        for part in strategy.subresources.values():
            part.type = self.type
        return strategy

    @cached_property
    def deprecation(self) -> str:  # type: ignore[override]
        return deprecation_warning(self.definition, self.version)


def resources_of(definition: Obj, life: Life) -> list[CustomResource]:
    """One for every version, those that are only stored among them."""
    spec, names = definition["spec"], (definition.get("status") or {}).get("acceptedNames") or {}
    stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
    found = []
    for version in spec["versions"]:
        parts = version.get("subresources") or {}
        subresources = [part for part in (STATUS, SCALE) if parts.get(part.name) is not None]
        found.append(
            CustomResource(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                singular=names["singular"],
                namespaced=spec["scope"] == "Namespaced",
                short=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                verbs=VERBS,
                subresources=tuple(subresources),
                listed_as=names["listKind"],
                stored_version=stored,
                definition=spec,
                life=life,
            )
        )
    return found
