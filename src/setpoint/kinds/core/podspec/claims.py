"""The spec of a volume claim, in a PersistentVolumeClaim or in an ephemeral volume."""

from __future__ import annotations

from setpoint.kinds.core.resources import validate_resource_amount
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.names import dns1123_label, dns1123_subdomain
from setpoint.meta.objectmeta import validate_annotations, validate_label_selector, validate_labels
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import compare

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
# In the order of the metadata type, which is upstream's order of errors.
_NOT_IN_TEMPLATES = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_GO_NAMES = {"uid": "uID"}


def validate_claim_template(
    template: ObjView, path: str, errs: Errors, *, allow_invalid_selector: bool = False
) -> None:
    validate_template_meta(template.get("metadata") or {}, f"{path}.metadata", errs)
    validate_claim_spec(template.get("spec") or {}, f"{path}.spec", errs, allow_invalid_selector=allow_invalid_selector)


def validate_template_meta(meta: ObjView, path: str, errs: Errors) -> None:
    """Validate the metadata of an object to be created: labels and annotations only."""
    validate_annotations(meta.get("annotations"), f"{path}.annotations", errs)
    validate_labels(meta.get("labels"), f"{path}.labels", errs)
    for name in _NOT_IN_TEMPLATES:
        if meta.get(name) or (name == "deletionGracePeriodSeconds" and meta.get(name) is not None):
            errs.append(forbidden(f"{path}.{_GO_NAMES.get(name, name)}", "cannot be set"))


def validate_claim_spec(
    spec: ObjView, path: str, errs: Errors, *, allow_invalid_selector: bool = False, allow_invalid_groups: bool = False
) -> None:
    modes = spec.get("accessModes")
    if not modes:
        errs.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    validate_label_selector(spec.get("selector"), f"{path}.selector", errs, allow_invalid_values=allow_invalid_selector)
    alone = shared = False
    for mode in modes or ():
        if mode == "ReadWriteOncePod":
            alone = True
        elif mode in ACCESS_MODES:
            shared = True
        else:
            errs.append(not_supported(f"{path}.accessModes", mode, ACCESS_MODES))
    if alone and shared:
        errs.append(forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes"))
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    at = f"{path}.resources[storage]"
    if size is None:
        errs.append(required(at, ""))
    elif compare(size, "0") <= 0:
        errs.append(invalid(at, size, "must be greater than zero"))
    else:
        validate_resource_amount("storage", size, at, errs)
    _validate_class_name(spec.get("storageClassName"), f"{path}.storageClassName", errs)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        errs.append(not_supported(f"{path}.volumeMode", mode, VOLUME_MODES))
    _validate_data_sources(spec, path, errs, allow_invalid_groups)
    _validate_class_name(spec.get("volumeAttributesClassName"), f"{path}.volumeAttributesClassName", errs)


def _validate_class_name(name: str | None, path: str, errs: Errors) -> None:
    if name:
        for text in dns1123_subdomain(name):
            errs.append(invalid(path, name, text))


def _validate_data_sources(spec: ObjView, path: str, errs: Errors, loose: bool) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for name, given in (("dataSource", source), ("dataSourceRef", reference)):
        if given is not None:
            _validate_data_source(given, f"{path}.{name}", errs, loose)
    if source is None or reference is None:
        return
    # Upstream prints an opaque value here.
    if reference.get("namespace"):
        errs.append(invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified"))
    elif any(source.get(key) != reference.get(key) for key in ("apiGroup", "kind", "name")):
        errs.append(invalid(path, {}, "must match dataSourceRef"))


def _validate_data_source(source: ObjView, path: str, errs: Errors, loose: bool) -> None:
    for name in ("name", "kind"):
        if not source.get(name):
            errs.append(required(f"{path}.{name}", ""))
    group, kind = source.get("apiGroup", ""), source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errs.append(invalid(path, kind, text))
    if group and not loose:
        for text in dns1123_subdomain(group):
            errs.append(invalid(f"{path}.apiGroup", group, text))
    namespace = source.get("namespace")
    if namespace:
        for text in dns1123_label(namespace):
            errs.append(invalid(f"{path}.namespace", namespace, text))
