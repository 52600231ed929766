"""PodCertificateRequest: a node's request for a certificate of the identity of one of its pods."""

from __future__ import annotations

import re
from base64 import b64decode
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from setpoint.kinds.certificates.requests import parse_certificate, parse_request, signature_error
from setpoint.kinds.columns import NAME
from setpoint.kinds.internal_form import internal_form
from setpoint.kinds.shared_names import is_kubernetes_signer, validate_signer_name
from setpoint.kinds.strategy import BareStatusStrategy, Column, Context, Strategy
from setpoint.meta.conditions import conditions_of
from setpoint.meta.field import OMIT, Errors, invalid, not_supported, required, too_long
from setpoint.meta.names import dns1123_subdomain, qualified_name
from setpoint.meta.objectmeta import IMMUTABLE, validate_conditions
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time, parse_time
from setpoint.meta.x509.pem import blocks

REQUEST_PATH = "spec.stubPKCS10Request"
_MAX_REQUEST_BYTES = 10 * 1024
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_RSA_SIZES = (3072, 4096)


def _weakness(key: Any, errs: Errors) -> bool:
    """Return whether the type or size of the key is not accepted."""
    if isinstance(key, rsa.RSAPublicKey):
        size = (key.key_size + 7) // 8 * 8
        if size not in _RSA_SIZES:
            text = "RSA keys must have modulus size 3072 or 4096"
            errs.append(invalid(REQUEST_PATH, f"{size}-bit modulus", text))
            return True
    elif isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name not in _CURVES:
            name = "P-224" if key.curve.name == "secp224r1" else key.curve.name
            text = "elliptic public keys must use curve P256, P384, or P521"
            errs.append(invalid(REQUEST_PATH, f"curve {name}", text))
            return True
    elif not isinstance(key, ed25519.Ed25519PublicKey):
        text = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
        errs.append(invalid(REQUEST_PATH, OMIT, text))
        return True
    return False


def validate_request(spec: Obj, errs: Errors) -> None:
    der = b64decode(spec["stubPKCS10Request"])
    if len(der) > _MAX_REQUEST_BYTES:
        errs.append(too_long(REQUEST_PATH, _MAX_REQUEST_BYTES))
        return
    request = parse_request(der)
    if request is None:
        errs.append(invalid(REQUEST_PATH, OMIT, "must be a valid PKCS#10 CSR"))
    elif not _weakness(request.public_key(), errs):
        if signature_error(request):
            errs.append(invalid(REQUEST_PATH, OMIT, "invalid signature"))


_CHAIN, _REFRESH = "status.certificateChain", "status.beginRefreshAt"
_MAX_CHAIN_BYTES = 100 * 1024
_EMAIL = re.compile(r"[^@\s<>]+@[^@\s<>]+")
_MARGIN = timedelta(minutes=10)


def _validate_issued(status: Obj, spec: Obj, now: datetime, errs: Errors) -> None:
    """Validate the chain, up to the first error: further ones would only repeat it."""
    chain = status.get("certificateChain", "")
    raw = chain.encode()
    if len(raw) > _MAX_CHAIN_BYTES:
        errs.append(too_long(_CHAIN, _MAX_CHAIN_BYTES))
        return
    found = list(blocks(raw))
    if not found:
        errs.append(invalid(_CHAIN, chain, "issued certificate chain must contain at least one certificate"))
        return
    if found[0].type != "CERTIFICATE":
        text = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
        errs.append(invalid(_CHAIN, chain, text))
        return
    leaf = parse_certificate(found[0].data)
    if leaf is None:
        errs.append(invalid(_CHAIN, chain, "leaf certificate does not parse as valid X.509"))
        return
    _validate_names(leaf, errs)
    if not _issued_to_key(leaf, chain, spec, errs) or not _validate_times(leaf, status, spec, now, errs):
        return
    for block in found[1:]:
        if block.type != "CERTIFICATE":
            text = "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
            errs.append(invalid(_CHAIN, chain, text))
            return
        if parse_certificate(block.data) is None:
            errs.append(invalid(_CHAIN, chain, "intermediate certificate does not parse as valid X.509"))
            return


def _validate_names(leaf: x509.Certificate, errs: Errors) -> None:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return
    for name in names.get_values_for_type(x509.DNSName):
        if not name:
            errs.append(invalid(_CHAIN, name, "leaf certificate should not contain empty DNSName"))
        if ".." in name:
            errs.append(invalid(_CHAIN, name, "leaf certificate's DNSName should not contain '..'"))
        if name.startswith(".") or name.endswith("."):
            errs.append(invalid(_CHAIN, name, "leaf certificate's DNSName should not start or end with '.'"))
    for address in names.get_values_for_type(x509.RFC822Name):
        if not _EMAIL.fullmatch(address):
            errs.append(invalid(_CHAIN, address, "leaf certificate should not contain invalid EmailAddress"))


def _issued_to_key(leaf: x509.Certificate, chain: str, spec: Obj, errs: Errors) -> bool:
    request = parse_request(b64decode(spec["stubPKCS10Request"]))
    if request is None:
        errs.append(invalid(REQUEST_PATH, OMIT, "must be a valid PKCS#10 CSR"))
        return False
    key = request.public_key()
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_bytes(*form) != leaf.public_key().public_bytes(*form):
        errs.append(invalid(_CHAIN, chain, "leaf certificate was not issued to the requested public key"))
        return False
    return True


def _validate_times(leaf: x509.Certificate, status: Obj, spec: Obj, now: datetime, errs: Errors) -> bool:
    consistent = "must be present and consistent with the issued certificate"
    refresh_text = "must be present and in the range [notbefore+10min, notafter-10min]"
    before = len(errs)
    for name, text in (("notBefore", consistent), ("notAfter", consistent), ("beginRefreshAt", refresh_text)):
        if not status.get(name):
            errs.append(required(f"status.{name}", text))
    if len(errs) > before:
        return False
    start, end, refresh = (parse_time(status[name]) for name in ("notBefore", "notAfter", "beginRefreshAt"))
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    longest = spec["maxExpirationSeconds"]
    rules: tuple[tuple[bool, str, Any, str], ...] = (
        (
            start == leaf.not_valid_before_utc,
            "status.notBefore",
            format_time(start),
            "must be set to the NotBefore time encoded in the leaf certificate",
        ),
        (
            abs(start - now) < timedelta(minutes=5),
            "status.notBefore",
            format_time(start),
            "must be set to within 5 minutes of kube-apiserver's current time",
        ),
        (
            end == leaf.not_valid_after_utc,
            "status.notAfter",
            format_time(end),
            "must be set to the NotAfter time encoded in the leaf certificate",
        ),
        (lifetime >= timedelta(hours=1), _CHAIN, _nanoseconds(lifetime), "leaf certificate lifetime must be >= 1 hour"),
        (
            lifetime <= timedelta(seconds=longest),
            _CHAIN,
            _nanoseconds(lifetime),
            f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})",
        ),
        (
            refresh >= start + _MARGIN,
            _REFRESH,
            format_time(refresh),
            "must be at least 10 minutes after status.notBefore",
        ),
        (
            refresh <= end - _MARGIN,
            _REFRESH,
            format_time(refresh),
            "must be at least 10 minutes before status.notAfter",
        ),
    )
    for holds, path, value, text in rules:
        if not holds:
            errs.append(invalid(path, value, text))
            return False
    return True


def _nanoseconds(duration: timedelta) -> int:
    return int(duration.total_seconds()) * 10**9


_OUTCOMES = ("Issued", "Denied", "Failed")
_MIN_SECONDS, _MAX_SECONDS, _MAX_SECONDS_KUBERNETES = 3600, 91 * 86400, 86400
_SPEC_FIELDS = {
    "signerName": "",
    "podName": "",
    "podUID": "",
    "serviceAccountName": "",
    "serviceAccountUID": "",
    "nodeName": "",
    "nodeUID": "",
    "maxExpirationSeconds": None,
    "PKIXPublicKey": None,
    "proofOfPossession": None,
    "stubPKCS10Request": None,
    "unverifiedUserAnnotations": None,
}
_UID_LIMIT = 128
_ANNOTATIONS_LIMIT = 256 * 1024


def _spec_column(name: str, description: str) -> Column:
    def cell(obj: Obj, now: datetime) -> str:
        return str(obj["spec"].get(name, ""))

    return Column(name[0].upper() + name[1:], cell, description=description)


def _state(obj: Obj, now: datetime) -> str:
    state = "Pending"
    for condition in conditions_of(obj):
        if condition.get("type") in _OUTCOMES:
            state = condition["type"]
    return state


def _annotations(obj: Obj, now: datetime) -> str:
    annotations = obj["spec"].get("unverifiedUserAnnotations") or {}
    return ",".join(f"{key}={annotations[key]}" for key in sorted(annotations)) or "<none>"


def outcome(obj: Obj) -> str:
    """Return `Issued`, `Denied`, `Failed`, or an empty text while it is pending."""
    for condition in conditions_of(obj):
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
        _spec_column("signerName", "Signer that the request is for."),
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
            _validate_issued(status, obj["spec"], ctx.now, errs)
        elif status != old_status:
            text = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
            errs.append(invalid("status", OMIT, text))


STRATEGY = PodCertificateRequestStrategy()
