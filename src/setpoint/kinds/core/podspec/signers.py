"""Names of certificate signers and of the trust bundles tied to them."""

from __future__ import annotations

from setpoint.meta.field import Errors, invalid, required, too_long
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_label, dns1123_subdomain

_MAX_DOMAIN_LENGTH = 253
_MAX_LENGTH = _MAX_DOMAIN_LENGTH + 1 + 253 + 63 + 1


def is_kubernetes_signer(name: str) -> bool:
    """Return whether the signer is reserved by Kubernetes."""
    host = name.partition("/")[0]
    return host == "kubernetes.io" or host.endswith(".kubernetes.io")


def validate_signer_name(name: str, path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path, ""))
        return
    segments = name.split("/")
    if len(segments) != 2:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errs.append(invalid(path, name, text))
        return
    domain, rest = segments
    if len(domain.encode()) > _MAX_DOMAIN_LENGTH:
        errs.append(too_long(path, _MAX_DOMAIN_LENGTH))
    labels = domain.split(".")
    _first_bad(labels, dns1123_label, domain, path, errs)
    if len(labels) < 2:
        errs.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    _first_bad(rest.split("."), dns1123_subdomain, rest, path, errs)
    if len(name.encode()) > _MAX_LENGTH:
        errs.append(too_long(path, _MAX_LENGTH))


def _first_bad(labels: list[str], rule: object, segment: str, path: str, errs: Errors) -> None:
    """Report the first invalid label only, because the errors of the others would be identical."""
    assert callable(rule)
    for label in labels:
        texts = rule(label)
        for text in texts:
            errs.append(invalid(path, segment, f"validating label {quote(label)}: {text}"))
        if texts:
            return


def trust_bundle_name_errors(name: str, signer: str) -> list[str]:
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return dns1123_subdomain(name)
    prefix = signer.replace("/", ":") + ":"
    if not name.startswith(prefix):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    return dns1123_subdomain(name.removeprefix(prefix))


def signer_of_trust_bundle(name: str) -> str:
    """Return the signer that a bundle's name refers to; empty if none."""
    head, colon, _ = name.rpartition(":")
    return head.replace(":", "/") if colon else ""
