"""AdmissionReview: the request as policies and webhooks get it, and the response of a webhook."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from dataclasses import dataclass, field
from typing import Any

from setpoint.apiserver.admission.dynamic.served_resources import Kind, kind_of
from setpoint.apiserver.admission.plugin import Attributes
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import kind_of as json_kind
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_REVIEW_VERSIONS = ("v1", "v1beta1")
_MAX_WARNINGS = 128
_GO_TYPES = {bool: "bool", str: "string", dict: "v1.Status", list: "[]string"}


def namespace_of(attrs: Attributes) -> str:
    """Return the namespace of a write; a Namespace counts as being in itself."""
    if not attrs.namespace and attrs.is_("", "namespaces", attrs.subresource):
        return attrs.name
    return attrs.namespace


def _options(attrs: Attributes) -> Obj | None:
    kind = _OPTIONS.get(attrs.operation)
    if kind is None:
        return None
    options: Obj = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if attrs.operation == "DELETE":
        return options | dict(attrs.delete_options)
    for name in ("dryRun", "fieldManager", "fieldValidation"):
        values = [value for value in attrs.query.get(name, ()) if value]
        if values:
            options[name] = values if name == "dryRun" else values[0]
    return options


def _user(attrs: Attributes) -> Obj:
    user = attrs.user
    info = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(user.extra[key]) for key in sorted(user.extra)},
    }
    return {key: value for key, value in info.items() if value}


def _kind(kind: Kind) -> Obj:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(resource: Resource) -> Obj:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def request_of(attrs: Attributes, matched: Resource) -> Obj:
    """Return the AdmissionRequest without objects; `matched` is the resource as which the request matched, which need
    not be the requested one."""
    request: Obj = {"kind": _kind(kind_of(matched, attrs.subresource)), "resource": _resource(matched)}
    if attrs.subresource:
        request["subResource"] = attrs.subresource
    request["requestKind"] = _kind(kind_of(attrs.resource, attrs.subresource))
    request["requestResource"] = _resource(attrs.resource)
    if attrs.subresource:
        request["requestSubResource"] = attrs.subresource
    if attrs.name:
        request["name"] = attrs.name
    namespace = namespace_of(attrs)
    if namespace:
        request["namespace"] = namespace
    request["operation"] = attrs.operation
    request["userInfo"] = _user(attrs)
    request["dryRun"] = attrs.dry_run
    request["options"] = _options(attrs)
    return request


class MalformedReview(ValueError):
    """The response does not belong to the request, or contradicts itself."""


class UndecodableReview(ValueError):
    """The response is no AdmissionReview."""


def review_version(hook: Obj) -> str:
    """Return the first version of the webhook that this server supports, or "" if there is none."""
    return next((version for version in hook.get("admissionReviewVersions") or () if version in _REVIEW_VERSIONS), "")


def build_review(attrs: Attributes, matched: Resource, obj: Obj | None, old: Obj | None, version: str, uid: str) -> Obj:
    """Return the AdmissionReview to send."""
    request = request_of(attrs, matched)
    dry_run, options = request.pop("dryRun"), request.pop("options")
    return {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "request": {
            "uid": uid,
            **request,
            "object": obj,
            "oldObject": old,
            "dryRun": dry_run,
            "options": options,
        },
    }


@dataclass(slots=True)
class ReviewResponse:
    """The decoded response of a webhook."""

    allowed: bool
    result: Obj | None = None
    patch: bytes = b""
    patch_type: str = ""
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)


def read_response(answer: Obj, version: str, uid: str, mutating: bool) -> ReviewResponse:
    """Decode and check the response of a webhook. Raises MalformedReview, UndecodableReview."""
    _check_kind(answer, version)
    response = answer.get("response")
    if not isinstance(response, dict):
        raise MalformedReview("webhook response was absent")
    strict = version == "v1"
    if strict:
        if response.get("uid", "") != uid:
            raise MalformedReview(f"expected response.uid={quote(uid)}, got {quote(str(response.get('uid', '')))}")
        group, _, given = str(answer.get("apiVersion", "")).rpartition("/")
        if (group, given, answer.get("kind")) != ("admission.k8s.io", "v1", "AdmissionReview"):
            got = f"{group}/{given}, Kind={answer.get('kind', '')}"
            raise MalformedReview(f"expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}")
    patch, patch_type = _patch(response), response.get("patchType")
    if strict:
        _check_patch(patch, patch_type, mutating)
    elif mutating and patch:
        patch_type = "JSONPatch"
    elif not mutating:
        patch = b""
    return ReviewResponse(
        allowed=_typed(response, "allowed", bool, False),
        result=_typed(response, "status", dict, None),
        patch=patch,
        patch_type=str(patch_type or ""),
        warnings=[str(text) for text in _typed(response, "warnings", list, [])][:_MAX_WARNINGS],
        annotations={key: str(value) for key, value in _typed(response, "auditAnnotations", dict, {}).items()},
    )


def _check_kind(answer: Obj, version: str) -> None:
    kind, api_version = answer.get("kind") or "", answer.get("apiVersion") or ""
    if kind == "Status" and api_version == "v1":
        raise UndecodableReview(f"converting (v1.Status) to ({version}.AdmissionReview): unknown conversion")
    if kind not in ("", "AdmissionReview"):
        where = 'in scheme "pkg/util/webhook/client.go:74"'
        raise UndecodableReview(f"no kind {quote(kind)} is registered for version {quote(api_version)} {where}")


def _typed(response: Obj, name: str, wanted: type, default: Any) -> Any:
    value = response.get(name)
    if value is None:
        return default
    if not isinstance(value, wanted):
        field = f"AdmissionResponse.response.{name} of type {_GO_TYPES[wanted]}"
        raise UndecodableReview(f"json: cannot unmarshal {json_kind(value)} into Go struct field {field}")
    return value


def _patch(response: Obj) -> bytes:
    try:
        return b64decode(_typed(response, "patch", str, ""), validate=True)
    except (Error, ValueError):
        raise UndecodableReview("illegal base64 data at input byte 0") from None


def _check_patch(patch: bytes, patch_type: Any, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise MalformedReview("validating webhook may not return response.patch")
        if patch_type is not None:
            raise MalformedReview("validating webhook may not return response.patchType")
    elif patch and patch_type is None:
        raise MalformedReview("webhook returned response.patch but not response.patchType")
    elif not patch and patch_type is not None:
        raise MalformedReview("webhook returned response.patchType but not response.patch")
    elif patch_type == "":
        raise MalformedReview('webhook returned invalid response.patchType of ""')


def denial(webhook: str, result: Obj | None) -> ApiError:
    """Return the webhook's Status as an error that names the webhook."""
    status = result or {}
    by, code, reason = f"admission webhook {quote(webhook)} denied the request", status.get("code"), ""
    reason = str(status.get("reason") or "")
    why = str(status.get("message") or "") or reason
    details = status.get("details")
    return ApiError(
        f"{by}: {why}" if why else f"{by} without explanation",
        code=code if type(code) is int and 400 <= code <= 599 else 400,
        reason=reason,
        details=details if isinstance(details, dict) else None,
    )
