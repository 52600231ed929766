"""Rules for a definition's spec: group, names, versions, columns, conversion."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from setpoint.kinds.apiextensions.internal_schema import show_versions
from setpoint.kinds.apiextensions.schema_paths import PathError, follow, validate_simple_path
from setpoint.kinds.apiextensions.schema_rules import StoredFacts, validate_schema
from setpoint.kinds.apiextensions.structural import parts, unsupported
from setpoint.kinds.webhook_clients import validate_client_config
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_supported, required, too_many
from setpoint.meta.names import dns1035_label, dns1123_subdomain
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.x509.pem import blocks

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_MAX_SELECTABLE = 8
_STRATEGIES = ("None", "Webhook")


@dataclass(frozen=True, slots=True)
class Ratcheting:
    """Ratcheting validation: rules that the stored definition already breaks and an update may break too."""

    review_versions: bool = False
    ca_bundle: bool = True
    selectable: frozenset[str] = field(default_factory=frozenset)
    """Versions with too many selectable fields; the empty name means all versions together."""
    rules: frozenset[str] = field(default_factory=frozenset)
    messages: frozenset[str] = field(default_factory=frozenset)
    """Expressions that the stored definition contains."""
    unchanged: frozenset[str] = field(default_factory=frozenset)
    """Versions whose schema is unchanged."""

    def known(self, version: str) -> StoredFacts:
        return StoredFacts(self.rules, self.messages, version in self.unchanged)


def _join(texts: Sequence[str]) -> str:
    return ",".join(texts)


def validate_definition(spec: Obj, tolerance: Ratcheting, errs: Errors, no_versions: list[Any] | None = None) -> None:
    """Validate the hoisted `spec`. `no_versions` is how a message shows a missing list of versions."""
    group, versions = spec.get("group", ""), spec["versions"]
    if not group:
        errs.append(required("spec.group"))
    elif texts := dns1123_subdomain(group):
        errs.append(invalid("spec.group", group, _join(texts)))
    elif "." not in group:
        errs.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    _one_of(spec.get("scope", ""), ("Cluster", "Namespaced"), "spec.scope", errs)
    schema = (spec.get("validation") or {}).get("openAPIV3Schema")
    if schema is None:
        for i, version in enumerate(versions):
            if (version.get("schema") or {}).get("openAPIV3Schema") is None:
                errs.append(required(f"spec.versions[{i}].schema.openAPIV3Schema"))
    preserve = bool(spec.get("preserveUnknownFields"))
    if preserve and _has_defaults(spec):
        text = "must be false in order to use defaults in the schema"
        errs.append(invalid("spec.preserveUnknownFields", True, text))
    for i, version in enumerate(versions):
        _validate_version(version, spec, tolerance, f"spec.versions[{i}]", errs)
    names = [version.get("name", "") for version in versions]
    if len(set(names)) < len(names):
        errs.append(invalid("spec.versions", show_versions(versions), "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        errs.append(invalid("spec.versions", show_versions(versions) or no_versions, text))
    if (first := spec.get("version", "")) and (texts := dns1035_label(first)):
        errs.append(invalid("spec.version", first, _join(texts)))
    for name in ("plural", "singular", "kind", "listKind"):
        if not (spec.get("names") or {}).get(name):
            errs.append(required(f"spec.names.{name}"))
    validate_names(spec.get("names") or {}, "spec.names", errs)
    if schema is not None:
        any_status = _has_status(spec) or any(_has_status(version) for version in versions)
        validate_schema(schema, any_status, "spec.validation", errs, tolerance.known(spec.get("version", "")))
    _validate_shared(spec, schema, "", tolerance, "spec", errs)
    conversion = spec.get("conversion")
    if conversion is not None:
        if preserve and conversion.get("strategy") != "None":
            text = "must be None if spec.preserveUnknownFields is true"
            errs.append(invalid("spec.conversion.strategy", conversion.get("strategy", ""), text))
        _validate_conversion(conversion, tolerance, "spec.conversion", errs)


def _has_status(holder: ObjView) -> bool:
    return (holder.get("subresources") or {}).get("status") is not None


def _has_defaults(spec: ObjView) -> bool:
    holders = [spec.get("validation"), *(version.get("schema") for version in spec["versions"])]
    pending = [holder["openAPIV3Schema"] for holder in holders if holder and holder.get("openAPIV3Schema")]
    while pending:
        schema = pending.pop()
        if schema.get("default") is not None:
            return True
        pending += parts(schema)
    return False


def _one_of(value: str, allowed: Sequence[str], path: str, errs: Errors) -> None:
    if not value:
        errs.append(required(path))
    elif value not in allowed:
        errs.append(not_supported(path, value, allowed))


def _validate_version(version: Obj, spec: ObjView, tolerance: Ratcheting, path: str, errs: Errors) -> None:
    name, warning = version.get("name", ""), version.get("deprecationWarning")
    if texts := dns1035_label(name):
        errs.append(invalid(f"{path}.name", name, _join(texts)))
    if warning is not None:
        texts = _warning_errors(warning) if version.get("deprecated") else ["can only be set for deprecated versions"]
        errs.extend(invalid(f"{path}.deprecationWarning", warning, text) for text in texts)
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is not None:
        per_version = any(other.get("subresources") is not None for other in spec["versions"])
        with_status = _has_status(version if per_version else spec)
        validate_schema(schema, with_status, f"{path}.schema", errs, tolerance.known(name))
    _validate_shared(version, schema, name, tolerance, path, errs)


def _warning_errors(warning: str) -> list[str]:
    texts = []
    if len(warning.encode()) > 256:
        texts.append("must be <= 256 characters long")
    if not warning:
        texts.append("must not be an empty string")
    position = 0
    for char in warning:
        if not char.isprintable():
            text = "must only contain printable UTF-8 characters; non-printable character found at index"
            texts.append(f"{text} {position}")
            break
        position += len(char.encode())
    return texts


def _validate_shared(
    holder: ObjView,
    schema: ObjView | None,
    version: str,
    tolerance: Ratcheting,
    path: str,
    errs: Errors,
) -> None:
    """Validate the fields that a version can have or that are at the top level for all versions."""
    scale = (holder.get("subresources") or {}).get("scale")
    if scale is not None:
        _validate_scale(scale, f"{path}.subresources.scale", errs)
    for i, column in enumerate(holder.get("additionalPrinterColumns") or ()):
        _validate_column(column, f"{path}.additionalPrinterColumns[{i}]", errs)
    if selectable := holder.get("selectableFields"):
        at = f"{path}.selectableFields"
        if schema is None:
            text = (
                "may only be set when `version.schema.openAPIV3Schema` is not included"
                if version
                else "may only be set when validations.schema is included"
            )
            errs.append(invalid(at, "", text))
        else:
            _validate_selectable(selectable, schema, version in tolerance.selectable, at, errs)


def _validate_scale(scale: ObjView, path: str, errs: Errors) -> None:
    for name, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        at, value = f"{path}.{name}", scale.get(name, "")
        if not value:
            errs.append(required(at))
        elif validate_simple_path(value, at, errs) and not value.startswith(root + "."):
            errs.append(invalid(at, value, f"should be a json path under {root}"))
    if value := scale.get("labelSelectorPath"):
        at = f"{path}.labelSelectorPath"
        if validate_simple_path(value, at, errs) and not value.startswith((".spec.", ".status.")):
            errs.append(invalid(at, value, "should be a json path under either .spec or .status"))


def _validate_column(column: ObjView, path: str, errs: Errors) -> None:
    kind, format_name, json_path = column.get("type", ""), column.get("format", ""), column.get("jsonPath", "")
    if not column.get("name"):
        errs.append(required(f"{path}.name"))
    text = f"must be one of {_join(_COLUMN_TYPES)}"
    if not kind:
        errs.append(required(f"{path}.type", text))
    elif kind not in _COLUMN_TYPES:
        errs.append(invalid(f"{path}.type", kind, text))
    if format_name and format_name not in _COLUMN_FORMATS:
        errs.append(invalid(f"{path}.format", format_name, f"must be one of {_join(_COLUMN_FORMATS)}"))
    if not json_path:
        errs.append(required(f"{path}.JSONPath"))
    else:
        validate_simple_path(json_path, f"{path}.JSONPath", errs)


def _validate_selectable(
    fields: Sequence[ObjView], schema: ObjView, crowd_tolerated: bool, path: str, errs: Errors
) -> None:
    if text := unsupported(schema):
        errs.append(invalid(path.replace("selectableFields", "schema.openAPIV3Schema"), "", text))
    seen: set[tuple[str, ...]] = set()
    for i, selectable in enumerate(fields):
        at, json_path = f"{path}[{i}].jsonPath", selectable.get("jsonPath", "")
        if not json_path:
            errs.append(required(at))
            continue
        try:
            keys, found = follow(json_path, schema, brackets=False)
        except PathError as error:
            errs.append(invalid(at, json_path, f"is an invalid path: {error}"))
            continue
        if keys and keys[0] == "metadata":
            errs.append(invalid(at, json_path, "must not point to fields in metadata"))
        if found.get("type") not in ("string", "boolean", "integer"):
            text = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            errs.append(invalid(at, json_path, text))
        if tuple(keys) in seen:
            errs.append(duplicate(at, json_path))
        seen.add(tuple(keys))
    if len(seen) > _MAX_SELECTABLE and not crowd_tolerated:
        errs.append(too_many(path, len(seen), _MAX_SELECTABLE))


def validate_names(names: ObjView, path: str, errs: Errors) -> None:
    for name in ("plural", "singular"):
        if (value := names.get(name, "")) and (texts := dns1035_label(value)):
            errs.append(invalid(f"{path}.{name}", value, _join(texts)))
    for name in ("kind", "listKind"):
        if (value := names.get(name, "")) and (texts := dns1035_label(value.lower())):
            text = "may have mixed case, but should otherwise match: " + _join(texts)
            errs.append(invalid(f"{path}.{name}", value, text))
    _validate_labels(names, "shortNames", path, errs)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        errs.append(invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same"))
    _validate_labels(names, "categories", path, errs)


def _validate_labels(names: ObjView, name: str, path: str, errs: Errors) -> None:
    for i, value in enumerate(names.get(name) or ()):
        if texts := dns1035_label(value):
            errs.append(invalid(f"{path}.{name}[{i}]", value, _join(texts)))


def _validate_conversion(conversion: ObjView, tolerance: Ratcheting, path: str, errs: Errors) -> None:
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    _one_of(strategy, _STRATEGIES, f"{path}.strategy", errs)
    at = f"{path}.webhookClientConfig"
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if client is not None:
            errs.append(forbidden(at, text))
        if versions:
            errs.append(forbidden(f"{path}.conversionReviewVersions", text))
        return
    if client is None:
        errs.append(required(at, "required when strategy is set to Webhook"))
    else:
        _validate_client(client, tolerance, at, errs)
    at = f"{path}.conversionReviewVersions"
    if not versions:
        errs.append(required(at))
        return
    for i, version in enumerate(versions):
        if version in versions[:i]:
            errs.append(invalid(f"{at}[{i}]", version, "duplicate version"))
            continue
        errs.extend(invalid(f"{at}[{i}]", version, text) for text in dns1035_label(version))
    if not tolerance.review_versions and not set(versions) & set(_REVIEW_VERSIONS):
        errs.append(invalid(at, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"))


def _validate_client(client: ObjView, tolerance: Ratcheting, path: str, errs: Errors) -> None:
    validate_client_config(client, path, errs)
    bundle = client.get("caBundle")
    if bundle and not tolerance.ca_bundle and not is_ca_bundle(bundle):
        text = "unable to load root certificates: unable to parse bytes as PEM block"
        errs.append(invalid(f"{path}.caBundle", bundle, text))


def is_ca_bundle(bundle: str) -> bool:
    return any(block.type == "CERTIFICATE" for block in blocks(b64decode(bundle)))
