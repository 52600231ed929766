"""The known claims and volumes, with the binder's own newer writes, and all writes of the binder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.kinds.storage.binding import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    access_modes_text,
    annotations_of,
    claim_class,
    claim_reference,
    has_access_modes,
    is_reserved_for,
    smallest_match,
    volume_class,
)
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import QuantityError, canonical
from setpoint.reconcile import Informer, key_of

CLAIMS, VOLUMES = builtin("persistentvolumeclaims"), builtin("persistentvolumes")
_PRE_RESIZE_CAPACITY = "volume.alpha.kubernetes.io/pre-resize-capacity"
_FREE, _UNBOUND = "free", "unbound"
_CLAIMED = "claimed"


def _revision(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Latest:
    """Returns own writes until the informer has caught up. Deciding by a stale cache could make the same decision
    twice, and differently."""

    def __init__(self, informer: Informer[Obj]) -> None:
        self._informer = informer
        self._written: dict[str, Obj] = {}
        informer.add_handler(self._seen)

    def get(self, key: str) -> Obj | None:
        return self._written.get(key) or self._informer.get(key)

    def by_index(self, name: str, value: str) -> Iterable[Obj]:
        """Return the objects of the informer's index in their latest known version, and those that the index may
        lack."""
        found = {key_of(obj): obj for obj in self._informer.by_index(name, value)}
        return {**found, **self._written}.values()

    def wrote(self, obj: Obj) -> Obj:
        key, seen = key_of(obj), self._informer.get(key_of(obj))
        behind = int(self._informer.resource_version or "0") < _revision(obj)
        if behind and (seen is None or _revision(seen) < _revision(obj)):
            self._written[key] = obj
        return obj

    def _seen(self, old: Obj | None, new: Obj | None) -> None:
        key = key_of(new or old or {})
        mine = self._written.get(key)
        if mine is not None and (new is None or _revision(new) >= _revision(mine)):
            del self._written[key]


# -- ledger -----------------------------------------------------------------------------------------------------------


def claim_key(reference: Obj) -> str:
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}"


def _free_in_class(volume: Obj) -> tuple[str, ...]:
    return () if volume["spec"].get("claimRef") else (volume_class(volume),)


def _claimed_by(volume: Obj) -> tuple[str, ...]:
    reference = volume["spec"].get("claimRef")
    return (claim_key(reference),) if reference else ()


def _unbound_in_class(claim: Obj) -> tuple[str, ...]:
    return () if claim["spec"].get("volumeName") else (claim_class(claim),)


class Ledger:
    """The known claims and volumes, and all writes of the binder."""

    def __init__(self, client: Client, claims: Informer[Obj], volumes: Informer[Obj]) -> None:
        self._client = client
        self._volume_informer, self._claim_informer = volumes, claims
        volumes.add_index(_FREE, _free_in_class)
        volumes.add_index(_CLAIMED, _claimed_by)
        claims.add_index(_UNBOUND, _unbound_in_class)
        self._volumes, self._claims = Latest(volumes), Latest(claims)
        self._binding: set[str] = set()
        """Names of the volumes that are being bound now, which other workers skip."""

    # -- reading ----------------------------------------------------------------------------------------------------

    def volume(self, name: str) -> Obj | None:
        return self._volumes.get(name)

    def claim(self, key: str) -> Obj | None:
        return self._claims.get(key)

    async def read_claim(self, key: str) -> Obj | None:
        """Read the claim from the server, because the cache may not have it yet."""
        namespace, _, name = key.partition("/")
        try:
            return self._claims.wrote(await self._client.get(CLAIMS, name, namespace))
        except NotFound:
            return None

    def unbound_claims(self, storage_class: str) -> list[str]:
        return [key_of(claim) for claim in self._claim_informer.by_index(_UNBOUND, storage_class)]

    def volumes_of(self, key: str) -> list[str]:
        """Return the names of the volumes whose claimRef names the claim."""
        return [volume["metadata"]["name"] for volume in self._volume_informer.by_index(_CLAIMED, key)]

    def best_for(self, claim: Obj, *, only_reserved: bool) -> Obj | None:
        """Return the best volume for the claim, or None. Volumes with exactly the requested access modes come first;
        among them the one reserved for the claim, or the smallest."""
        known = {
            volume["metadata"]["name"]: volume
            for volume in (
                *self._volumes.by_index(_CLAIMED, key_of(claim)),
                *(() if only_reserved else self._volumes.by_index(_FREE, claim_class(claim))),
            )
        }
        by_modes: dict[str, list[Obj]] = defaultdict(list)
        for name in sorted(known):
            volume = known[name]
            if has_access_modes(volume, claim):
                by_modes[access_modes_text(volume["spec"].get("accessModes"))].append(volume)
        for modes in sorted(by_modes, key=lambda text: (text.count(","), text)):
            busy = {
                volume["metadata"]["name"]
                for volume in by_modes[modes]
                if volume["metadata"]["name"] in self._binding and not is_reserved_for(volume, claim)
            }
            best = smallest_match(claim, by_modes[modes], only_reserved=only_reserved, excluded=busy)
            if best is not None:
                return best
        return None

    # -- writing ----------------------------------------------------------------------------------------------------

    async def save_volume(self, volume: Obj) -> Obj:
        return self._volumes.wrote(await self._client.update(volume))

    async def save_claim(self, claim: Obj) -> Obj:
        return self._claims.wrote(await self._client.update(claim))

    async def delete_volume(self, volume: Obj) -> None:
        meta = volume["metadata"]
        await self._client.delete(VOLUMES, meta["name"], uid=meta["uid"])

    async def set_phase(self, volume: Obj, phase: str, message: str = "") -> Obj:
        status = volume.get("status") or {}
        if status.get("phase") == phase:
            return volume
        status = {**status, "phase": phase, "message": message}
        if not message:
            del status["message"]
        return self._volumes.wrote(await self._client.update({**volume, "status": status}, subresource="status"))

    async def set_claim_status(self, claim: Obj, phase: str, volume: Obj | None) -> Obj:
        status = _claim_status(claim, phase, volume)
        if status == (claim.get("status") or {}):
            return claim
        return self._claims.wrote(await self._client.update({**claim, "status": status}, subresource="status"))

    async def bind(self, volume: Obj, claim: Obj) -> None:
        """Bind both objects and set their phases, the volume first. Only missing parts are written; after a failure the
        next reconcile continues."""
        name = volume["metadata"]["name"]
        self._binding.add(name)
        try:
            with_reference = _volume_for(volume, claim)
            volume = await self.save_volume(with_reference) if with_reference is not volume else volume
        finally:
            self._binding.discard(name)
        volume = await self.set_phase(volume, "Bound")
        bound = _claim_on(claim, name)
        claim = await self.save_claim(bound) if bound is not claim else claim
        await self.set_claim_status(claim, "Bound", volume)

    async def unbind(self, volume: Obj) -> None:
        """Release the volume; one that its author reserved stays reserved for a claim with that name."""
        await self.set_phase(await self.save_volume(_volume_freed(volume)), "Available")


def _volume_for(volume: Obj, claim: Obj) -> Obj:
    """Return the volume with a claimRef to the claim, or the volume itself if it has it."""
    meta = claim["metadata"]
    reference = volume["spec"].get("claimRef") or {}
    noted = annotations_of(volume)
    by_us = not is_reserved_for(volume, claim) and BOUND_BY_CONTROLLER not in noted
    if reference.get("uid") == meta["uid"] and not by_us:
        return volume
    changed = {**volume, "spec": {**volume["spec"], "claimRef": claim_reference(claim)}}
    return with_annotation(changed, BOUND_BY_CONTROLLER, "yes") if by_us else changed


def _volume_freed(volume: Obj) -> Obj:
    spec = {**volume["spec"]}
    if BOUND_BY_CONTROLLER not in annotations_of(volume):
        spec["claimRef"] = {key: value for key, value in spec["claimRef"].items() if key != "uid"}
        return {**volume, "spec": spec}
    del spec["claimRef"]
    annotations = {key: value for key, value in annotations_of(volume).items() if key != BOUND_BY_CONTROLLER}
    return {**volume, "metadata": {**volume["metadata"], "annotations": annotations}, "spec": spec}


def _claim_on(claim: Obj, volume: str) -> Obj:
    """Return the claim with a reference to the volume, or the claim itself if it is complete."""
    changed = claim
    if claim["spec"].get("volumeName") != volume:
        changed = {**claim, "spec": {**claim["spec"], "volumeName": volume}}
        changed = with_annotation(changed, BOUND_BY_CONTROLLER, "yes")
    if BIND_COMPLETED not in annotations_of(claim):
        changed = with_annotation(changed, BIND_COMPLETED, "yes")
    return changed


def with_annotation(obj: Obj, name: str, value: str) -> Obj:
    meta = {**obj["metadata"], "annotations": {**annotations_of(obj), name: value}}
    return {**obj, "metadata": meta}


def _claim_status(claim: Obj, phase: str, volume: Obj | None) -> Obj:
    old = claim.get("status") or {}
    status = {**old, "phase": phase}
    if volume is None:
        for name in ("accessModes", "capacity", "currentVolumeAttributesClassName"):
            status.pop(name, None)
        return status
    status["accessModes"] = volume["spec"].get("accessModes") or []
    if old.get("phase") == phase:
        # After the binding, the resizer owns the capacity: it may intentionally differ from the volume's.
        return status
    size = volume["spec"].get("capacity") or {}
    if _PRE_RESIZE_CAPACITY in annotations_of(volume):
        size = {**(old.get("capacity") or {}), "storage": _pre_resize(volume)}
    status["capacity"] = size
    attributes = volume["spec"].get("volumeAttributesClassName")
    if old.get("phase") == "Pending" and phase == "Bound" and attributes:
        status["currentVolumeAttributesClassName"] = attributes
    return status


def _pre_resize(volume: Obj) -> str:
    try:
        return canonical(annotations_of(volume)[_PRE_RESIZE_CAPACITY])
    except QuantityError:
        return str(volume["spec"]["capacity"]["storage"])
