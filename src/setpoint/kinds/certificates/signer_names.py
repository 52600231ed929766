"""Names of signers: `example.com/name`."""

from __future__ import annotations

from setpoint.meta.field import Errors, invalid, required, too_long
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_label, dns1123_subdomain

_DOMAIN_LIMIT = 253
_LIMIT = 571  # a domain, a slash, a namespace, a dot and an object name


def is_kubernetes_signer(name: str) -> bool:
    host = name.partition("/")[0]
    return host == "kubernetes.io" or host.endswith(".kubernetes.io")


def validate_signer_name(name: str, path: str, errs: Errors) -> None:
    if not name:
        errs.append(required(path))
        return
    parts = name.split("/")
    if len(parts) != 2:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errs.append(invalid(path, name, text))
        return
    domain, rest = parts
    if len(domain.encode()) > _DOMAIN_LIMIT:
        errs.append(too_long(path, _DOMAIN_LIMIT))
    labels = domain.split(".")
    for label in labels:
        if texts := dns1123_label(label):
            errs.extend(invalid(path, domain, f"validating label {quote(label)}: {text}") for text in texts)
            break
    if len(labels) < 2:
        errs.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    for label in rest.split("."):
        if texts := dns1123_subdomain(label):
            errs.extend(invalid(path, rest, f"validating label {quote(label)}: {text}") for text in texts)
            break
    if len(name.encode()) > _LIMIT:
        errs.append(too_long(path, _LIMIT))
