"""`/scale` of custom kinds: the definition says where the replicas are."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.apiserver.custom.resource import CustomResource
from setpoint.apiserver.handlers.scale import ReplicasPaths
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.apiextensions.printer_columns import printer_columns
from setpoint.kinds.apiextensions.scale_rules import ScaleError, ScalePaths, keys
from setpoint.kinds.autoscaling.scale_mapping import replicas_of
from setpoint.meta.errors import BadRequest, InternalError, PlainServerError
from setpoint.meta.field import Errors

_UNSET = -(2**31)
"""Stands for replicas that the object does not have, so that a patch that sets them to 0 can be told from none."""


_COLUMNS = (
    {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas", "description": "Replicas that are wanted."},
    {"name": "Available", "type": "integer", "jsonPath": ".status.replicas", "description": "Replicas that are there."},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since creation."},
)


class CustomScaling:
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
        """The object itself is checked, as after any write."""

    def paths(self, registry: Registry) -> ReplicasPaths:
        return self._paths
