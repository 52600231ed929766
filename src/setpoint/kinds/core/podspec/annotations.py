"""Pod annotations with a meaning: mirror pods, deletion cost, and the legacy forms of seccomp and AppArmor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from setpoint.kinds.core.podspec.paths import validate_local_descending_path
from setpoint.kinds.core.podspec.scheduling import validate_tolerations
from setpoint.kinds.core.podspec.security import containers_with_path
from setpoint.meta.field import Errors, forbidden, invalid
from setpoint.meta.goformat import parse_integer, quote
from setpoint.meta.objects import ObjView

MIRROR = "kubernetes.io/config.mirror"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_PROFILES = (SECCOMP_CONTAINER, APP_ARMOR)
_LOCALHOST = "localhost/"
_COST = re.compile(r"0|[1-9][0-9]*|-[0-9]+")


def has_valid_deletion_cost(annotations: Mapping[str, str] | None) -> bool:
    cost = (annotations or {}).get(DELETION_COST)
    if cost is None:
        return True
    # No leading plus, and leading zeros only behind a minus.
    return bool(_COST.fullmatch(cost)) and -(2**31) <= parse_integer(cost) < 2**31


def validate_pod_annotations(
    annotations: Mapping[str, str],
    spec: ObjView,
    path: str,
    errs: Errors,
    *,
    allow_invalid_deletion_cost: bool = False,
    allow_comparison: bool = False,
) -> None:
    if MIRROR in annotations and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        errs.append(invalid(f"{path}[{MIRROR}]", annotations[MIRROR], text))
    if annotations.get(TOLERATIONS):
        _validate_tolerations(annotations[TOLERATIONS], path, errs, allow_comparison)
    if DELETION_COST in annotations and not allow_invalid_deletion_cost and not has_valid_deletion_cost(annotations):
        errs.append(invalid(f"{path}[{DELETION_COST}]", annotations[DELETION_COST], "must be a 32bit integer"))
    if SECCOMP_POD in annotations:
        _validate_seccomp(annotations[SECCOMP_POD], f"{path}.{SECCOMP_POD}", errs)
    if not _names_profiles(annotations):
        return
    for key, value in annotations.items():
        if key.startswith(SECCOMP_CONTAINER):
            _validate_seccomp(value, f"{path}.{key}", errs)
    for key, value in annotations.items():
        if key.startswith(APP_ARMOR):
            _validate_app_armor(key, value, spec, f"{path}[{key}]", errs)


def _validate_tolerations(text: str, path: str, errs: Errors, allow_comparison: bool) -> None:
    try:
        tolerations = orjson.loads(text)
    except ValueError as error:
        cut_short = "unexpected end" in str(error)
        errs.append(invalid(path, TOLERATIONS, "unexpected end of JSON input" if cut_short else str(error)))
        return
    if tolerations is None:
        return
    wrong = _wrong_type(tolerations, list, "[]core.Toleration")
    for one in tolerations if not wrong else ():
        wrong = wrong or _wrong_type(one, dict, "core.Toleration")
    if wrong:
        errs.append(invalid(path, TOLERATIONS, wrong))
        return
    lowered = [{key[:1].lower() + key[1:]: value for key, value in one.items()} for one in tolerations]
    validate_tolerations(lowered, f"{path}.{TOLERATIONS}", errs, allow_comparison=allow_comparison)


def _wrong_type(value: Any, expected: type, go_type: str) -> str:
    if isinstance(value, expected):
        return ""
    names = ((bool, "bool"), (dict, "object"), (list, "array"), (str, "string"))
    found = next((name for kind, name in names if isinstance(value, kind)), "number")
    return f"json: cannot unmarshal {found} into Go value of type {go_type}"


def _validate_seccomp(profile: str, path: str, errs: Errors) -> None:
    if profile in ("runtime/default", "docker/default", "unconfined"):
        return
    if profile.startswith(_LOCALHOST):
        validate_local_descending_path(profile.removeprefix(_LOCALHOST), path, errs)
    else:
        errs.append(invalid(path, profile, "must be a valid seccomp profile"))


def _validate_app_armor(key: str, profile: str, spec: ObjView, path: str, errs: Errors) -> None:
    name = key.removeprefix(APP_ARMOR)
    if not any(container.get("name") == name for container, _ in containers_with_path(spec, "")):
        errs.append(invalid(path, name, "container not found"))
    if profile not in ("", "runtime/default", "unconfined") and not profile.startswith(_LOCALHOST):
        errs.append(invalid(path, profile, f"invalid AppArmor profile name: {quote(profile)}"))


def validate_annotation_updates(new: Mapping[str, str], old: Mapping[str, str], path: str, errs: Errors) -> None:
    """Validate that the annotations set at creation do not change."""
    for key, value in old.items():
        if new.get(key) == value and key in new:
            continue
        if key.startswith(APP_ARMOR):
            errs.append(forbidden(f"{path}[{key}]", "may not remove or update AppArmor annotations"))
        if key == MIRROR:
            errs.append(forbidden(f"{path}[{key}]", "may not remove or update mirror pod annotation"))
    for key in new:
        if key in old:
            continue
        if key.startswith(APP_ARMOR):
            errs.append(forbidden(f"{path}[{key}]", "may not add AppArmor annotations"))
        if key == MIRROR:
            errs.append(forbidden(f"{path}[{key}]", "may not add mirror pod annotation"))


def _names_profiles(annotations: Mapping[str, str]) -> bool:
    return SECCOMP_POD in annotations or any(key.startswith(_PROFILES) for key in annotations)


def validate_profiles_match(annotations: Mapping[str, str], spec: ObjView, path: str, errs: Errors) -> None:
    """Validate that a profile is the same in the annotation and the field if both are set."""
    if not _names_profiles(annotations):
        return
    profile = (spec.get("securityContext") or {}).get("seccompProfile")
    if profile is not None and SECCOMP_POD in annotations:
        _validate_match(annotations[SECCOMP_POD], profile, "seccomp", f"{path}.securityContext.seccompProfile", errs)
    for container, at in containers_with_path(spec, path):
        profile = (container.get("securityContext") or {}).get("seccompProfile")
        given = annotations.get(SECCOMP_CONTAINER + container.get("name", ""))
        if profile is not None and given is not None:
            _validate_match(given, profile, "seccomp", f"{at}.securityContext.seccompProfile", errs)
    if (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container, at in containers_with_path(spec, path):
        profile = (container.get("securityContext") or {}).get("appArmorProfile") or of_pod
        given = annotations.get(APP_ARMOR + container.get("name", ""))
        if profile is not None and given is not None:
            _validate_match(given, profile, "apparmor", f"{at}.securityContext.appArmorProfile", errs)


def _validate_match(given: str, profile: ObjView, what: str, path: str, errs: Errors) -> None:
    kind = profile.get("type")
    if kind == "Localhost" and given.startswith(_LOCALHOST):
        if given.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
            errs.append(forbidden(f"{path}.localhostProfile", f"{what} profile in annotation and field must match"))
        return
    allowed: tuple[str, ...] = ()
    if kind == "Unconfined":
        allowed = ("unconfined",)
    elif kind == "RuntimeDefault":
        allowed = ("runtime/default", "docker/default") if what == "seccomp" else ("runtime/default",)
    elif kind != "Localhost":
        return
    if given not in allowed:
        errs.append(forbidden(f"{path}.type", f"{what} type in annotation and field must match"))
