"""Mirror Pods, by which the API shows the static Pods of a node.

The API does not change what runs: a deleted mirror Pod is created again, and one that differs is replaced.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.kinds.core.podspec.annotations import MIRROR
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, Conflict, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import Controller, Informer, Result, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

log = logging.getLogger("setpoint.node")

CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE = (f"kubernetes.io/config.{name}" for name in ("hash", "seen", "source"))
_PODS, _NODES = builtin("pods"), builtin("nodes")
_RETRY_SECONDS: Final = 5.0
"""Seconds until the API server is tried again after it could not be reached."""


def is_mirror(pod: Pod) -> bool:
    return MIRROR in (pod["metadata"].get("annotations") or ())


class MirrorSource(Protocol):
    """The static Pods of a node, each with the annotation `kubernetes.io/config.hash`."""

    def static_pod(self, key: str) -> ObjView | None:
        """Return the static Pod with this namespace and name; None if no mirror Pod is wanted."""
        ...

    def status_patch(self, key: str, mirror: Pod) -> Obj:
        """Return the changes to the status of the mirror Pod, as a JSON merge patch; empty if it is up to date."""
        ...


class MirrorPods:
    """Keeps one mirror Pod for each static Pod of a node."""

    def __init__(self, node: str, source: MirrorSource, pods: Informer[Pod], client: Client, clock: Clock) -> None:
        """Create the controller. `pods` has at least the Pods of the node; `client` has the identity of the node."""
        self._node = node
        self._source = source
        self._pods = pods
        self._client = client
        self.controller = Controller("static-pods", self.sync, clock)

    def watch(self) -> None:
        """Follow the mirror Pods in the API."""
        self._pods.add_handler(self._changed)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old or {}
        if pod["spec"].get("nodeName") == self._node and is_mirror(pod):
            self.controller.enqueue(key_of(pod))

    async def sync(self, key: str) -> Result | None:
        try:
            await self._reconcile(key)
        except Unreachable as error:
            log.info("the mirror Pod %s is not up to date: %s", key, error)
            return Result(requeue_after=_RETRY_SECONDS)
        return None

    async def _reconcile(self, key: str) -> None:
        static, mirror = self._source.static_pod(key), self._pods.get(key)
        if mirror is not None and not is_mirror(mirror):
            return  # a Pod of the same name that is not a mirror Pod
        if mirror is not None and (static is None or not _is_mirror_of(mirror, static)):
            meta = mirror["metadata"]
            with suppress(NotFound, Conflict):
                await self._client.delete(_PODS, meta["name"], meta["namespace"], grace_period=0, uid=meta["uid"])
        elif static is not None and mirror is None:
            node = await self._client.get(_NODES, self._node)
            with suppress(AlreadyExists):
                await self._client.create(_mirror_pod(static, node))
        elif mirror is not None:
            await self._report(key, mirror)

    async def _report(self, key: str, mirror: Pod) -> None:
        meta, change = mirror["metadata"], self._source.status_patch(key, mirror)
        if change:
            patch = {"metadata": {"uid": meta["uid"]}, "status": change}
            with suppress(NotFound, Conflict):
                await self._client.patch(_PODS, meta["name"], patch, meta["namespace"], subresource="status")


def _is_mirror_of(mirror: Pod, static: ObjView) -> bool:
    meta = mirror["metadata"]
    return "deletionTimestamp" not in meta and meta["annotations"].get(MIRROR) == _hash(static)


def _hash(static: ObjView) -> str:
    return str(static["metadata"]["annotations"][CONFIG_HASH])


def _mirror_pod(static: ObjView, node: ObjView) -> Obj:
    meta = static["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": meta.get("labels") or {},
            "annotations": {**meta["annotations"], MIRROR: _hash(static)},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": static["spec"],
    }
