"""Static Pods of a node, and the mirror Pods by which the API shows them.

The API does not change what runs: a deleted mirror Pod is created again, and one that differs is replaced. The control
plane's components are static Pods, and the logs of these Pods are the components' real logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.kinds.core.podspec.annotations import MIRROR
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, Conflict, NotFound
from setpoint.meta.objects import ObjView
from setpoint.meta.times import format_micro, format_time
from setpoint.node.pod_status import differs
from setpoint.node.runtime.interface import ContainerLog
from setpoint.reconcile import Controller, Informer, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_PODS, _NODES = builtin("pods"), builtin("nodes")
_NAMESPACE = "kube-system"
_HASH, _SEEN, _SOURCE = (f"kubernetes.io/config.{name}" for name in ("hash", "seen", "source"))
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


def is_mirror(pod: Pod) -> bool:
    return MIRROR in (pod["metadata"].get("annotations") or ())


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
        self._client = client_for(node)
        self._clock = clock
        self.controller = Controller("static-pods", self.sync, clock)

    def watch(self) -> None:
        self._pods.add_handler(self._changed)
        for key in self._statics:
            self.controller.enqueue(key)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old or {}
        if pod["spec"].get("nodeName") == self._node and is_mirror(pod):
            self.controller.enqueue(key_of(pod))

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

    # -- reconcile -----------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        static, mirror = self._statics.get(key), self._pods.get(key)
        if mirror is not None and not is_mirror(mirror):
            return  # a Pod of the same name that is not a mirror Pod
        if mirror is not None and (static is None or not self._matches(mirror, static)):
            meta = mirror["metadata"]
            with suppress(NotFound, Conflict):
                await self._client.delete(_PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"])
        elif static is not None and mirror is None:
            await self._create(key.partition("/")[2], static)
        elif static is not None and mirror is not None:
            await self._report(mirror, static)

    @staticmethod
    def _matches(mirror: Pod, static: StaticPod) -> bool:
        meta = mirror["metadata"]
        return "deletionTimestamp" not in meta and meta["annotations"].get(MIRROR) == static.hash

    async def _create(self, name: str, static: StaticPod) -> None:
        node = await self._client.get(_NODES, self._node)
        with suppress(AlreadyExists):
            await self._client.create(_mirror_pod(name, static, node))

    async def _report(self, mirror: Pod, static: StaticPod) -> None:
        meta = mirror["metadata"]
        status = _status(mirror, static, self._address)
        if differs(mirror.get("status") or {}, status):
            change = {"metadata": {"uid": meta["uid"]}, "status": status}
            with suppress(NotFound, Conflict):
                await self._client.patch(
                    _PODS, meta["name"], change, meta["namespace"], kind="strategic", subresource="status"
                )


def _mirror_pod(name: str, static: StaticPod, node: ObjView) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": _NAMESPACE,
            "labels": {"component": static.component, "tier": "control-plane"},
            "annotations": {
                _HASH: static.hash,
                MIRROR: static.hash,
                _SEEN: format_micro(static.started_at),
                _SOURCE: "file",
            },
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": owner["name"],
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
