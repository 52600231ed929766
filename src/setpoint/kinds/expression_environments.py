"""The variables of expressions by location: admission policies, schemas, device selectors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from setpoint.meta.cel import (
    BOOL,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Environment,
    SchemaType,
    StructType,
    Type,
    kubernetes_environment,
    list_of,
    map_of,
    optional_of,
)
from setpoint.meta.cel.cost import Path
from setpoint.meta.cel.libraries.authorizer import AuthorizerValue, ResourceCheckValue
from setpoint.meta.cel.libraries.optionals import BINDINGS
from setpoint.meta.cel.libraries.patches import JSON_PATCH, resolve_patch_type
from setpoint.meta.cel.libraries.quantities import QuantityValue
from setpoint.meta.cel.schema import all_structs
from setpoint.meta.cel.sizes import SizeRange
from setpoint.meta.cel.types import ANY, Kind

_KIND = StructType("kubernetes.GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING})
_RESOURCE = StructType("kubernetes.GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING})
_USER = StructType(
    "kubernetes.UserInfo",
    {
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
)
_REQUEST = StructType(
    "kubernetes.AdmissionRequest",
    {
        "kind": _KIND.type,
        "resource": _RESOURCE.type,
        "subResource": STRING,
        "requestKind": _KIND.type,
        "requestResource": _RESOURCE.type,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER.type,
        "dryRun": BOOL,
        "options": DYN,
    },
)
_NAMESPACE_SPEC = StructType("kubernetes.NamespaceSpec", {"finalizers": list_of(STRING)})
_NAMESPACE_CONDITION = StructType(
    "kubernetes.NamespaceCondition",
    {"status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING, "reason": STRING},
)
_NAMESPACE_STATUS = StructType(
    "kubernetes.NamespaceStatus", {"conditions": list_of(_NAMESPACE_CONDITION.type), "phase": STRING}
)
_NAMESPACE_METADATA = StructType(
    "kubernetes.NamespaceMetadata",
    {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "labels": map_of(STRING, STRING),
        "annotations": map_of(STRING, STRING),
        "UID": STRING,
        "creationTimestamp": TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP,
        "generation": INT,
        "resourceVersion": STRING,
        "finalizers": list_of(STRING),
    },
)
_NAMESPACE = StructType(
    "kubernetes.Namespace",
    {"metadata": _NAMESPACE_METADATA.type, "spec": _NAMESPACE_SPEC.type, "status": _NAMESPACE_STATUS.type},
)
_STRUCTS = (
    _KIND,
    _RESOURCE,
    _USER,
    _REQUEST,
    _NAMESPACE_SPEC,
    _NAMESPACE_CONDITION,
    _NAMESPACE_STATUS,
    _NAMESPACE_METADATA,
    _NAMESPACE,
)


@cache
def _admission(
    has_params: bool, has_authorizer: bool, patch_types: bool, stored: bool, *, request_resource: bool = True
) -> Environment:
    variables = {"object": DYN, "oldObject": DYN, "namespaceObject": _NAMESPACE.type, "request": _REQUEST.type}
    if has_params:
        variables["params"] = DYN
    if has_authorizer:
        variables["authorizer"] = AuthorizerValue.TYPE
        if request_resource:
            variables["authorizer.requestResource"] = ResourceCheckValue.TYPE
    base = kubernetes_environment(stored)
    if patch_types:
        return base.extended(variables, _STRUCTS, resolve_patch_type, (JSON_PATCH,))
    return base.extended(variables, _STRUCTS)


def admission_environment(
    *,
    has_params: bool = False,
    has_authorizer: bool = False,
    patch_types: bool = False,
    stored: bool = False,
    variables: Mapping[str, Type] | None = None,
) -> Environment:
    """Return the environment of policies and match conditions.

    `variables` holds the types of `variables.<name>`, or None where composition variables do not exist."""
    base = _admission(has_params, has_authorizer, patch_types, stored)
    if variables is None:
        return base
    struct = StructType("kubernetes.variables", {name: variable_type(kind) for name, kind in variables.items()})
    return base.extended({"variables": struct.type}, (struct,))


def typed_admission_environment(
    kind: SchemaType | None, has_params: bool, params: SchemaType | None, variables: Mapping[str, Type]
) -> Environment:
    """Return the environment to type-check a policy for objects of one kind.

    `object`, `oldObject` and `params` have the types of their schemas, as far as these are known."""
    types = {"object": kind.type, "oldObject": kind.type} if kind is not None else {}
    if params is not None:
        types["params"] = params.type
    struct = StructType("kubernetes.variables", {name: variable_type(each) for name, each in variables.items()})
    base = _admission(has_params, True, False, True, request_resource=False)
    return base.extended({**types, "variables": struct.type}, (*all_structs(kind, params), struct))


def variable_type(result: Type) -> Type:
    """Return the type of a policy's variable in other expressions: messages and types of libraries become dyn."""
    if result.kind is Kind.LIST:
        return list_of(variable_type(result.parameters[0]))
    if result.kind is Kind.MAP:
        return map_of(variable_type(result.parameters[0]), variable_type(result.parameters[1]))
    if result.kind in (Kind.STRUCT, Kind.OPAQUE, Kind.TYPE, Kind.PARAM, Kind.ERROR):
        return DYN
    return result


def schema_environment(schema: SchemaType, *, optional_old: bool = False, stored: bool = False) -> Environment:
    """Return the environment of the rules in a schema: `self`, and `oldSelf`, which is optional with `optional_old`."""
    old = optional_of(schema.type) if optional_old else schema.type
    return kubernetes_environment(stored).extended({"self": schema.type, "oldSelf": old}, schema.structs)


_DEVICE = StructType(
    "kubernetes.DRADevice",
    {
        "driver": STRING,
        "allowMultipleAllocations": BOOL,
        "attributes": map_of(STRING, map_of(STRING, ANY)),
        "capacity": map_of(STRING, map_of(STRING, QuantityValue.TYPE)),
    },
)
_DOMAINS = 32
_DEVICE_SIZES: dict[Path, int] = {
    ("driver",): 63,
    ("allowMultipleAllocations",): 1,
    ("attributes",): _DOMAINS,
    ("attributes", "@keys"): 63,
    ("attributes", "@values"): _DOMAINS,
    ("attributes", "@values", "@keys"): 32,
    ("attributes", "@values", "@values"): 64,
    ("capacity",): _DOMAINS,
    ("capacity", "@keys"): 63,
    ("capacity", "@values"): _DOMAINS,
    ("capacity", "@values", "@keys"): 32,
    ("capacity", "@values", "@values"): 0,
    (): 0,
}


@cache
def device_environment() -> Environment:
    """Return the environment of device selectors: one variable, `device`, and `cel.bind`."""
    return kubernetes_environment().extended({"device": _DEVICE.type}, (_DEVICE,), libraries=(BINDINGS,))


def device_size(path: Path, _: Type) -> SizeRange | None:
    """Return the size of a part of a device; all attributes have the same, regardless of their names."""
    if not path or path[0] != "device":
        return None
    place = path[1:]
    if len(place) == 3 and place[:2] == ("attributes", "@values") and not place[2].startswith("@"):
        place = (*place[:2], "@values")
    most = _DEVICE_SIZES.get(place)
    return None if most is None else SizeRange(0, most)
