"""Decodes request bodies into typed objects, with upstream's messages for those that are invalid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from setpoint.apiserver.negotiate import JSON, PROTOBUF, body_type
from setpoint.apiserver.preparation import OTHER_NAMESPACE
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.meta.body import BodyError, parse_json, parse_yaml, plain_numbers, type_meta
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import BadRequest, Invalid
from setpoint.meta.field import Errors, invalid
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Type, has_free_parts
from setpoint.wire.message import ObjectRequest

# Versions that upstream can decode although it no longer serves them: the same kinds in older versions.
_READABLE = {
    ("apps", "v1beta1"),
    ("apps", "v1beta2"),
    ("batch", "v1beta1"),
    ("policy", "v1beta1"),
    ("autoscaling", "v2beta1"),
    ("autoscaling", "v2beta2"),
    ("networking.k8s.io", "v1beta1"),
    ("rbac.authorization.k8s.io", "v1beta1"),
    ("rbac.authorization.k8s.io", "v1alpha1"),
    ("storage.k8s.io", "v1beta1"),
    ("coordination.k8s.io", "v1beta1"),
    ("discovery.k8s.io", "v1beta1"),
    ("events.k8s.io", "v1beta1"),
    ("scheduling.k8s.io", "v1beta1"),
    ("certificates.k8s.io", "v1beta1"),
    ("node.k8s.io", "v1beta1"),
    ("authentication.k8s.io", "v1beta1"),
    ("authorization.k8s.io", "v1beta1"),
    ("admissionregistration.k8s.io", "v1beta1"),
    ("flowcontrol.apiserver.k8s.io", "v1beta3"),
}
_KNOWN: set[tuple[str, str, str]] = set()


def _known(group: str, version: str, kind: str) -> bool:
    if not _KNOWN:
        for resource in RESOURCES:
            _KNOWN.add((resource.group, resource.version, resource.kind))
            _KNOWN.add((resource.group, resource.version, resource.list_kind))
            for part in resource.subresources:
                if part.kind:
                    group_of, version_of = part.group or resource.group, part.version or resource.version
                    _KNOWN.add((group_of, version_of, part.kind))
    return (group, version, kind) in _KNOWN


def _summary(data: bytes) -> str:
    """Return the start of a body for a message: as text if it looks like JSON, else as hex."""
    if not data:
        return "<empty>"
    shown, more = data[:30], " ..." if len(data) > 30 else ""
    return (shown.decode("utf-8", "replace") if data.startswith(b"{") else shown.hex()) + more


def parse(ctx: RequestContext, group: str, version: str, kind: str, type_: Type) -> tuple[Any, list[str]]:
    """Return the body as plain values, and its duplicate fields."""
    request = ctx.request
    if isinstance(request, ObjectRequest):
        return request.value, []
    data = request.body
    media_type = body_type(ctx.request.headers.get("content-type", ""), protobuf=bool(type_.go))
    if media_type == PROTOBUF:
        # Imported with the first such body: most servers never get one.
        from setpoint.apiserver.protobuf_bodies import read_protobuf

        return read_protobuf(data, group, version, kind, type_), []
    try:
        value, duplicates = parse_json(data) if media_type == JSON else parse_yaml(data)
        return plain_numbers(data, value) if has_free_parts(type_) else value, duplicates
    except BodyError as error:
        why = f"couldn't get version/kind; json parse error: {error}" if media_type == JSON else str(error)
        raise unrecognized(data, kind, why) from None


def unrecognized(data: bytes, kind: str, why: str) -> BadRequest:
    return BadRequest(f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(data)})")


def read_object(ctx: RequestContext, group: str, version: str, kind: str, type_: Type) -> Obj:
    """Return the body as an object of that kind, typed and pruned, without kind and apiVersion.

    A body may omit kind and apiVersion; if it has them, they must match."""
    value, strict = parse(ctx, group, version, kind, type_)
    return check_object(ctx, value, strict, group, version, kind, type_)


def check_object(
    ctx: RequestContext, value: Any, strict: list[str], group: str, version: str, kind: str, type_: Type
) -> Obj:
    is_custom = not type_.go
    if value is None:
        value = {}
    expected = f"{group}/{version}" if group else version
    try:
        given_version, given_kind = type_meta(value)
    except DecodeError as error:
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse "
            f"error: {error} ({_summary(ctx.request.body)})"
        ) from None
    if is_custom and not given_kind:
        text = "{}" if isinstance(ctx.request, ObjectRequest) else ctx.request.body.decode("utf-8", "replace")
        raise unrecognized(ctx.request.body, kind, f"Object 'Kind' is missing in '{text}'")
    if not is_custom:
        given_version, given_kind = given_version or expected, given_kind or kind
    if given_version.count("/") > 1:
        raise BadRequest(
            f"the object provided is unrecognized (must be of type {kind}): unexpected GroupVersion string: "
            f"{given_version} ({_summary(ctx.request.body)})"
        )
    given_group, _, short_version = given_version.rpartition("/")
    if is_custom and given_version != expected:
        raise BadRequest(
            f"the API version in the data ({given_version}) does not match the expected API version ({expected})"
        )
    if is_custom and given_kind != kind:
        raise wrong_kind(value, given_version, given_kind, expected, kind)
    if (given_version, given_kind) != (expected, kind):
        _refuse_kind(given_group, short_version, given_kind, group, version, kind)
    unknown: list[str] = []
    validation = ctx.option("fieldValidation") or "Warn"
    raw = _json_text(ctx)
    try:
        # With the duplicate fields of a JSON text, all findings are in the order of the document.
        obj: Obj = decode(
            type_,
            value,
            strict=unknown if validation != "Ignore" else None,
            raw=raw,
            duplicates=tuple(strict),
            emptied=ctx.emptied,
        )
    except DecodeError as error:
        if isinstance(ctx.request, ObjectRequest):
            # It may contain tuples or other values that JSON turns into the right types: decode its JSON text.
            ctx.request = ctx.request.as_sent()
            return read_object(ctx, group, version, kind, type_)
        raise BadRequest(f'{given_kind} in version "{short_version}" cannot be handled as a {kind}: {error}') from None
    found = unknown if raw is not None else [*strict, *unknown]
    report_strict(ctx, found, f'{given_kind} in version "{short_version}" cannot be handled as a {kind}: ')
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    detect_cleared_managed_fields(ctx, value)
    return obj


def wrong_kind(value: Obj, given_version: str, given_kind: str, expected: str, kind: str) -> Invalid:
    """Return the error for a custom object that has another kind or apiVersion."""
    errs: Errors = []
    if given_kind != kind:
        errs.append(invalid("kind", given_kind, f"must be {kind}"))
    if given_version != expected:
        errs.append(invalid("apiVersion", given_version, f"must be {expected}"))
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return Invalid.of(given_version.rpartition("/")[0], given_kind, name if isinstance(name, str) else "", errs)


def _json_text(ctx: RequestContext) -> bytes | None:
    """Return the body if it is JSON text, because the spelling of numbers matters; None otherwise."""
    if isinstance(ctx.request, ObjectRequest):
        return None
    return ctx.request.body if body_type(ctx.request.headers.get("content-type", "")) == JSON else None


def detect_cleared_managed_fields(ctx: RequestContext, value: Obj) -> None:
    meta = value.get("metadata")
    ctx.clears_managed_fields = isinstance(meta, dict) and meta.get("managedFields") in ([], [{}])


def report_strict(ctx: RequestContext, found: list[str], prefix: str) -> None:
    """Report unknown and duplicate fields as an error, as warnings, or not at all, as `fieldValidation` says."""
    validation = ctx.option("fieldValidation") or "Warn"
    if not found or validation == "Ignore":
        return
    if validation == "Strict":
        raise BadRequest(f"{prefix}strict decoding error: {', '.join(found)}")
    for text in found:
        ctx.warn(text)


def _refuse_kind(given_group: str, given_version: str, given_kind: str, group: str, version: str, kind: str) -> None:
    given = f"{given_group}/{given_version}" if given_group else given_version
    head = f'{given_kind} in version "{given_version}" cannot be handled as a {kind}: '
    if given_kind == kind and given_group == group and (given_group, given_version) in _READABLE:
        expected = f"{group}/{version}" if group else version
        raise BadRequest(f"the API version in the data ({given}) does not match the expected API version ({expected})")
    if given_kind == kind and given_group == group and _known(given_group, given_version, given_kind):
        expected = f"{group}/{version}" if group else version
        raise BadRequest(f"the API version in the data ({given}) does not match the expected API version ({expected})")
    if _known(given_group, given_version, given_kind):
        internal = group.split(".")[0] or "core"
        raise BadRequest(f"{head}converting ({given_version}.{given_kind}) to ({internal}.{kind}): unknown conversion")
    raise BadRequest(head + unregistered(given_kind, given))


def kind_problem(resource: Resource, api_version: str, kind: str) -> str:
    """Return why an object of this kind cannot be the result of a patch of `resource`, or "" if it can."""
    if (api_version, kind) == (resource.api_version, resource.kind):
        return ""
    if api_version.count("/") > 1:
        return f"unexpected GroupVersion string: {api_version}"
    group, _, version = api_version.rpartition("/")
    if _known(group, version, kind):
        internal = resource.group.split(".")[0] or "core"
        return f"converting ({version}.{kind}) to ({internal}.{resource.kind}): unknown conversion"
    return unregistered(kind, api_version)


def unregistered(kind: str, api_version: str) -> str:
    return f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/api/legacyscheme/scheme.go:30"'


def read_resource(ctx: RequestContext, resource: Resource) -> Obj:
    return read_object(ctx, resource.group, resource.version, resource.kind, resource.type)


def check_name(ctx: RequestContext, obj: Obj) -> None:
    """Check that the object is the one that the URL names. Raises BadRequest."""
    meta, target = obj["metadata"], ctx.target
    namespace = meta.get("namespace", "")
    if namespace and target.namespace and target.resource != "namespaces" and namespace != target.namespace:
        raise BadRequest(OTHER_NAMESPACE)
    name = meta.get("name", "")
    if not name:
        raise BadRequest(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if name != target.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({target.name})")


def json_object(ctx: RequestContext) -> dict[str, Any]:
    """Return the body of a request to one of our own endpoints, a JSON object; empty if there is none. Raises
    BadRequest."""
    try:
        body = orjson.loads(ctx.request.body or b"{}")
    except orjson.JSONDecodeError:
        raise BadRequest("the body is not JSON") from None
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object")
    return body


def check_fields(body: dict[str, Any], known: Mapping[str, type | tuple[type, ...]]) -> None:
    """Check the names and types of the fields of a request to one of our own endpoints. Raises BadRequest."""
    for name, value in body.items():
        if name not in known:
            raise BadRequest(f"unknown field {name[:63]}; known are {', '.join(known)}")
        if not isinstance(value, known[name]) or (isinstance(value, bool) and known[name] is not bool):
            raise BadRequest(f"{name} has the wrong type")
