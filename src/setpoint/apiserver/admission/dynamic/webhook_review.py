"""The AdmissionReview that goes to a webhook, and what its answer means."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from dataclasses import dataclass, field
from typing import Any

from setpoint.apiserver.admission.dynamic.review_request import request_of
from setpoint.apiserver.admission.plugin import Attributes, Obj
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import kind_of, quote

_KNOWN = ("v1", "v1beta1")
_MOST_WARNINGS = 128


class MalformedReview(ValueError):
    """What came back is no answer to what was asked."""


class NoReview(ValueError):
    """What came back is not even a review."""


def review_version(hook: Obj) -> str:
    """Empty: the webhook knows none that we know."""
    return next((version for version in hook.get("admissionReviewVersions") or () if version in _KNOWN), "")


def review_of(attrs: Attributes, matched: Resource, obj: Obj | None, old: Obj | None, version: str, uid: str) -> Obj:
    request = request_of(attrs, matched)
    dry_run, options = request.pop("dryRun"), request.pop("options")
    return {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "request": {
            "uid": uid, **request, "object": obj, "oldObject": old, "dryRun": dry_run, "options": options,
        },
    }  # fmt: skip


@dataclass(slots=True)
class Verdict:
    allowed: bool
    result: Obj | None = None
    patch: bytes = b""
    patch_type: str = ""
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)


def verdict_of(answer: Obj, version: str, uid: str, mutating: bool) -> Verdict:
    """Raises MalformedReview, NoReview."""
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
    return Verdict(
        allowed=_typed(response, "allowed", bool, False),
        result=_typed(response, "status", dict, None),
        patch=patch,
        patch_type=str(patch_type or ""),
        warnings=[str(text) for text in _typed(response, "warnings", list, [])][:_MOST_WARNINGS],
        annotations={key: str(value) for key, value in _typed(response, "auditAnnotations", dict, {}).items()},
    )


def _check_kind(answer: Obj, version: str) -> None:
    kind, api_version = answer.get("kind") or "", answer.get("apiVersion") or ""
    if kind == "Status" and api_version == "v1":
        raise NoReview(f"converting (v1.Status) to ({version}.AdmissionReview): unknown conversion")
    if kind not in ("", "AdmissionReview"):
        where = 'in scheme "pkg/util/webhook/client.go:74"'
        raise NoReview(f"no kind {quote(kind)} is registered for version {quote(api_version)} {where}")


_GO_TYPES = {bool: "bool", str: "string", dict: "v1.Status", list: "[]string"}


def _typed(response: Obj, name: str, wanted: type, default: Any) -> Any:
    value = response.get(name)
    if value is None:
        return default
    if not isinstance(value, wanted):
        field = f"AdmissionResponse.response.{name} of type {_GO_TYPES[wanted]}"
        raise NoReview(f"json: cannot unmarshal {kind_of(value)} into Go struct field {field}")
    return value


def _patch(response: Obj) -> bytes:
    try:
        return b64decode(_typed(response, "patch", str, ""), validate=True)
    except (Error, ValueError):
        raise NoReview("illegal base64 data at input byte 0") from None


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


def rejection(webhook: str, result: Obj | None) -> ApiError:
    """The webhook's own Status, under its name."""
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
