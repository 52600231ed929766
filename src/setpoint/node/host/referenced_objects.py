"""The objects that the Pods of a real node refer to.

A node may read only the objects that its Pods name. ConfigMaps and Secrets are therefore watched one by one, while a
Pod refers to them. Nodes may not watch claims and persistent volumes: these are read when a Pod needs them, and again
after a few seconds, and so are RuntimeClasses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from setpoint.client import Client, Unreachable
from setpoint.client.interface import ResourceRef
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import Informer, Manager
from setpoint.tasks import TaskRegistry, run_all

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolumeClaim, Pod, Service

log = logging.getLogger("setpoint.node")

_CONFIG_MAPS, _SECRETS, _SERVICES = builtin("configmaps"), builtin("secrets"), builtin("services")
_CLAIMS, _VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
_RUNTIME_CLASSES = builtin("runtimeclasses", "node.k8s.io")
_TRUST_BUNDLES = builtin("clustertrustbundles", "certificates.k8s.io")
_SYNC_TIMEOUT = 5.0
"""Seconds that `prepare` waits for the first list of newly referenced objects. A Pod whose objects are still missing
then is prepared again later, as if they did not exist."""
_CLAIM_MAX_AGE = 5.0
"""Seconds for which a claim or a volume is not read again."""


class _Reference(NamedTuple):
    resource: ResourceRef
    namespace: str
    name: str


class _WatchedObject:
    """An object that Pods refer to, with its watch."""

    __slots__ = ("informer", "task", "users")

    def __init__(self, informer: Informer[Obj], task: asyncio.Task[None]) -> None:
        self.informer = informer
        self.task = task
        self.users: set[str] = set()
        """The uids of the Pods that refer to the object."""


class ReferencedObjects:
    """Implements ObjectLister for one node. `prepare` must have returned for a Pod before its objects are read."""

    def __init__(self, client: Client, manager: Manager, clock: Clock, changed: Callable[[str], None]) -> None:
        """Create the cache. `changed(uid)` is called for each Pod that refers to an object that has changed."""
        self._client = client
        self._clock = clock
        self._changed = changed
        self._tasks = TaskRegistry()
        self._watched: dict[_Reference, _WatchedObject] = {}
        self._references: dict[str, frozenset[_Reference]] = {}
        """The references of each Pod by its uid."""
        self._read: dict[_Reference, tuple[float, Obj | None]] = {}
        """Claims, volumes and RuntimeClasses, each with the monotonic time at which it was read."""
        self._services: Informer[Service] = manager.informer(_SERVICES)
        self._trust_bundles: Informer[Obj] | None = None

    # -- ObjectLister --------------------------------------------------------------------------------------------------

    def config_map(self, namespace: str, name: str) -> ObjView | None:
        return self._cached(_Reference(_CONFIG_MAPS, namespace, name))

    def secret(self, namespace: str, name: str) -> ObjView | None:
        return self._cached(_Reference(_SECRETS, namespace, name))

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return cast("PersistentVolumeClaim | None", self._last_read(_Reference(_CLAIMS, namespace, name)))

    def volume(self, name: str) -> ObjView | None:
        """Return a PersistentVolume that a claim of a prepared Pod is bound to."""
        return self._last_read(_Reference(_VOLUMES, "", name))

    def runtime_handler(self, pod: Pod) -> str | None:
        """Return the handler of a prepared Pod's RuntimeClass: empty if the Pod has none, None if it does not exist."""
        name = pod["spec"].get("runtimeClassName")
        if not name:
            return ""
        found = self._last_read(_Reference(_RUNTIME_CLASSES, "", name))
        return str(found["handler"]) if found is not None else None

    def trust_bundles(self) -> list[ObjView]:
        return [*self._trust_bundles.items.values()] if self._trust_bundles is not None else []

    def services(self, namespace: str) -> list[Service]:
        return [*self._services.in_namespace(namespace)]

    # -- Pods ----------------------------------------------------------------------------------------------------------

    async def prepare(self, pod: Pod) -> None:
        """Read the objects that a Pod refers to, and watch them from now on."""
        uid, wanted = pod["metadata"]["uid"], frozenset(_references(pod))
        before = self._references.get(uid, frozenset())
        self._references[uid] = wanted
        for reference in before - wanted:
            self._release(reference, uid)
        for reference in wanted:
            self._watch(reference).users.add(uid)
        needed = [self._watched[reference].informer for reference in wanted]
        if _uses_trust_bundles(pod):
            needed.append(self._watch_trust_bundles())
        unread = [informer for informer in needed if not informer.synced.is_set()]
        if unread:
            try:
                async with asyncio.timeout(_SYNC_TIMEOUT):
                    await run_all(*(informer.synced.wait() for informer in unread))
            except TimeoutError:
                log.warning("objects of Pod %s could not be read in time", pod["metadata"]["name"])
        await self._read_unwatched(pod)

    def forget(self, uid: str) -> None:
        """Stop watching what only this Pod referred to."""
        for reference in self._references.pop(uid, frozenset()):
            self._release(reference, uid)

    async def stop(self) -> None:
        await self._tasks.stop()

    # -- internals -----------------------------------------------------------------------------------------------------

    def _watch(self, reference: _Reference) -> _WatchedObject:
        found = self._watched.get(reference)
        if found is None:
            informer = Informer[Obj](
                self._client,
                reference.resource,
                self._clock,
                namespace=reference.namespace,
                field_selector=f"metadata.name={reference.name}",
            )
            found = self._watched[reference] = _WatchedObject(informer, self._tasks.start(informer.run()))
            informer.add_handler(lambda old, new: self._notify(reference))
        return found

    def _watch_trust_bundles(self) -> Informer[Obj]:
        if self._trust_bundles is None:
            self._trust_bundles = Informer[Obj](self._client, _TRUST_BUNDLES, self._clock)
            self._tasks.start(self._trust_bundles.run())
        return self._trust_bundles

    def _notify(self, reference: _Reference) -> None:
        found = self._watched.get(reference)
        for uid in tuple(found.users) if found is not None else ():
            self._changed(uid)

    def _release(self, reference: _Reference, uid: str) -> None:
        found = self._watched.get(reference)
        if found is None:
            return
        found.users.discard(uid)
        if not found.users:
            del self._watched[reference]
            found.task.cancel()

    def _cached(self, reference: _Reference) -> Obj | None:
        found = self._watched.get(reference)
        return found.informer.get(f"{reference.namespace}/{reference.name}") if found is not None else None

    def _last_read(self, reference: _Reference) -> Obj | None:
        found = self._read.get(reference)
        return found[1] if found is not None else None

    async def _read_unwatched(self, pod: Pod) -> None:
        now = self._clock.monotonic()
        for reference, (at, _) in tuple(self._read.items()):
            if now - at > 60 * _CLAIM_MAX_AGE:
                del self._read[reference]
        runtime_class = pod["spec"].get("runtimeClassName")
        if runtime_class:
            await self._read_once(_Reference(_RUNTIME_CLASSES, "", runtime_class), now)
        for name in _claim_names(pod):
            claim = await self._read_once(_Reference(_CLAIMS, pod["metadata"]["namespace"], name), now)
            volume = ((claim or {}).get("spec") or {}).get("volumeName")
            if volume:
                await self._read_once(_Reference(_VOLUMES, "", volume), now)

    async def _read_once(self, reference: _Reference, now: float) -> Obj | None:
        known = self._read.get(reference)
        if known is not None and now - known[0] < _CLAIM_MAX_AGE:
            return known[1]
        found: Obj | None
        try:
            found = await self._client.get(reference.resource, reference.name, reference.namespace)
        except NotFound:
            found = None
        except (ApiError, Unreachable) as error:
            log.warning("cannot read %s %s: %s", reference.resource, reference.name, error)
            return known[1] if known is not None else None
        self._read[reference] = (now, found)
        return found


def _containers(spec: ObjView) -> Iterator[ObjView]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def _references(pod: Pod) -> Iterator[_Reference]:
    """Yield the ConfigMaps and Secrets that a Pod names."""
    spec: ObjView = pod["spec"]
    namespace = pod["metadata"]["namespace"]

    def references(source: ObjView | None, resource: ResourceRef, field: str = "name") -> Iterator[_Reference]:
        if source and source.get(field):
            yield _Reference(resource, namespace, source[field])

    for secret in spec.get("imagePullSecrets") or ():
        yield from references(secret, _SECRETS)
    for container in _containers(spec):
        for each in container.get("envFrom") or ():
            yield from references(each.get("configMapRef"), _CONFIG_MAPS)
            yield from references(each.get("secretRef"), _SECRETS)
        for each in container.get("env") or ():
            value = each.get("valueFrom") or {}
            yield from references(value.get("configMapKeyRef"), _CONFIG_MAPS)
            yield from references(value.get("secretKeyRef"), _SECRETS)
    for volume in spec.get("volumes") or ():
        yield from references(volume.get("secret"), _SECRETS, "secretName")
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            yield from references(source.get("configMap"), _CONFIG_MAPS)
            yield from references(source.get("secret"), _SECRETS)


def _claim_names(pod: Pod) -> Iterator[str]:
    """Yield the names of the Pod's claims; those of ephemeral volumes follow from the names of Pod and volume."""
    spec: ObjView = pod["spec"]
    for volume in spec.get("volumes") or ():
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            yield claim.get("claimName", "")
        elif volume.get("ephemeral") is not None:
            yield f"{pod['metadata']['name']}-{volume['name']}"


def _uses_trust_bundles(pod: Pod) -> bool:
    spec: ObjView = pod["spec"]
    return any(
        source.get("clusterTrustBundle")
        for volume in spec.get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    )
