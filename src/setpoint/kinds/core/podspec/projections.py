"""Files that a volume makes from other objects: secret, configMap, downwardAPI and projected volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from setpoint.kinds.core.podspec.env import validate_object_field_selector, validate_resource_field_selector
from setpoint.kinds.core.podspec.options import CREATE, PodOptions
from setpoint.kinds.core.podspec.paths import validate_local_non_reserved_path
from setpoint.kinds.internal_form import shown
from setpoint.kinds.shared_names import (
    is_kubernetes_signer,
    signer_of_trust_bundle,
    trust_bundle_name_errors,
    validate_signer_name,
)
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required, too_long
from setpoint.meta.names import qualified_name, user_id
from setpoint.meta.objectmeta import validate_label_selector
from setpoint.meta.objects import ObjView

FILE_MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"
_VOLUME_FIELD_PATHS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
_DAY = 24 * 60 * 60
_CONFLICT = "conflicting duplicate paths"


def validate_secret(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    if not source.get("secretName"):
        errs.append(required(f"{path}.secretName", ""))
    _validate_defaults(source, path, errs)
    _validate_items(source, path, errs)


def validate_config_map(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    if not source.get("name"):
        errs.append(required(f"{path}.name", ""))
    _validate_defaults(source, path, errs)
    _validate_items(source, path, errs)


def validate_downward_api(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _validate_defaults(source, path, errs)
    for file in source.get("items", ()):
        _validate_downward_file(file, path, errs)


def validate_projected(source: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    _validate_defaults(source, path, errs)
    used: set[str] = set()
    for i, projection in enumerate(source.get("sources") or ()):
        _validate_projection(projection, f"{path}.sources[{i}]", path, used, errs, options)


def _validate_mode(holder: ObjView, name: str, path: str, errs: Errors) -> None:
    mode = holder.get(name)
    if mode is not None and not 0 <= mode <= 0o777:
        errs.append(invalid(f"{path}.{name}", mode, FILE_MODE_TEXT))


def _validate_user(holder: ObjView, name: str, path: str, errs: Errors) -> None:
    if name in holder:
        for text in user_id(holder[name]):
            errs.append(invalid(f"{path}.{name}", holder[name], text))


def _validate_defaults(source: ObjView, path: str, errs: Errors) -> None:
    _validate_mode(source, "defaultMode", path, errs)
    _validate_user(source, "defaultUser", path, errs)


def _validate_items(source: ObjView, path: str, errs: Errors) -> None:
    for i, item in enumerate(source.get("items", ())):
        _validate_key_to_path(item, f"{path}.items[{i}]", errs)


def _validate_key_to_path(item: ObjView, path: str, errs: Errors) -> None:
    for name in ("key", "path"):
        if not item.get(name):
            errs.append(required(f"{path}.{name}", ""))
    validate_local_non_reserved_path(item.get("path", ""), f"{path}.path", errs)
    _validate_mode(item, "mode", path, errs)
    _validate_user(item, "user", path, errs)


def _validate_downward_file(file: ObjView, path: str, errs: Errors) -> None:
    if not file.get("path"):
        errs.append(required(f"{path}.path", ""))
    validate_local_non_reserved_path(file.get("path", ""), f"{path}.path", errs)
    if "fieldRef" in file:
        validate_object_field_selector(file["fieldRef"], _VOLUME_FIELD_PATHS, f"{path}.fieldRef", errs)
        if "resourceFieldRef" in file:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errs.append(invalid(path, "resource", text))
    elif "resourceFieldRef" in file:
        at = f"{path}.resourceFieldRef"
        validate_resource_field_selector(file["resourceFieldRef"], at, errs, in_volume=True)
    else:
        errs.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    _validate_mode(file, "mode", path, errs)
    _validate_user(file, "user", path, errs)


def _claim_path(file: str, shown: str, used: set[str], path: str, errs: Errors) -> None:
    if file in used:
        errs.append(invalid(path, shown, _CONFLICT))
    used.add(file)


def _validate_projection(
    projection: ObjView, path: str, volume_path: str, used: set[str], errs: Errors, options: PodOptions
) -> None:
    count = 0
    for kind in ("secret", "configMap"):
        if kind in projection:
            count += 1
            source = projection[kind]
            if not source.get("name"):
                errs.append(required(f"{path}.{kind}.name", ""))
            for i, item in enumerate(source.get("items", ())):
                _validate_key_to_path(item, f"{path}.{kind}.items[{i}]", errs)
                if item.get("path"):
                    _claim_path(item["path"], source.get("name", ""), used, volume_path, errs)
    if "downwardAPI" in projection:
        count += 1
        for file in projection["downwardAPI"].get("items", ()):
            _validate_downward_file(file, f"{path}.downwardAPI", errs)
            if file.get("path"):
                _claim_path(file["path"], file["path"], used, volume_path, errs)
    if "serviceAccountToken" in projection:
        count += 1
        _validate_token(projection["serviceAccountToken"], f"{path}.serviceAccountToken", volume_path, errs, options)
    if "clusterTrustBundle" in projection:
        count += 1
        bundle = projection["clusterTrustBundle"]
        _validate_trust_bundle(bundle, f"{path}.clusterTrustBundle", errs)
        _claim_path(bundle.get("path", ""), bundle.get("path", ""), used, volume_path, errs)
    if "podCertificate" in projection:
        count += 1
        _validate_pod_certificate(projection["podCertificate"], f"{path}.podCertificate", volume_path, used, errs)
    if count > 1:
        errs.append(forbidden(path, "may not specify more than 1 volume type per source"))


def _validate_token(token: ObjView, path: str, volume_path: str, errs: Errors, options: PodOptions) -> None:
    seconds = token.get("expirationSeconds")
    if seconds is None:
        errs.append(required(f"{path}.expirationSeconds", ""))
    elif seconds < 600:
        errs.append(invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    elif seconds > 2**32:
        text = "may not specify a duration larger than 2^32 seconds"
        errs.append(invalid(f"{path}.expirationSeconds", seconds, text))
    # The path is reported at the volume, not at the token.
    if not token.get("path"):
        errs.append(required(f"{volume_path}.path", ""))
    elif not options.allow_non_local_token_path:
        validate_local_non_reserved_path(token["path"], f"{volume_path}.path", errs)
    _validate_user(token, "user", path, errs)


def _validate_trust_bundle(bundle: ObjView, path: str, errs: Errors) -> None:
    name, signer, selector = bundle.get("name"), bundle.get("signerName"), bundle.get("labelSelector")
    if name is not None and signer is not None:
        text = "only one of name and signerName may be used"
        errs.append(invalid(path, shown("ClusterTrustBundleProjection", bundle), text))
    elif name is not None:
        if not name:
            errs.append(required(f"{path}.name", "must be a valid object name"))
        for text in trust_bundle_name_errors(name, signer_of_trust_bundle(name)):
            errs.append(invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {text}"))
        if selector is not None:
            text = "labelSelector must be unset if name is specified"
            errs.append(invalid(f"{path}.labelSelector", selector, text))
    elif signer is not None:
        if not signer:
            errs.append(required(f"{path}.signerName", "must be a valid signer name"))
        validate_signer_name(signer, f"{path}.signerName", errs)
        validate_label_selector(selector, f"{path}.labelSelector", errs)
    else:
        errs.append(required(path, "either name or signerName must be specified"))
    if not bundle.get("path"):
        errs.append(required(f"{path}.path", ""))
    _validate_user(bundle, "user", path, errs)
    validate_local_non_reserved_path(bundle.get("path", ""), f"{path}.path", errs)


def _validate_pod_certificate(certificate: ObjView, path: str, volume_path: str, used: set[str], errs: Errors) -> None:
    signer, key_type = certificate.get("signerName", ""), certificate.get("keyType", "")
    validate_signer_name(signer, f"{path}.signerName", errs)
    annotations = certificate.get("userAnnotations")
    if annotations:
        _validate_user_annotations(annotations, f"{path}.userAnnotations", errs)
    _validate_user(certificate, "user", path, errs)
    if key_type not in _KEY_TYPES:
        errs.append(not_supported(f"{path}.keyType", key_type, _KEY_TYPES))
    seconds = certificate.get("maxExpirationSeconds")
    if seconds is not None:
        at = f"{path}.maxExpirationSeconds"
        if seconds < 3600:
            errs.append(invalid(at, seconds, "if provided, maxExpirationSeconds must be >= 3600"))
        most = _DAY if is_kubernetes_signer(signer) else 91 * _DAY
        if seconds > most:
            errs.append(invalid(at, seconds, f"if provided, maxExpirationSeconds must be <= {most}"))
    given: Sequence[str] = [name for name in _CERTIFICATE_PATHS if certificate.get(name)]
    for name in given:
        file = certificate[name]
        validate_local_non_reserved_path(file, f"{path}.{name}", errs)
        _claim_path(file, file, used, volume_path, errs)
    if not given:
        text = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        errs.append(required(path, text))


def _validate_user_annotations(annotations: Mapping[str, str], path: str, errs: Errors) -> None:
    for key in annotations:
        key = key.lower()
        if not key:
            errs.append(required(path, ""))
            continue
        texts = qualified_name(key)
        if not texts and "/" not in key:
            texts = ['must be a domain-prefixed key (such as "acme.io/foo")']
        for text in texts:
            errs.append(invalid(path, key, text))
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > 256 * 1024:
        errs.append(too_long(path, 256 * 1024))
