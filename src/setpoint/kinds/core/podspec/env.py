"""Environment variables of containers, and the field and resource selectors that they share with volumes."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.kinds.core.podspec.paths import validate_no_backsteps
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import (
    config_map_key,
    dns1123_label,
    dns1123_subdomain,
    qualified_name,
    relaxed_env_var_name,
)
from setpoint.meta.objects import ObjView

ENV_FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_KNOWN_FIELD_PATHS = frozenset(ENV_FIELD_PATHS) | {
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
    "spec.host",
}
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGES = ("requests.hugepages-", "limits.hugepages-")
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCES = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
MORE_THAN_ONE = "may not have more than one field specified at a time"


def validate_env(variables: Sequence[ObjView], path: str, errs: Errors) -> bool:
    """Validate variables; return True if one of them comes from a file."""
    reads_files = False
    for i, variable in enumerate(variables):
        name = variable.get("name", "")
        if not name:
            errs.append(required(f"{path}[{i}].name", ""))
        # Identifiers are printable ASCII without "=": the usual case needs no further check.
        elif not (name.isascii() and name.isidentifier()):
            for text in relaxed_env_var_name(name):
                errs.append(invalid(f"{path}[{i}].name", name, text))
        source = variable.get("valueFrom")
        if source is not None:
            _validate_value_from(source, bool(variable.get("value")), f"{path}[{i}].valueFrom", errs)
            reads_files = reads_files or "fileKeyRef" in source
    return reads_files


def _validate_value_from(source: ObjView, has_value: bool, path: str, errs: Errors) -> None:
    count = 0
    if "fieldRef" in source:
        count += 1
        validate_object_field_selector(source["fieldRef"], ENV_FIELD_PATHS, f"{path}.fieldRef", errs)
    if "resourceFieldRef" in source:
        count += 1
        validate_resource_field_selector(source["resourceFieldRef"], f"{path}.resourceFieldRef", errs)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            count += 1
            _validate_key_selector(source[name], f"{path}.{name}", errs)
    if "fileKeyRef" in source:
        count += 1
        _validate_file_key_selector(source["fileKeyRef"], f"{path}.fileKeyRef", errs)
    if not count:
        errs.append(invalid(path, "", _SOURCES))
    elif has_value:
        errs.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        errs.append(invalid(path, "", MORE_THAN_ONE))


def _split_subscript(field_path: str) -> tuple[str, str] | None:
    """Split `metadata.labels['app']` into its path and key."""
    if not field_path.endswith("']"):
        return None
    head, bracket, key = field_path[:-2].partition("['")
    return (head, key) if bracket and head else None


def validate_object_field_selector(selector: ObjView, allowed: Sequence[str], path: str, errs: Errors) -> None:
    version, field_path = selector.get("apiVersion", ""), selector.get("fieldPath", "")
    if not version:
        errs.append(required(f"{path}.apiVersion", ""))
        return
    if not field_path:
        errs.append(required(f"{path}.fieldPath", ""))
        return
    split = _split_subscript(field_path)
    why = ""
    if version != "v1":
        why = f"unsupported pod version: {version}"
    elif split is not None:
        if split[0] not in ("metadata.annotations", "metadata.labels"):
            why = f"field label does not support subscript: {field_path}"
    elif field_path not in _KNOWN_FIELD_PATHS:
        why = f"field label not supported: {field_path}"
    if why:
        errs.append(invalid(f"{path}.fieldPath", field_path, f"error converting fieldPath: {why}"))
        return
    if split is not None:
        key = split[1].lower() if split[0] == "metadata.annotations" else split[1]
        for text in qualified_name(key):
            errs.append(invalid(path, key, text))
    else:
        shown = "spec.nodeName" if field_path == "spec.host" else field_path
        if shown not in allowed:
            errs.append(not_supported(f"{path}.fieldPath", shown, sorted(allowed)))


def validate_resource_field_selector(selector: ObjView, path: str, errs: Errors, *, in_volume: bool = False) -> None:
    resource = selector.get("resource", "")
    if in_volume and not selector.get("containerName"):
        errs.append(required(f"{path}.containerName", ""))
    elif not resource:
        errs.append(required(f"{path}.resource", ""))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        errs.append(not_supported(f"{path}.resource", resource, _RESOURCES))
    _validate_divisor(resource, selector.get("divisor", "0"), path, errs)


def _validate_divisor(resource: str, divisor: str, path: str, errs: Errors) -> None:
    if divisor == "0":
        return
    if resource in ("limits.cpu", "requests.cpu"):
        if divisor not in ("1m", "1"):
            text = "only divisor's values 1m and 1 are supported with the cpu resource"
            errs.append(invalid(f"{path}.divisor", resource, text))
        return
    if resource in ("limits.memory", "requests.memory"):
        kind = "memory"
    elif resource in ("limits.ephemeral-storage", "requests.ephemeral-storage"):
        kind = "local ephemeral storage"
    elif resource.startswith(_HUGE_PAGES):
        kind = "hugepages"
    else:
        return
    if divisor not in _BYTE_DIVISORS:
        text = f"only divisor's values {', '.join(_BYTE_DIVISORS)} are supported with the {kind} resource"
        errs.append(invalid(f"{path}.divisor", resource, text))


def _validate_key_selector(selector: ObjView, path: str, errs: Errors) -> None:
    name, key = selector.get("name", ""), selector.get("key", "")
    for text in dns1123_subdomain(name):
        errs.append(invalid(f"{path}.name", name, text))
    if not key:
        errs.append(required(f"{path}.key", ""))
    else:
        for text in config_map_key(key):
            errs.append(invalid(f"{path}.key", key, text))


def _validate_file_key_selector(selector: ObjView, path: str, errs: Errors) -> None:
    key, volume, file = selector.get("key", ""), selector.get("volumeName", ""), selector.get("path", "")
    if not key:
        errs.append(required(f"{path}.key", ""))
    else:
        for text in relaxed_env_var_name(key):
            errs.append(invalid(f"{path}.key", key, text))
    if not volume:
        errs.append(required(f"{path}.volumeName", ""))
    else:
        for text in dns1123_label(volume):
            errs.append(invalid(f"{path}.volumeName", volume, text))
    if not file:
        errs.append(required(f"{path}.path", ""))
    else:
        validate_no_backsteps(file, f"{path}.path", errs)


def validate_env_from(sources: Sequence[ObjView], path: str, errs: Errors) -> None:
    for i, source in enumerate(sources):
        prefix = source.get("prefix", "")
        if prefix:
            for text in relaxed_env_var_name(prefix):
                errs.append(invalid(f"{path}[{i}].prefix", prefix, text))
        count = 0
        for kind in ("configMapRef", "secretRef"):
            if kind in source:
                count += 1
                name = source[kind].get("name", "")
                if not name:
                    errs.append(required(f"{path}[{i}].{kind}.name", ""))
                else:
                    # A trailing dash is accepted, as for a generateName.
                    for text in dns1123_subdomain(name[:-2] + "a" if len(name) > 1 and name[-1] == "-" else name):
                        errs.append(invalid(f"{path}[{i}].{kind}.name", name, text))
        # These two errors are reported at the list, not at the element.
        if not count:
            errs.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif count > 1:
            errs.append(invalid(path, "", MORE_THAN_ONE))
