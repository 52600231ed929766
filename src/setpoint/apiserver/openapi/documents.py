"""OpenAPI documents: one of OpenAPI 3 for each group and version, one of OpenAPI 2 for everything."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import orjson

from setpoint.apiserver.openapi.operations import (
    JSON,
    PROTOBUF,
    YAML,
    DefinitionOf,
    DocumentedResource,
    Operation,
    Parameter,
    ResourceOperations,
    group_tag,
)
from setpoint.apiserver.openapi.schemas import VERSION_INFO, Schema, SchemaWriter
from setpoint.apiserver.version import VERSION
from setpoint.meta.schema import Type

Document = dict[str, Any]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_INFO = {"title": "Kubernetes", "version": f"{VERSION['major']}.{VERSION['minor']}"}
_BEARER = {"BearerToken": {"type": "apiKey", "description": "A bearer token.", "name": "authorization", "in": "header"}}
_REASONS = {"200": "OK", "201": "Created", "202": "Accepted"}
_UNAUTHORIZED = {"description": "Unauthorized"}
_ALL_TYPES = (JSON, YAML, PROTOBUF)
# Clients search each operation for these parameters to detect features, and do not follow references.
_NEVER_SHARED = frozenset({"name", "fieldValidation", "dryRun"})


def core_operations() -> Iterator[tuple[str, str, Operation]]:
    """Yield (document, path, operation) of everything that is no resource."""
    yield (
        ".well-known/openid-configuration",
        "/.well-known/openid-configuration/",
        Operation(
            "get",
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
            "Read how tokens of service accounts are issued.",
            answers=(("200", ""),),
            produces=(JSON,),
            consumes=(),
        ),
    )
    yield "api", "/api/", _discovery("getCoreAPIVersions", "core", "Read the versions of the core API.", "APIVersions")
    yield "apis", "/apis/", _discovery("getAPIVersions", "apis", "Read the groups of the API.", "APIGroupList")
    yield (
        "openid/v1/jwks",
        "/openid/v1/jwks/",
        Operation(
            "get",
            "getServiceAccountIssuerOpenIDKeyset",
            "openid",
            "Read the keys that sign tokens of service accounts.",
            answers=(("200", ""),),
            produces=("application/jwk-set+json",),
            consumes=(),
        ),
    )
    yield (
        "version",
        "/version/",
        Operation(
            "get",
            "getCodeVersion",
            "version",
            "Read the version of this server.",
            answers=(("200", VERSION_INFO),),
            produces=(JSON,),
            consumes=(JSON,),
        ),
    )


def group_operation(group: str) -> tuple[str, Operation]:
    tag = group_tag(group)
    name = tag[:1].upper() + tag[1:]
    return f"/apis/{group}/", _discovery(f"get{name}APIGroup", tag, "Read the versions of this group.", "APIGroup")


def version_operation(group: str, version: str) -> tuple[str, Operation]:
    tag = group_tag(group)
    name = tag[:1].upper() + tag[1:] + version[:1].upper() + version[1:]
    path = f"/apis/{group}/{version}/" if group else f"/api/{version}/"
    description = "Read which resources this version has."
    return path, _discovery(f"get{name}APIResources", f"{tag}_{version}", description, "APIResourceList")


def _discovery(id_: str, tag: str, description: str, kind: str) -> Operation:
    return Operation(
        "get", id_, tag, description, answers=(("200", _META + kind),), produces=_ALL_TYPES, consumes=_ALL_TYPES
    )


def document_v3(
    operations: Iterable[tuple[str, list[Operation]]],
    group_version: str = "",
    definitions: Iterable[str] = (),
    custom: Mapping[str, Type | Schema] | None = None,
) -> Document:
    """Return a document with these paths and all definitions that they refer to."""
    writer = SchemaWriter(v3=True, custom=custom, group_version=group_version)
    parameters: dict[Parameter, Any] = {}
    paths = {path: _path_v3(found, writer, parameters) for path, found in sorted(operations)}
    components: dict[str, Any] = {}
    schemas = writer.schemas(definitions)
    if schemas:
        components["schemas"] = schemas
    components["securitySchemes"] = _BEARER
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": components}


def document_v2(
    operations: Iterable[tuple[str, list[Operation]]],
    definitions: Iterable[str] = (),
    custom: Mapping[str, Type | Schema] | None = None,
) -> Document:
    """Return the OpenAPI 2 document with these paths and all definitions that they refer to."""
    writer = SchemaWriter(v3=False, custom=custom)
    parameters = _SharedParameters(writer)
    paths = {path: _path_v2(found, writer, parameters) for path, found in sorted(operations)}
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": paths,
        "definitions": writer.schemas(definitions),
        "parameters": dict(sorted(parameters.shared.items())),
        "securityDefinitions": _BEARER,
        "security": [{"BearerToken": []}],
    }


def operations_of(
    served: Iterable[DocumentedResource], definition_of: DefinitionOf
) -> Iterator[tuple[str, list[Operation]]]:
    for one in served:
        yield from ResourceOperations(one, definition_of).paths()


# -- OpenAPI 3 ----------------------------------------------------------------------------------------------------


def _path_v3(operations: list[Operation], writer: SchemaWriter, known: dict[Parameter, Any]) -> dict[str, Any]:
    common = _common(operations)
    result: dict[str, Any] = {op.method: _operation_v3(op, common, writer, known) for op in operations}
    if common:
        result["parameters"] = [_parameter_v3(one, known) for one in _in_order(common)]
    return result


def _operation_v3(
    op: Operation, common: set[Parameter], writer: SchemaWriter, known: dict[Parameter, Any]
) -> dict[str, Any]:
    result: dict[str, Any] = {"tags": [op.tag], "description": op.description, "operationId": op.id}
    own = [_parameter_v3(one, known) for one in _in_order(op.parameters) if one not in common]
    if own:
        result["parameters"] = own
    if op.body:
        body_content = {"schema": writer.ref(op.body)}
        body: dict[str, Any] = {"content": dict.fromkeys(sorted(op.consumes), body_content)}
        if op.body_required:
            body["required"] = True
        result["requestBody"] = body
    responses: dict[str, Any] = {}
    for code, definition in op.answers:
        content = {"schema": writer.ref(definition) if definition else {"type": "string"}}
        contents = dict.fromkeys(sorted(op.produces), content)
        responses[code] = {"description": _REASONS[code], "content": contents}
    responses["401"] = _UNAUTHORIZED
    result["responses"] = responses
    _add_kind(result, op)
    return result


def _parameter_v3(one: Parameter, known: dict[Parameter, Any]) -> dict[str, Any]:
    result: dict[str, Any] | None = known.get(one)
    if result is None:
        result = {"name": one.name, "in": one.place, "description": one.description}
        if one.place == "path":
            result["required"] = True
        result["schema"] = {"type": one.type, "uniqueItems": True}
        known[one] = result
    return result


# -- OpenAPI 2 ----------------------------------------------------------------------------------------------------


class _SharedParameters:
    """Parameters of several operations, which are written once and referred to."""

    def __init__(self, writer: SchemaWriter) -> None:
        self.shared: dict[str, Any] = {}
        self._writer = writer
        self._known: dict[Any, dict[str, Any]] = {}

    def of(self, one: Parameter) -> dict[str, Any]:
        result = self._known.get(one)
        if result is None:
            result = {"uniqueItems": True, "type": one.type, "description": one.description}
            result |= {"name": one.name, "in": one.place}
            if one.place == "path":
                result["required"] = True
            if one.name not in _NEVER_SHARED:
                result = self._share(result)
            self._known[one] = result
        return result

    def body(self, definition: str, required: bool) -> dict[str, Any]:
        key = (definition, required)
        result = self._known.get(key)
        if result is None:
            result = {"name": "body", "in": "body"}
            if required:
                result["required"] = True
            result["schema"] = self._writer.ref(definition)
            if definition.startswith("io.k8s.apimachinery"):
                result = self._share(result)
            self._known[key] = result
        return result

    def _share(self, result: dict[str, Any]) -> dict[str, Any]:
        digest = urlsafe_b64encode(blake2b(orjson.dumps(result), digest_size=6).digest()).decode()
        name = f"{result['name']}-{digest}"
        self.shared[name] = result
        return {"$ref": f"#/parameters/{name}"}


def _path_v2(operations: list[Operation], writer: SchemaWriter, parameters: _SharedParameters) -> dict[str, Any]:
    common = _common(operations)
    result: dict[str, Any] = {op.method: _operation_v2(op, common, writer, parameters) for op in operations}
    if common:
        result["parameters"] = [parameters.of(one) for one in _in_order(common)]
    return result


def _operation_v2(
    op: Operation, common: set[Parameter], writer: SchemaWriter, parameters: _SharedParameters
) -> dict[str, Any]:
    result: dict[str, Any] = {"description": op.description}
    if op.consumes:
        result["consumes"] = op.consumes
    result |= {"produces": op.produces, "schemes": ["https"], "tags": [op.tag], "operationId": op.id}
    own: list[Any] = [(one.name, one.place, parameters.of(one)) for one in op.parameters if one not in common]
    if op.body:
        own.append(("body", "body", parameters.body(op.body, op.body_required)))
    if own:
        result["parameters"] = [one[2] for one in sorted(own, key=lambda one: (one[0], one[1]))]
    responses: dict[str, Any] = {}
    for code, definition in op.answers:
        schema = writer.ref(definition) if definition else {"type": "string"}
        responses[code] = {"description": _REASONS[code], "schema": schema}
    responses["401"] = _UNAUTHORIZED
    result["responses"] = responses
    _add_kind(result, op)
    return result


# -- both ---------------------------------------------------------------------------------------------------------


def _common(operations: list[Operation]) -> set[Parameter]:
    common = set(operations[0].parameters) if operations else set()
    for op in operations[1:]:
        common &= set(op.parameters)
    return common


def _in_order(parameters: Iterable[Parameter]) -> list[Parameter]:
    return sorted(parameters, key=lambda one: (one.name, one.place))


def _add_kind(result: dict[str, Any], op: Operation) -> None:
    if op.action:
        group, version, kind = op.kind
        result["x-kubernetes-action"] = op.action
        result["x-kubernetes-group-version-kind"] = {"group": group, "version": version, "kind": kind}
