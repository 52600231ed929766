"""TokenRequest: a ServiceAccount's token, asked for. It is never stored."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.strategy import Obj
from setpoint.meta.field import Errors, invalid, not_supported
from setpoint.meta.names import dns1123_subdomain

_HOUR = 3600
_MIN_SECONDS, _MAX_SECONDS = 600, 2**32
_ATTESTATION = "admissionReviewAPIGroups"
_WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


def default_token_request(request: Obj) -> None:
    spec = request.setdefault("spec", {})
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = _HOUR


def validate_token_request(request: Obj, errs: Errors) -> None:
    spec = request.get("spec") or {}
    seconds = spec.get("expirationSeconds", 0)
    path = "spec.expirationSeconds"
    if seconds < _MIN_SECONDS:
        errs.append(invalid(path, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > _MAX_SECONDS:
        errs.append(invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"))
    attestations = spec.get("attestations")
    if _is_webhook(spec.get("boundObjectRef") or {}):
        audiences = spec.get("audiences")
        if len(audiences or ()) != 1:
            errs.append(invalid("spec.audiences", audiences, "must be length 1 when bound to a webhook config"))
        _validate_attestations(attestations, errs)
    elif attestations:
        text = "attestations may only be specified with a webhook bound object reference"
        # This error is reported alone, regardless of others.
        errs[:] = [invalid("spec.attestations", attestations, text)]


def _is_webhook(reference: dict[str, Any]) -> bool:
    return reference.get("kind") in _WEBHOOKS and reference.get("apiVersion") == "admissionregistration.k8s.io/v1"


def _validate_attestations(attestations: dict[str, list[str]] | None, errs: Errors) -> None:
    path = "spec.attestations"
    if len(attestations or ()) != 1:
        text = "webhook bound requests require exactly one admissionReviewAPIGroups attestation"
        errs.append(invalid(path, attestations, text))
        return
    for key, values in (attestations or {}).items():
        at = f"{path}[{key}]"
        if key != _ATTESTATION:
            errs.append(not_supported(at, key, (_ATTESTATION,)))
        elif len(values or ()) != 1:
            errs.append(invalid(at, values, "must specify a single value"))
        elif not values[0]:
            errs.append(invalid(f"{at}[0]", "", "may not be an empty string"))
        elif values[0] != "*":
            for text in dns1123_subdomain(values[0]):
                errs.append(invalid(f"{at}[0]", values[0], f"must specify a valid API Group: {text}"))
