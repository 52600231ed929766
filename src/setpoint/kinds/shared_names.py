"""Names that kinds of several groups refer to: path segments and groups, CSI drivers and provisioners, signers of
certificates and their trust bundles.
"""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.meta.field import Errors, invalid, required, too_long
from setpoint.meta.goformat import quote
from setpoint.meta.names import (
    dns1123_label,
    dns1123_subdomain,
    http_path_chars,
    path_segment,
    qualified_name,
    regex_error,
)

_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_MAX_PARAMETERS = 512
_MAX_SIZE = 256 * 1024
_MAX_DOMAIN_LENGTH = 253
_MAX_LENGTH = _MAX_DOMAIN_LENGTH + 1 + 253 + 63 + 1


def validate_segment(value: str, path: str, errs: Errors) -> None:
    """Validate a name that becomes part of a URL; the caller reports its absence."""
    if value:
        errs.extend(invalid(path, value, text) for text in path_segment(value))


def validate_group(group: str | None, path: str, errs: Errors) -> None:
    if group is not None:
        errs.extend(invalid(path, group, text) for text in dns1123_subdomain(group))


def validate_domain_prefixed_path(value: str, path: str, errs: Errors) -> None:
    """Validate a path such as `acme.io/anything`."""
    if not value:
        errs.append(required(path))
        return
    host, slash, rest = value.partition("/")
    if not (host and slash and rest):
        errs.append(invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")'))
        return
    errs.extend(invalid(path, host, text) for text in dns1123_subdomain(host))
    if not http_path_chars(rest):
        errs.append(invalid(path, rest, regex_error("Invalid path", _HTTP_PATH)))


def validate_driver_name(name: str, path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path))
        return
    if len(name.encode()) > 63:
        errs.append(too_long(path, 63))
    errs.extend(invalid(path, name, text) for text in dns1123_subdomain(name.lower()))


def validate_provisioner(name: str, path: str, errs: Errors) -> None:
    """Validate a given provisioner; the caller reports its absence."""
    if name:
        lowered = name.lower()
        errs.extend(invalid(path, lowered, text) for text in qualified_name(lowered))


def validate_parameters(parameters: Mapping[str, str] | None, path: str, errs: Errors, *, needed: bool) -> None:
    parameters = parameters or {}
    if len(parameters) > _MAX_PARAMETERS:
        errs.append(too_long(path, _MAX_PARAMETERS))
        return
    if "" in parameters:
        errs.append(invalid(path, "", "field can not be empty."))
    if text_size(parameters) > _MAX_SIZE:
        errs.append(too_long(path, _MAX_SIZE))
    if needed and not parameters:
        errs.append(required(path, "must contain at least one key/value pair"))


def text_size(texts: Mapping[str, str] | None) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in (texts or {}).items())


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
