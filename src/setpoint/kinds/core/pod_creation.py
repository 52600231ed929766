"""Fields that the server itself sets on a new Pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.core.podspec.affinity import PREFERRED, REQUIRED
from setpoint.kinds.core.podspec.annotations import APP_ARMOR
from setpoint.kinds.core.podspec.options import all_containers
from setpoint.kinds.core.podspec.warnings import OLD_APP_ARMOR, app_armor_profile

Dict = dict[str, Any]
_MAX_PROFILE_LENGTH = 4095


def merge_match_label_keys(pod: Dict) -> None:
    """Merge keys whose values come from the pod's own labels into the selectors."""
    spec = pod["spec"]
    labels = pod["metadata"].get("labels") or {}
    affinity = spec.get("affinity")
    if affinity:
        for kind in ("podAffinity", "podAntiAffinity"):
            terms = affinity.get(kind)
            if terms:
                for weighted in terms.get(PREFERRED, ()):
                    _merge(weighted.get("podAffinityTerm") or {}, labels)
                for term in terms.get(REQUIRED, ()):
                    _merge(term, labels)
    for constraint in spec.get("topologySpreadConstraints", ()):
        _merge(constraint, labels)


def _merge(term: Dict, labels: Mapping[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(keys, ()):
            if key in labels:
                expressions = selector.setdefault("matchExpressions", [])
                expressions.append({"key": key, "operator": operator, "values": [labels[key]]})


class ProfileFromAnnotation(Dict):
    """An AppArmor profile from the legacy annotation, not from the field, which warnings distinguish."""


def copy_app_armor_annotations(pod: Dict) -> None:
    annotations, spec = pod["metadata"].get("annotations"), pod["spec"]
    if not annotations or not any(key.startswith(APP_ARMOR) for key in annotations):
        return
    if (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    container: Any
    for container in all_containers(spec):
        annotation = annotations.get(APP_ARMOR + container.get("name", ""))
        if annotation is None or "appArmorProfile" in (container.get("securityContext") or {}):
            continue
        profile = _valid_profile(annotation)
        if profile is not None and profile != of_pod:
            container.setdefault("securityContext", {})["appArmorProfile"] = ProfileFromAnnotation(profile)


def _valid_profile(annotation: str) -> dict[str, str] | None:
    profile = app_armor_profile(annotation)
    name = (profile or {}).get("localhostProfile", "")
    return None if name.strip() != name or len(name.encode()) > _MAX_PROFILE_LENGTH else profile


def app_armor_warnings(pod: Dict) -> list[str]:
    """Return warnings for annotations without a corresponding field in the request."""
    annotations, spec = pod["metadata"].get("annotations"), pod["spec"]
    if not annotations or (spec.get("os") or {}).get("name") == "windows":
        return []
    found = []
    for container in all_containers(spec):
        key = APP_ARMOR + container.get("name", "")
        if key not in annotations:
            continue
        profile = (container.get("securityContext") or {}).get("appArmorProfile")
        if isinstance(profile, ProfileFromAnnotation) or (profile is None and _valid_profile(annotations[key]) is None):
            found.append(f"metadata.annotations[{key}]: {OLD_APP_ARMOR}")
    return found
