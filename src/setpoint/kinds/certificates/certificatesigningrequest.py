"""CertificateSigningRequest: the requester is recorded at creation; then only approval and status may change it."""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime

from setpoint.kinds.cell_texts import NONE
from setpoint.kinds.certificates.requests import certificate_error, request_error
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.shared_names import validate_signer_name
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_supported, required
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time, human_duration

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
_DECISIONS = (APPROVED, DENIED, FAILED)
_STATUSES = ("False", "True", "Unknown")
Conditions = list[Obj]


def conditions_of(obj: Obj | None) -> Conditions:
    return ((obj or {}).get("status") or {}).get("conditions") or []


def _of_type(conditions: Conditions, kind: str) -> Conditions:
    return [condition for condition in conditions if condition.get("type", "") == kind]


def _retain_instances(obj: Obj, old: Obj, kind: str) -> None:
    """Restore the conditions of this type from `old`, unless their number changed, which validation reports."""
    before = _of_type(conditions_of(old), kind)
    conditions = conditions_of(obj)
    places = [i for i, condition in enumerate(conditions) if condition.get("type", "") == kind]
    if len(before) == len(places):
        for i, condition in zip(places, before):
            conditions[i] = dict(condition)


def stamp(obj: Obj, old: Obj, now: datetime) -> None:
    """Fill in when each condition was updated and when it last changed."""
    text = format_time(now)
    for condition in conditions_of(obj):
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = text
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = next(
                (
                    before["lastTransitionTime"]
                    for before in _of_type(conditions_of(old), condition.get("type", ""))
                    if before.get("status") == condition.get("status") and before.get("lastTransitionTime")
                ),
                text,
            )


def validate_conditions(conditions: Conditions, old: Conditions, path: str, errs: Errors) -> None:
    old_types = [condition.get("type", "") for condition in old]
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        kind, status = condition.get("type", ""), condition.get("status", "")
        if not kind and "" not in old_types:
            errs.append(required(f"{path}[{i}].type"))
        allowed = ("True",) if kind in _DECISIONS else _STATUSES
        if not status:
            errs.append(required(f"{path}[{i}].status"))
        elif status not in allowed:
            errs.append(not_supported(f"{path}[{i}].status", status, allowed))
        if kind in seen and len(set(old_types)) == len(old_types):
            errs.append(duplicate(f"{path}[{i}].type", kind))
        seen.add(kind)


LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_MIN_SECONDS = 600
_IDENTITY = ("username", "uid", "groups", "extra")
_USAGES = frozenset(
    {
        "any",
        "cert sign",
        "client auth",
        "code signing",
        "content commitment",
        "crl sign",
        "data encipherment",
        "decipher only",
        "digital signature",
        "email protection",
        "encipher only",
        "ipsec end system",
        "ipsec tunnel",
        "ipsec user",
        "key agreement",
        "key encipherment",
        "microsoft sgc",
        "netscape sgc",
        "ocsp signing",
        "s/mime",
        "server auth",
        "signing",
        "timestamping",
    }
)


def _certificate(obj: Obj | None) -> str:
    return str(((obj or {}).get("status") or {}).get("certificate") or "")


def _signer(obj: Obj, now: datetime) -> str:
    return obj["spec"].get("signerName") or NONE


def _requestor(obj: Obj, now: datetime) -> str:
    return str(obj["spec"].get("username", ""))


def _duration(obj: Obj, now: datetime) -> str:
    seconds = obj["spec"].get("expirationSeconds")
    return NONE if seconds is None else human_duration(seconds)


def _condition(obj: Obj, now: datetime) -> str:
    types = {condition.get("type") for condition in conditions_of(obj)}
    text = DENIED if DENIED in types else APPROVED if APPROVED in types else "Pending"
    if FAILED in types:
        text += ",Failed"
    return text + ",Issued" if _certificate(obj) else text


class CertificateSigningRequestStrategy(Strategy):
    columns = (
        NAME,
        AGE,
        Column("SignerName", _signer, description="Signer that the request is for."),
        Column("Requestor", _requestor, description="User that made the request."),
        Column("RequestedDuration", _duration, description="How long the certificate should be valid."),
        Column("Condition", _condition, description="Pending, approved or denied; failed; issued."),
    )
    field_labels = frozenset({"metadata.name", "spec.signerName"})
    has_status = True

    def __init__(self) -> None:
        self.subresources = {"status": CSRStatusStrategy(self), "approval": CSRApprovalStrategy(self)}

    @property
    def resets(self) -> tuple[str, ...]:
        return ("spec", "status")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return []

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        spec = obj["spec"] = {key: value for key, value in (obj.get("spec") or {}).items() if key not in _IDENTITY}
        user = ctx.user
        for key, value in (("username", user.name), ("uid", user.uid), ("groups", list(user.groups))):
            if value:
                spec[key] = value
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        obj["status"] = {}

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        obj["spec"] = old["spec"]
        self.retain_status(obj, old)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self.validate_request(obj, None, errs)

    def validate_request(self, obj: Obj, old: Obj | None, errs: Errors) -> None:
        """Validate the request; errors that `old` already has are tolerated."""
        spec = obj["spec"]
        old_spec: Obj = (old or {}).get("spec") or {}
        request = spec.get("request") or ""
        if text := request_error(b64decode(request)):
            errs.append(invalid("spec.request", spec.get("request"), text))
        usages, old_usages = spec.get("usages") or [], old_spec.get("usages") or []
        if not usages:
            errs.append(required("spec.usages"))
        if _USAGES.issuperset(old_usages):
            for i, usage in enumerate(usages):
                if usage not in _USAGES:
                    errs.append(not_supported(f"spec.usages[{i}]", usage, sorted(_USAGES)))
        if len(set(old_usages)) == len(old_usages):
            for i, usage in enumerate(usages):
                if usage in usages[:i]:
                    errs.append(duplicate(f"spec.usages[{i}]", usage))
        signer = spec.get("signerName", "")
        if signer == LEGACY_SIGNER and old_spec.get("signerName") != LEGACY_SIGNER:
            text = "the legacy signerName is not allowed via this API version"
            errs.append(invalid("spec.signerName", signer, text))
        else:
            validate_signer_name(signer, "spec.signerName", errs)
        seconds = spec.get("expirationSeconds")
        if seconds is not None and seconds < _MIN_SECONDS:
            text = "may not specify a duration less than 600 seconds (10 minutes)"
            errs.append(invalid("spec.expirationSeconds", seconds, text))
        validate_conditions(conditions_of(obj), conditions_of(old), "status.conditions", errs)
        certificate, old_certificate = _certificate(obj), _certificate(old)
        may_stay = old is not None and (certificate == old_certificate or certificate_error(b64decode(old_certificate)))
        if not may_stay and (text := certificate_error(b64decode(certificate))):
            errs.append(invalid("status.certificate", "<certificate data>", text))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.validate_change(obj, old, errs)

    def validate_change(
        self, obj: Obj, old: Obj, errs: Errors, may_approve: bool = False, may_issue: bool = False
    ) -> None:
        late: Errors = []
        self.validate_request(obj, old, errs)
        path = "status.conditions"
        new_conditions, old_conditions = conditions_of(obj), conditions_of(old)
        for kind in (APPROVED, DENIED, FAILED):
            if len(_of_type(new_conditions, kind)) < len(_of_type(old_conditions, kind)):
                errs.append(forbidden(path, f'updates may not remove a condition of type "{kind}"'))
        if not may_approve:
            for kind in (APPROVED, DENIED):
                new, before = _of_type(new_conditions, kind), _of_type(old_conditions, kind)
                if len(new) > len(before):
                    errs.append(forbidden(path, f'updates may not add a condition of type "{kind}"'))
                elif len(new) == len(before) and new != before:
                    errs.append(forbidden(path, f'updates may not modify a condition of type "{kind}"'))
        certificate, old_certificate = _certificate(obj), _certificate(old)
        if certificate != old_certificate:
            if not may_issue:
                errs.append(forbidden("status.certificate", "updates may not set certificate content"))
            elif old_certificate:
                text = "updates may not modify existing certificate content"
                errs.append(forbidden("status.certificate", text))
        both = {APPROVED, DENIED}
        if both <= {condition.get("type") for condition in new_conditions} and not both <= {
            condition.get("type") for condition in old_conditions
        }:
            members = [f'conditions[{{"type": "{kind}"}}]' for kind in (APPROVED, DENIED)]
            text = "must specify at most one of: " + ", ".join(f"`{member}`" for member in members)
            late.append(invalid(path, "{" + ", ".join(members) + "}", text))
        errs.extend(late)

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {"spec.signerName": obj["spec"].get("signerName", "")}


class CSRStatusStrategy(Strategy):
    """The `/status`, where signers store the certificate; approval conditions stay as stored."""

    def __init__(self, main: CertificateSigningRequestStrategy) -> None:
        self.main = main

    @property
    def resets(self) -> tuple[str, ...]:
        return ("spec", "status.conditions")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return []

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        obj["spec"] = old["spec"]
        for kind in (APPROVED, DENIED):
            _retain_instances(obj, old, kind)
        stamp(obj, old, ctx.now)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.main.validate_change(obj, old, errs, may_issue=True)

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return self.main.selectable_fields(obj)


class CSRApprovalStrategy(CSRStatusStrategy):
    """The `/approval`, which changes conditions only."""

    @property
    def resets(self) -> tuple[str, ...]:
        return ("spec", "status.certificate")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        stamp(obj, old, ctx.now)
        conditions = conditions_of(obj)
        obj["spec"] = old["spec"]
        status = {key: value for key, value in (old.get("status") or {}).items() if key != "conditions"}
        obj["status"] = {"conditions": conditions, **status} if conditions else status

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.main.validate_change(obj, old, errs, may_approve=True)


STRATEGY = CertificateSigningRequestStrategy()
