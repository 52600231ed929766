"""ServiceAccount: the identity of a Pod; and TokenRequest, which requests its token and is never stored."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta.field import Errors, invalid, not_supported
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.objects import Obj

_ENFORCE_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"
_ENFORCE_WARNING = (
    f"metadata.annotations[{_ENFORCE_MOUNTABLE}]: deprecated in v1.32+; "
    "prefer separate namespaces to isolate access to mounted secrets"
)


class ServiceAccountStrategy(Strategy):
    columns = (NAME, AGE)
    returns_deleted = True

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        secrets = obj.get("secrets")
        if secrets:
            # Only the name of the reference is used.
            obj["secrets"] = [{"name": ref["name"]} if ref.get("name") else {} for ref in secrets]

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.prepare_for_create(obj, ctx)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return [_ENFORCE_WARNING] if _ENFORCE_MOUNTABLE in (obj["metadata"].get("annotations") or {}) else []

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if _ENFORCE_MOUNTABLE in (old["metadata"].get("annotations") or {}):
            return []
        return self.warnings_on_create(obj, ctx)


STRATEGY = ServiceAccountStrategy()


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


def _is_webhook(reference: Obj) -> bool:
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
