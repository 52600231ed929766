"""PodCertificateRequest: a node asks, for one of its pods, for a certificate of that pod's identity."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.certificates.pod_certificates import validate_issued
from setpoint.kinds.certificates.pod_keys import validate_request
from setpoint.kinds.columns import NAME
from setpoint.kinds.core.podspec.signers import is_kubernetes_signer, validate_signer_name
from setpoint.kinds.internal_form import internal_form
from setpoint.kinds.status_metadata import BareStatusStrategy
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import OMIT, Errors, invalid, not_supported, required, too_long
from setpoint.meta.names import dns1123_subdomain, qualified_name
from setpoint.meta.objectmeta import IMMUTABLE, validate_conditions

_OUTCOMES = ("Issued", "Denied", "Failed")
_MIN_SECONDS, _MAX_SECONDS, _MAX_SECONDS_KUBERNETES = 3600, 91 * 86400, 86400
_SPEC_FIELDS = {
    "signerName": "", "podName": "", "podUID": "", "serviceAccountName": "", "serviceAccountUID": "", "nodeName": "",
    "nodeUID": "", "maxExpirationSeconds": None, "PKIXPublicKey": None, "proofOfPossession": None,
    "stubPKCS10Request": None, "unverifiedUserAnnotations": None,
}  # fmt: skip
_UID_LIMIT = 128
_ANNOTATIONS_LIMIT = 256 * 1024


def _spec_column(name: str, description: str) -> Column:
    def cell(obj: Obj, now: datetime) -> str:
        return str(obj["spec"].get(name, ""))

    return Column(name[0].upper() + name[1:], cell, description=description)


def _state(obj: Obj, now: datetime) -> str:
    state = "Pending"
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") in _OUTCOMES:
            state = condition["type"]
    return state


def _annotations(obj: Obj, now: datetime) -> str:
    annotations = obj["spec"].get("unverifiedUserAnnotations") or {}
    return ",".join(f"{key}={annotations[key]}" for key in sorted(annotations)) or "<none>"


def outcome(obj: Obj) -> str:
    """Return `Issued`, `Denied`, `Failed`, or an empty text while it is pending."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") in _OUTCOMES and condition.get("status") == "True":
            return str(condition["type"])
    return ""


def _validate_annotations(annotations: dict[str, str], path: str, errs: Errors) -> None:
    for key in annotations:
        lower = key.lower()
        if not lower:
            errs.append(required(path))
        elif texts := qualified_name(lower):
            errs.extend(invalid(path, lower, text) for text in texts)
        elif "/" not in lower:
            errs.append(invalid(path, lower, 'must be a domain-prefixed key (such as "acme.io/foo")'))
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        errs.append(too_long(path, _ANNOTATIONS_LIMIT))


class PodCertificateRequestStrategy(Strategy):
    allow_unconditional_update = False
    has_status = True
    columns = (
        NAME,
        _spec_column("podName", "The pod that will use the certificate."),
        _spec_column("serviceAccountName", "The identity of the pod."),
        _spec_column("nodeName", "Where the pod runs."),
        _spec_column("signerName", "Who is asked to sign."),
        Column("State", _state, description="Pending, issued, denied or failed."),
        Column("UnverifiedUserAnnotations", _annotations, description="What the pod's author tells the signer."),
    )
    field_labels = frozenset({"metadata.name", "spec.signerName", "spec.podName", "spec.nodeName"})

    def __init__(self) -> None:
        self.subresources = {"status": PodCertificateRequestStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        spec = obj["spec"]
        if spec.get("maxExpirationSeconds") is None:
            spec["maxExpirationSeconds"] = _MAX_SECONDS_KUBERNETES

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec = obj["spec"]
        signer = spec.get("signerName", "")
        validate_signer_name(signer, "spec.signerName", errs)
        if annotations := spec.get("unverifiedUserAnnotations"):
            _validate_annotations(annotations, "spec.unverifiedUserAnnotations", errs)
        for what in ("pod", "serviceAccount", "node"):
            name, uid = spec.get(f"{what}Name", ""), spec.get(f"{what}UID", "")
            errs.extend(invalid(f"spec.{what}Name", name, text) for text in dns1123_subdomain(name))
            if not uid:
                errs.append(invalid(f"spec.{what}UID", uid, "must not be empty"))
            if len(uid.encode()) > _UID_LIMIT:
                errs.append(too_long(f"spec.{what}UID", _UID_LIMIT))
        longest = _MAX_SECONDS_KUBERNETES if is_kubernetes_signer(signer) else _MAX_SECONDS
        seconds = spec["maxExpirationSeconds"]
        if not _MIN_SECONDS <= seconds <= longest:
            text = f"must be in the range [{_MIN_SECONDS}, {longest}]"
            errs.append(invalid("spec.maxExpirationSeconds", seconds, text))
        if spec.get("stubPKCS10Request"):
            validate_request(spec, errs)
        else:
            text = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
            errs.append(invalid("spec", OMIT, text))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        if obj["spec"] != old["spec"]:
            errs.append(invalid("spec", internal_form(obj["spec"], _SPEC_FIELDS), IMMUTABLE))

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {f"spec.{name}": obj["spec"].get(name, "") for name in ("signerName", "podName", "nodeName")}


class PodCertificateRequestStatusStrategy(BareStatusStrategy):
    """The `/status`, where signers respond. The server checks whether the caller may sign."""

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status, old_status = obj.get("status") or {}, old.get("status") or {}
        conditions = status.get("conditions") or []
        decided = 0
        for i, condition in enumerate(conditions):
            at, kind = f"status.conditions.[{i}]", condition.get("type", "")
            if kind not in _OUTCOMES:
                errs.append(not_supported(f"{at}.type", kind, _OUTCOMES))
                continue
            decided += 1
            if decided > 1:
                text = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
                errs.append(invalid(f"{at}.type", kind, text))
            if condition.get("status") != "True":
                errs.append(not_supported(f"{at}.status", condition.get("status", ""), ("True",)))
        validate_conditions(conditions, "status.conditions", errs)
        if errs:
            return
        wanted = outcome(obj)
        if outcome(old):
            if status != old_status:
                text = "immutable after PodCertificateRequest is issued, denied, or failed"
                errs.append(invalid("status", OMIT, text))
        elif wanted in ("Denied", "Failed"):
            if any(key != "conditions" for key in status):
                text = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
                errs.append(invalid("status", OMIT, text))
        elif wanted == "Issued":
            validate_issued(status, obj["spec"], ctx.now, errs)
        elif status != old_status:
            text = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
            errs.append(invalid("status", OMIT, text))


STRATEGY = PodCertificateRequestStrategy()
