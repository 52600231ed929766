"""ClusterTrustBundle: trusted root certificates, in general or of one signer."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.cell_texts import NONE
from setpoint.kinds.columns import NAME
from setpoint.kinds.shared_names import trust_bundle_name_errors, validate_signer_name
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, invalid, too_long
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj
from setpoint.meta.x509.pem import blocks

_MAX_BYTES = 1024 * 1024
_OMITTED = "<value omitted>"


def _signer(obj: Obj, now: datetime) -> str:
    return (obj.get("spec") or {}).get("signerName") or NONE


def _validate_bundle(text: str, path: str, errs: Errors) -> None:
    raw = text.encode()
    if len(raw) > _MAX_BYTES:
        errs.append(too_long(path, _MAX_BYTES))
        return
    # Imported here because every start lists bundles, few are written, and the certificate parser is slow to load.
    from setpoint.kinds.certificates.requests import anchor_error

    before = len(errs)
    places: dict[bytes, list[int]] = {}
    for i, block in enumerate(blocks(raw)):
        if problem := anchor_error(*block):
            errs.append(invalid(path, _OMITTED, f"entry {i} {problem}"))
        else:
            places.setdefault(block.data, []).append(i)
    if len(errs) > before:
        return
    if not places:
        errs.append(invalid(path, _OMITTED, "at least one trust anchor must be provided"))
    for indices in places.values():
        if len(indices) > 1:
            shown = " ".join(map(str, indices))
            errs.append(invalid(path, _OMITTED, f"duplicate trust anchor (indices [{shown}])"))


class ClusterTrustBundleStrategy(Strategy):
    allow_unconditional_update = False
    columns = (NAME, Column("SignerName", _signer, description="The signer whose certificates these verify."))
    field_labels = frozenset({"metadata.name", "spec.signerName"})

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return []  # Depends on the signer: see `validate`.

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self._validate(obj, errs, parse=True)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, old_spec = obj.get("spec") or {}, old.get("spec") or {}
        self._validate(obj, errs, parse=spec.get("trustBundle") != old_spec.get("trustBundle"))
        if spec.get("signerName", "") != old_spec.get("signerName", ""):
            errs.append(invalid("spec.signerName", spec.get("signerName", ""), IMMUTABLE))

    def _validate(self, obj: Obj, errs: Errors, parse: bool) -> None:
        meta, spec = obj["metadata"], obj.get("spec") or {}
        signer = spec.get("signerName", "")
        if base := meta.get("generateName"):
            texts = trust_bundle_name_errors(base.rstrip("-"), signer)
            errs.extend(invalid("metadata.generateName", base, text) for text in texts)
        if name := meta.get("name"):
            errs.extend(invalid("metadata.name", name, text) for text in trust_bundle_name_errors(name, signer))
        if signer:
            validate_signer_name(signer, "spec.signerName", errs)
        if parse:
            _validate_bundle(spec.get("trustBundle", ""), "spec.trustBundle", errs)

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {"spec.signerName": (obj.get("spec") or {}).get("signerName", "")}


STRATEGY = ClusterTrustBundleStrategy()
