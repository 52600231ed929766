"""The static Pods of a simulated node: the control plane's components, whose logs are the components' real logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_micro, format_time
from setpoint.node.mirror_pods import CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE, MirrorPods
from setpoint.node.pod_status import differs
from setpoint.node.runtime.interface import ContainerLog
from setpoint.reconcile import Controller, Informer, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_NAMESPACE = "kube-system"
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


class StaticPod(NamedTuple):
    """A component of the control plane, run as a static Pod."""

    component: str
    image: str
    command: tuple[str, ...]
    started_at: datetime
    """The time at which this run of the component began; another run is another Pod."""
    log: ContainerLog

    @property
    def hash(self) -> str:
        """A hash that identifies the component and its run."""
        identity = (self.component, self.image, self.command, format_micro(self.started_at))
        return sha256(json.dumps(identity).encode()).hexdigest()[:32]

    @property
    def container_id(self) -> str:
        return f"setpoint://{sha256(self.hash.encode()).hexdigest()}"


class StaticPods:
    """The static Pods of one node."""

    def __init__(
        self,
        node: str,
        address: str,
        statics: Sequence[StaticPod],
        pods: Informer[Pod],
        client_for: Callable[[str], Client],
        clock: Clock,
    ) -> None:
        self._node = node
        self._address = address
        self._statics = {f"{_NAMESPACE}/{each.component}-{node}": each for each in statics}
        self._pods = pods
        self._mirrors = MirrorPods(node, self, pods, client_for(node), clock)

    @property
    def controller(self) -> Controller:
        return self._mirrors.controller

    def watch(self) -> None:
        self._mirrors.watch()
        for key in self._statics:
            self.controller.enqueue(key)

    def set(self, statics: Sequence[StaticPod]) -> None:
        """Run these static Pods from now on, and no others."""
        found = {f"{_NAMESPACE}/{each.component}-{self._node}": each for each in statics}
        changed = [key for key in {**self._statics, **found} if self._statics.get(key) != found.get(key)]
        self._statics = found
        for key in changed:
            self.controller.enqueue(key)

    # -- for the kubelet's API -----------------------------------------------------------------------------------------

    def pod(self, namespace: str, name: str) -> Pod | None:
        key = f"{namespace}/{name}"
        return self._pods.get(key) if key in self._statics else None

    def pods_on(self, node: str) -> list[Pod]:
        found = (self._pods.get(key) for key in self._statics) if node == self._node else ()
        return [pod for pod in found if pod is not None]

    def log_of(self, pod: Pod, container_id: str) -> ContainerLog | None:
        static = self._statics.get(key_of(pod))
        return static.log if static is not None and static.container_id == container_id else None

    # -- for the mirror Pods -------------------------------------------------------------------------------------------

    def static_pod(self, key: str) -> ObjView | None:
        static = self._statics.get(key)
        return _static_pod(key.partition("/")[2], static, self._node) if static is not None else None

    def status_patch(self, key: str, mirror: Pod) -> Obj:
        status = _status(mirror, self._statics[key], self._address)
        return status if differs(mirror.get("status") or {}, status) else {}


def _static_pod(name: str, static: StaticPod, node: str) -> Obj:
    return {
        "metadata": {
            "name": name,
            "namespace": _NAMESPACE,
            "labels": {"component": static.component, "tier": "control-plane"},
            "annotations": {
                CONFIG_HASH: static.hash,
                CONFIG_SEEN: format_micro(static.started_at),
                CONFIG_SOURCE: "file",
            },
        },
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "priority": 2_000_001_000,
            "restartPolicy": "Always",
            "enableServiceLinks": True,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": [{"effect": "NoExecute", "operator": "Exists"}],
            "containers": [
                {
                    "name": static.component,
                    "image": static.image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": list(static.command),
                }
            ],
        },
    }


def _status(pod: Pod, static: StaticPod, address: str) -> dict[str, Any]:
    since = format_time(static.started_at)
    generation = pod["metadata"].get("generation")
    observed = {"observedGeneration": generation} if generation is not None else {}
    return {
        "phase": "Running",
        "startTime": since,
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": since, **observed} for kind in _CONDITIONS
        ],
        "containerStatuses": [
            {
                "name": static.component,
                "image": static.image,
                "imageID": f"{static.image}@sha256:{sha256(static.image.encode()).hexdigest()}",
                "containerID": static.container_id,
                "state": {"running": {"startedAt": since}},
                "lastState": {},
                "ready": True,
                "started": True,
                "restartCount": 0,
            }
        ],
        **observed,
    }
