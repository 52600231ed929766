"""Describe CertificateSigningRequests, with the content of the request."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence

from cryptography import x509
from cryptography.x509.oid import NameOID

from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.failures import Failed
from setpoint.kinds.cell_texts import labels_text
from setpoint.meta.objects import Obj
from setpoint.meta.times import human_duration

_SUBJECT = (
    ("Organization", NameOID.ORGANIZATION_NAME),
    ("Organizational Unit", NameOID.ORGANIZATIONAL_UNIT_NAME),
    ("Country", NameOID.COUNTRY_NAME),
    ("Locality", NameOID.LOCALITY_NAME),
    ("Province", NameOID.STATE_OR_PROVINCE_NAME),
    ("StreetAddress", NameOID.STREET_ADDRESS),
    ("PostalCode", NameOID.POSTAL_CODE),
)


async def certificatesigningrequest(obj: Obj, ctx: DescribeContext) -> str:
    """Describe a CertificateSigningRequest. Raise Failed if its request is not a certificate request."""
    about, wanted = meta(obj), spec(obj)
    try:
        request = x509.load_pem_x509_csr(b64decode(wanted.get("request", "")))
    except ValueError as error:
        raise Failed(f"Error parsing CSR: {error}") from error
    w = Writer()
    w.field("Name", about.get("name", ""))
    w.field("Labels", labels_text(about.get("labels")))
    w.field("Annotations", labels_text(about.get("annotations")))
    w.field("CreationTimestamp", ctx.moment(about.get("creationTimestamp")))
    w.field("Requesting User", wanted.get("username", ""))
    if wanted.get("signerName"):
        w.field("Signer", wanted["signerName"])
    if wanted.get("expirationSeconds") is not None:
        w.field("Requested Duration", human_duration(wanted["expirationSeconds"]))
    w.field("Status", _state(obj))
    w.write(0, "Subject:\n")
    w.field("\tCommon Name", "".join(_names(request, NameOID.COMMON_NAME)[-1:]))
    w.field("\tSerial Number", "".join(_names(request, NameOID.SERIAL_NUMBER)[-1:]))
    for title, oid in _SUBJECT:
        _write_values(w, title, _names(request, oid))
    _write_alternatives(w, request)
    await write_events(w, ctx, obj, "CertificateSigningRequest")
    return w.text()


def _state(obj: Obj) -> str:
    types = {each.get("type") for each in status(obj).get("conditions") or ()}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    if "Failed" in types:
        state += ",Failed"
    return f"{state},Issued" if status(obj).get("certificate") else state


def _names(request: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in request.subject.get_attributes_for_oid(oid)]


def _write_values(w: Writer, title: str, values: Sequence[str]) -> None:
    if values:
        w.field(f"\t{title}", "\n\t\t".join(values))


def _write_alternatives(w: Writer, request: x509.CertificateSigningRequest) -> None:
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    found = (
        ("DNS Names", names.get_values_for_type(x509.DNSName)),
        ("Email Addresses", names.get_values_for_type(x509.RFC822Name)),
        ("URIs", names.get_values_for_type(x509.UniformResourceIdentifier)),
        ("IP Addresses", [str(each) for each in names.get_values_for_type(x509.IPAddress)]),
    )
    if any(values for _, values in found):
        w.write(0, "Subject Alternative Names:\n")
        for title, values in found:
            _write_values(w, title, values)
