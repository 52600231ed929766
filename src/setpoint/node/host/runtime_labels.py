"""The labels and annotations by which an agent finds its sandboxes and containers in the container runtime again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from setpoint.meta.gojson import compact
from setpoint.meta.objects import ObjView

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
NODE = "setpoint.dev/node"
"""The label that contains the name of the node. Agents never touch what does not have the name of their own node."""

RESTART_COUNT = "io.kubernetes.container.restartCount"
HASH = "io.kubernetes.container.hash"
HASH_VERSION = "setpoint.dev/container-hash-version"
"""The annotation that contains the version of the definition of `container_hash`."""
TERMINATION_MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
TERMINATION_MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PRE_STOP_HANDLER = "io.kubernetes.container.preStopHandler"
PORTS = "io.kubernetes.container.ports"
TERMINATION_GRACE_PERIOD = "io.kubernetes.pod.terminationGracePeriod"
DELETION_GRACE_PERIOD = "io.kubernetes.pod.deletionGracePeriod"
CONFIG_SOURCE = "kubernetes.io/config.source"

_API_SOURCE = "api"
_CURRENT_VERSION = "1"
_PORT_FIELDS = ("name", "hostPort", "containerPort", "protocol", "hostIP")
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


def is_owned(labels: Mapping[str, str], node_name: str) -> bool:
    """Return whether a sandbox or container with these labels was created by the agent of the node."""
    return labels.get(NODE) == node_name


def sandbox_labels(pod: Pod, node_name: str) -> dict[str, str]:
    return {**(pod["metadata"].get("labels") or {}), **_pod_labels(pod, node_name)}


def sandbox_annotations(pod: Pod) -> dict[str, str]:
    return {CONFIG_SOURCE: _API_SOURCE, **(pod["metadata"].get("annotations") or {})}


def container_labels(pod: Pod, name: str, node_name: str) -> dict[str, str]:
    return {**_pod_labels(pod, node_name), CONTAINER_NAME: name}


def container_annotations(pod: Pod, spec: ObjView, attempt: int) -> dict[str, str]:
    found = {
        HASH: container_hash(spec),
        HASH_VERSION: _CURRENT_VERSION,
        RESTART_COUNT: str(attempt),
        TERMINATION_MESSAGE_PATH: spec.get("terminationMessagePath") or "",
        TERMINATION_MESSAGE_POLICY: spec.get("terminationMessagePolicy") or "",
    }
    deletion = pod["metadata"].get("deletionGracePeriodSeconds")
    if deletion is not None:
        found[DELETION_GRACE_PERIOD] = str(deletion)
    termination = pod["spec"].get("terminationGracePeriodSeconds")
    if termination is not None:
        found[TERMINATION_GRACE_PERIOD] = str(termination)
    handler = (spec.get("lifecycle") or {}).get("preStop")
    if handler is not None:
        found[PRE_STOP_HANDLER] = compact(handler, ordered=False)
    ports = spec.get("ports")
    if ports:
        fields = [{key: port[key] for key in _PORT_FIELDS if port.get(key)} for port in ports]
        found[PORTS] = compact(fields, ordered=False)
    return found


def container_hash(spec: ObjView) -> str:
    """Return the hash that identifies what a container runs, as the kubelet computes it since 1.31. Only a change of
    the image needs a new container, so the hash depends on nothing else but the name."""
    # The hash is that of Go's representation of the JSON text as a list of bytes.
    text = compact({"image": spec.get("image") or "", "name": spec["name"]}).encode()
    value = _FNV_OFFSET
    for byte in f"([]uint8)[{' '.join(map(str, text))}]".encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return f"{value:x}"


def is_outdated(annotations: Mapping[str, str], spec: ObjView) -> bool:
    """Return whether a container must be replaced because its spec has changed. A hash of another version cannot be
    compared: such a container stays, so that an upgrade of the agent restarts nothing."""
    return annotations.get(HASH_VERSION) == _CURRENT_VERSION and annotations.get(HASH) != container_hash(spec)


def _pod_labels(pod: Pod, node_name: str) -> dict[str, str]:
    meta = pod["metadata"]
    return {POD_NAME: meta["name"], POD_NAMESPACE: meta["namespace"], POD_UID: meta["uid"], NODE: node_name}
