"""The volumes of Pods and templates, and the sources of PersistentVolumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli.describe.claims import write_claim
from setpoint.cli.describe.environment import optional
from setpoint.cli.describe.metadata import LONGEST_LINE, shortened
from setpoint.cli.describe.volume_fields import FIELDS, PERSISTENT_FIELDS, TYPES
from setpoint.cli.describe.writer import Writer
from setpoint.kinds.columns import NONE
from setpoint.meta.quantity import canonical, compare

Source = Mapping[str, Any]


def write_volumes(w: Writer, volumes: Sequence[Source], indent: str = "") -> None:
    if not volumes:
        w.write(0, f"{indent}Volumes:\t<none>\n")
        return
    w.write(0, f"{indent}Volumes:\n")
    for volume in volumes:
        w.write(1, f"{' ' if indent else ''}{volume.get('name', '')}:\n")
        key = _source_of(volume)
        # `local` is a source of PersistentVolumes only.
        if key in ("", "local"):
            w.write(1, "<unknown>\n")
            continue
        source = volume[key]
        w.field("Type", TYPES[key], 2)
        for shown in FIELDS.get(key, ()):
            w.row(2, shown.title, shown.show(source.get(shown.key)))
        _write_more(w, key, source)


def write_persistent_source(w: Writer, spec: Source) -> None:
    key = _source_of(spec)
    if key not in PERSISTENT_FIELDS:
        w.write(1, "<unknown>\n")
        return
    source = spec[key]
    if key == "scaleIO":
        secret = source.get("secretRef") or {}
        source = {**source, "secretName": secret.get("name"), "secretNamespace": secret.get("namespace")}
    w.field("Type", TYPES[key], 2)
    for shown in PERSISTENT_FIELDS[key]:
        w.row(2, shown.title, shown.show(source.get(shown.key)))
    if key == "csi":
        _write_attributes(w, source.get("volumeAttributes"))


def _source_of(holder: Source) -> str:
    return next((key for key in TYPES if holder.get(key) is not None), "")


def _write_more(w: Writer, key: str, source: Source) -> None:
    if key == "emptyDir":
        limit = source.get("sizeLimit")
        w.field("Medium", source.get("medium", ""), 2)
        w.field("SizeLimit", canonical(limit) if limit and compare(limit, "0") > 0 else "<unset>", 2)
    elif key == "downwardAPI":
        w.write(2, "Items:\n")
        for item in source.get("items") or ():
            for reference, name in (("fieldRef", "fieldPath"), ("resourceFieldRef", "resource")):
                if item.get(reference) is not None:
                    w.write(3, f"{item[reference].get(name, '')} -> {item.get('path', '')}\n")
    elif key == "projected":
        for part in source.get("sources") or ():
            _write_projection(w, part)
    elif key == "csi":
        _write_attributes(w, source.get("volumeAttributes"))
    elif key == "ephemeral" and source.get("volumeClaimTemplate") is not None:
        write_claim(w.nested(2), source["volumeClaimTemplate"])


def _write_projection(w: Writer, part: Source) -> None:
    if part.get("secret") is not None:
        w.field("SecretName", part["secret"].get("name", ""), 2)
        w.field("Optional", optional(part["secret"]), 2)
    elif part.get("downwardAPI") is not None:
        w.field("DownwardAPI", "true", 2)
    elif part.get("configMap") is not None:
        w.field("ConfigMapName", part["configMap"].get("name", ""), 2)
        w.field("Optional", optional(part["configMap"]), 2)
    elif part.get("serviceAccountToken") is not None:
        w.field("TokenExpirationSeconds", part["serviceAccountToken"].get("expirationSeconds", 0), 2)


def _write_attributes(w: Writer, attributes: Mapping[str, str] | None) -> None:
    w.write(2, "VolumeAttributes:\t")
    if not attributes:
        w.line(NONE)
        return
    # Every line is indented separately, as in kubectl.
    for at, key in enumerate(sorted(attributes)):
        if at:
            w.write(2, "")
            w.write(2, "\t")
        w.write(2, f"{shortened(f'{key}={attributes[key]}', LONGEST_LINE)}\n")
