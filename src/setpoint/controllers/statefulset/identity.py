"""Names and ordinals of Pods, and the Pod of an ordinal."""

from __future__ import annotations

import re
from typing import Any

from setpoint.controllers.history import REVISION_LABEL
from setpoint.controllers.pod_control import pod_from
from setpoint.controllers.statefulset.claims import claim_name, claim_templates

Obj = dict[str, Any]

NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_NAME = re.compile(r"(.*)-([0-9]+)", re.ASCII)
_LARGEST = 2**31 - 1


def parent_and_ordinal(pod: Obj) -> tuple[str, int]:
    """Parse set name and ordinal from the Pod's name; an ordinal of -1 means none."""
    found = _NAME.fullmatch(pod["metadata"]["name"])
    if found is None:
        return "", -1
    ordinal = int(found[2])
    return found[1], ordinal if ordinal <= _LARGEST else -1


def ordinal_of(pod: Obj) -> int:
    return parent_and_ordinal(pod)[1]


def is_member(stateful_set: Obj, pod: Obj) -> bool:
    return bool(parent_and_ordinal(pod)[0] == stateful_set["metadata"]["name"])


def size(stateful_set: Obj) -> int:
    return int(stateful_set["spec"].get("replicas", 1))


def start(stateful_set: Obj) -> int:
    return int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))


def in_range(stateful_set: Obj, pod: Obj) -> bool:
    first = start(stateful_set)
    return first <= ordinal_of(pod) < first + size(stateful_set)


def revision_of_pod(pod: Obj) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def partition(stateful_set: Obj) -> int:
    rolling = stateful_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
    return int(rolling.get("partition", 0))


def follows_current(stateful_set: Obj, ordinal: int) -> bool:
    """Return whether a missing Pod is created from the current revision rather than from the update revision."""
    strategy = stateful_set["spec"]["updateStrategy"]
    first = start(stateful_set)
    if strategy.get("rollingUpdate") is not None:
        return ordinal < first + partition(stateful_set)
    current = int((stateful_set.get("status") or {}).get("currentReplicas", 0))
    return strategy["type"] == "RollingUpdate" and ordinal < first + current


def new_pod(stateful_set: Obj, template: Obj, revision: str, ordinal: int) -> Obj:
    """Return the Pod to create; it has no status yet."""
    spec = stateful_set["spec"]
    made = pod_from(template, stateful_set)
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    labels = {**(made["metadata"].get("labels") or {}), **_identity(name, ordinal), REVISION_LABEL: revision}
    pod_spec = {**made["spec"], "hostname": name, "volumes": _volumes(stateful_set, made["spec"], ordinal)}
    if spec.get("serviceName"):
        pod_spec["subdomain"] = spec["serviceName"]
    else:
        pod_spec.pop("subdomain", None)
    if not pod_spec["volumes"]:
        del pod_spec["volumes"]
    return {**made, "metadata": {**made["metadata"], "name": name, "labels": labels}, "spec": pod_spec}


def with_identity(stateful_set: Obj, pod: Obj) -> Obj:
    """Return the Pod with its identity and storage restored, or the Pod itself if nothing is missing."""
    meta, ordinal = pod["metadata"], ordinal_of(pod)
    if not identity_matches(stateful_set, pod):
        name = f"{stateful_set['metadata']['name']}-{ordinal}"
        meta = {**meta, "name": name, "labels": {**(meta.get("labels") or {}), **_identity(name, ordinal)}}
        pod = {**pod, "metadata": meta}
    if not storage_matches(stateful_set, pod):
        pod = {**pod, "spec": {**pod["spec"], "volumes": _volumes(stateful_set, pod["spec"], ordinal)}}
    return pod


def identity_matches(stateful_set: Obj, pod: Obj) -> bool:
    parent, ordinal = parent_and_ordinal(pod)
    name = pod["metadata"]["name"]
    return (
        ordinal >= 0
        and parent == stateful_set["metadata"]["name"]
        and name == f"{parent}-{ordinal}"
        and (pod["metadata"].get("labels") or {}).get(NAME_LABEL) == name
    )


def storage_matches(stateful_set: Obj, pod: Obj) -> bool:
    ordinal = ordinal_of(pod)
    if ordinal < 0:
        return False
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    return all(
        ((volumes.get(template["metadata"]["name"]) or {}).get("persistentVolumeClaim") or {}).get("claimName")
        == claim_name(stateful_set, template, ordinal)
        for template in claim_templates(stateful_set)
    )


def _identity(name: str, ordinal: int) -> dict[str, str]:
    return {NAME_LABEL: name, _INDEX_LABEL: str(ordinal)}


def _volumes(stateful_set: Obj, pod_spec: Obj, ordinal: int) -> list[Obj]:
    """Return the volumes; those of the claims come first and replace others with the same name."""
    ours = [
        {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(stateful_set, template, ordinal)},
        }
        for template in claim_templates(stateful_set)
    ]
    taken = {volume["name"] for volume in ours}
    return [*ours, *(volume for volume in pod_spec.get("volumes") or () if volume["name"] not in taken)]
