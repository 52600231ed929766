"""A version of a custom kind as a Resource, and its scale subresource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from setpoint.apiserver.handlers.scale import ReplicasPaths
from setpoint.apiserver.registry import Registry
from setpoint.kinds.apiextensions.custom_strategy import CustomStrategy, custom_type
from setpoint.kinds.apiextensions.printer_columns import printer_columns
from setpoint.kinds.apiextensions.scale_rules import ScaleError, ScalePaths, keys
from setpoint.kinds.apiextensions.version_order import deprecation_warning
from setpoint.kinds.autoscaling.scale import replicas_of
from setpoint.kinds.catalog import SCALE, STATUS, Resource, Subresource
from setpoint.meta.errors import BadRequest, InternalError, PlainServerError
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Type

VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


_TERMINATING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
_UNSET = -(2**31)
"""Stands for missing replicas, so that a patch to 0 can be distinguished from no patch."""
_COLUMNS = (
    {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas", "description": "Desired number of replicas."},
    {
        "name": "Available",
        "type": "integer",
        "jsonPath": ".status.replicas",
        "description": "Observed number of replicas.",
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since creation."},
)


@dataclass(slots=True)
class DefinitionState:
    """The state of a definition that can change without changing how its objects are served."""

    terminating: bool = False


class CustomResource(Resource):
    is_custom = True

    def __init__(
        self,
        *,
        group: str,
        version: str,
        kind: str,
        plural: str,
        singular: str = "",
        namespaced: bool = True,
        short: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        verbs: tuple[str, ...] = VERBS,
        subresources: tuple[Subresource, ...] = (),
        listed_kind: str = "",
        stored_version: str = "",
        definition: Mapping[str, Any] | None = None,
        state: DefinitionState | None = None,
    ) -> None:
        super().__init__(group, version, kind, plural, singular, namespaced, short, categories, verbs, subresources)
        self.listed_kind = listed_kind
        self.stored_version = stored_version
        self.definition = definition or {}
        """The definition's spec."""
        self.state = state or DefinitionState()

    def _value(self) -> tuple[object, ...]:
        return (*super()._value(), self.listed_kind, self.stored_version)

    @property
    def discovery_verbs(self) -> tuple[str, ...]:
        return _TERMINATING_VERBS if self.state.terminating else self.verbs

    @property
    def list_kind(self) -> str:
        return self.listed_kind

    @cached_property
    def storage(self) -> tuple[str, str]:
        return self.group, self.stored_version

    @cached_property
    def served(self) -> Mapping[str, Any]:
        """The entry of this version in the definition."""
        return next(version for version in self.definition["versions"] if version["name"] == self.version)

    @property
    def schema(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = (self.served.get("schema") or {}).get("openAPIV3Schema")
        return found

    @property
    def preserves_unknown(self) -> bool:
        return bool(self.definition.get("preserveUnknownFields"))

    @cached_property
    def type(self) -> Type:
        return custom_type(self.schema, self.preserves_unknown)

    @cached_property
    def bare_type(self) -> Type:
        """The type without defaults, for objects that were converted to this version."""
        return custom_type(self.schema, self.preserves_unknown, defaults=False)

    @cached_property
    def strategy(self) -> CustomStrategy:
        strategy = CustomStrategy(self.served, self.api_version, self.kind, self.preserves_unknown)
        strategy.type = self.type
        if not self.namespaced:
            strategy.field_labels = strategy.field_labels - {"metadata.namespace"}
        for part in strategy.subresources.values():
            part.type = self.type
        return strategy

    @cached_property
    def deprecation(self) -> str:  # type: ignore[override]
        return deprecation_warning(self.definition, self.version)


def resources_of(definition: Obj, state: DefinitionState) -> list[CustomResource]:
    """Return a resource for every version, including those that are only stored."""
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
                listed_kind=names["listKind"],
                stored_version=stored,
                definition=spec,
                state=state,
            )
        )
    return found


class CustomScaling:
    """The scale subresource of a custom kind; the definition names the fields."""

    columns = printer_columns(_COLUMNS)

    def __init__(self, versions: Mapping[str, CustomResource]) -> None:
        self._paths: ReplicasPaths = {}
        for one in versions.values():
            scale = one.strategy.scale
            self._paths[one.api_version] = tuple(f"f:{key}" for key in keys(scale.spec)) if scale else None
        self._versions = versions

    def _scale(self, registry: Registry) -> ScalePaths:
        scale = self._versions[registry.resource.version].strategy.scale
        assert scale is not None
        return scale

    def to_scale(self, registry: Registry, obj: Obj) -> Obj:
        scale = self._scale(registry)
        try:
            if scale.replicas(obj) is None:
                raise InternalError.of(f'the spec replicas field "{scale.spec}" does not exist')
            return scale.to_scale(obj)
        except ScaleError as problem:
            raise PlainServerError(str(problem)) from None

    def live_scale(self, registry: Registry, obj: Obj) -> Obj:
        scale = self._scale(registry)
        try:
            made = scale.to_scale(obj)
            if scale.replicas(obj) is None:
                made["spec"] = {"replicas": _UNSET}
        except ScaleError as problem:
            raise PlainServerError(str(problem)) from None
        return made

    def scaled(self, registry: Registry, obj: Obj, scale: Obj) -> Obj:
        where, replicas = self._scale(registry), replicas_of(scale)
        if replicas == _UNSET:
            raise BadRequest(f'the spec replicas field "{where.spec}" cannot be empty')
        version = scale["metadata"].get("resourceVersion") or obj["metadata"]["resourceVersion"]
        return where.with_replicas({**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}, replicas)

    def check(self, scale: Obj, errs: Errors) -> None:
        """Do nothing: the object itself is validated."""

    def paths(self, registry: Registry) -> ReplicasPaths:
        return self._paths
