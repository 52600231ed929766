"""Which objects have to do with which node: those that its Pods refer to, and what these refer to in turn.

    node <- Pod <- Secret, ConfigMap, ServiceAccount, ResourceClaim
    node <- Pod <- PersistentVolumeClaim <- PersistentVolume <- Secret
    node <- VolumeAttachment, ResourceSlice, PodCertificateRequest

Nothing is kept but what the caches cannot tell at once: which Pods are on a node, and which volumes refer to a Secret.
That is followed from the first question on; what a Pod refers to is worked out when a node asks for something in the
Pod's namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from setpoint.apiserver.watch_cache import Change, Entry, Obj, ResourceCache, Watch
from setpoint.kinds.core.pod_references import config_map_names, secret_names
from setpoint.kinds.core.volume_secrets import volume_secrets
from setpoint.meta.selectors import EVERYTHING

_PODS, _VOLUMES = "core/pods/", "core/persistentvolumes/"
_MIRROR = "kubernetes.io/config.mirror"

_Reference = tuple[str, str]
"""Plural and name of an object in the Pod's namespace."""


class _Placed:
    """A Pod on a node."""

    __slots__ = ("_known", "_told", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._told: Entry | None = None
        """The revision that was looked at last."""
        self._known: tuple[object, frozenset[_Reference]] | None = None

    def refers_to(self, reference: _Reference) -> bool:
        entry, known = self.entry, self._known
        if known is None or self._told is not entry:
            # What is in the spec stays as it is but for ephemeral containers; claims are made later.
            state = _changeable(entry.obj)
            if known is None or known[0] != state:
                known = self._known = (state, frozenset(_references(entry.obj)))
            self._told = entry
        return reference in known[1]


def _changeable(pod: Obj) -> object:
    status = pod.get("status") or {}
    return (
        pod["metadata"]["uid"], pod["spec"].get("ephemeralContainers"), status.get("resourceClaimStatuses"),
        status.get("extendedResourceClaimStatus"),
    )  # fmt: skip


def _references(pod: Obj) -> Iterator[_Reference]:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if _MIRROR in (meta.get("annotations") or {}):
        return  # a node makes these by itself, and must not get at anything by them
    if spec.get("serviceAccountName"):
        yield "serviceaccounts", spec["serviceAccountName"]
    yield from (("secrets", name) for name in secret_names(spec))
    yield from (("configmaps", name) for name in config_map_names(spec))
    for volume in spec.get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            yield "persistentvolumeclaims", claim.get("claimName", "")
        elif volume.get("ephemeral") is not None:
            yield "persistentvolumeclaims", f"{meta['name']}-{volume['name']}"
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for wanted in spec.get("resourceClaims") or ():
        name = wanted.get("resourceClaimName")
        if name is None and wanted.get("resourceClaimTemplateName") is not None:
            name = made.get(wanted["name"])
        if name is not None:
            yield "resourceclaims", name
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if extended:
        yield "resourceclaims", extended


class NodeRelations:
    def __init__(self, caches: Mapping[str, ResourceCache]) -> None:
        self._caches = caches
        self._following = False
        self._placed: dict[tuple[str, str], dict[str, _Placed]] = {}
        """Pods by node and namespace, and by key."""
        self._secrets: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
        """By namespace and name of a Secret: the volumes that refer to it, and the claim of each."""

    def pod(self, node: str, namespace: str, name: str) -> bool:
        pod = self._object(_PODS, f"{namespace}/{name}")
        return pod is not None and pod["spec"].get("nodeName") == node

    def referred(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """By a Pod of the node."""
        if not self._following and not self._follow():
            return False
        reference = (plural, name)
        pods = self._placed.get((node, namespace))
        return pods is not None and any(pod.refers_to(reference) for pod in pods.values())

    def secret(self, node: str, namespace: str, name: str) -> bool:
        if self.referred(node, "secrets", namespace, name):
            return True
        claims = self._secrets.get((namespace, name))
        return claims is not None and any(self.claim(node, *claim) for claim in claims.values())

    def claim(self, node: str, namespace: str, name: str) -> bool:
        return self.referred(node, "persistentvolumeclaims", namespace, name)

    def volume(self, node: str, name: str) -> bool:
        volume = self._object(_VOLUMES, name)
        claim = volume["spec"].get("claimRef") if volume is not None else None
        return claim is not None and self.claim(node, claim.get("namespace", ""), claim.get("name", ""))

    def named_in(self, node: str, prefix: str, key: str) -> bool:
        """Whether the spec of this object says that it belongs to the node."""
        obj = self._object(prefix, key)
        return obj is not None and obj["spec"].get("nodeName") == node

    def _object(self, prefix: str, key: str) -> Obj | None:
        cache = self._caches.get(prefix)
        entry = cache.get(prefix + key) if cache is not None else None
        return entry.obj if entry is not None else None

    # -- following the caches -------------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """False while the server is still starting."""
        if any(prefix not in self._caches for prefix in (_PODS, _VOLUMES)):
            return False
        for prefix, index in ((_PODS, self._index_pod), (_VOLUMES, self._index_volume)):
            cache = self._caches[prefix]
            for entry in cache.scan():
                index(None, entry)
            cache.add(
                Watch(
                    namespace="", name="", labels=EVERYTHING, fields=EVERYTHING, fields_of=_no_fields,
                    deliver=_telling(index), decoded=True,
                )
            )  # fmt: skip
        self._following = True
        return True

    def _index_pod(self, before: Entry | None, now: Entry | None) -> None:
        if now is not None:
            node = now.obj["spec"].get("nodeName")
            if not node:
                return
            place = (node, now.obj["metadata"]["namespace"])
            pods = self._placed.setdefault(place, {})
            placed = pods.get(now.key)
            if placed is None:
                pods[now.key] = _Placed(now)
            else:
                placed.entry = now
        elif before is not None:
            place = (before.obj["spec"].get("nodeName", ""), before.obj["metadata"]["namespace"])
            pods = self._placed.get(place, {})
            pods.pop(before.key, None)
            if not pods:
                self._placed.pop(place, None)

    def _index_volume(self, before: Entry | None, now: Entry | None) -> None:
        for entry in (before, now):
            if entry is None:
                continue
            name, claim = entry.obj["metadata"]["name"], entry.obj["spec"].get("claimRef")
            if claim is None:
                continue
            for secret in volume_secrets(entry.obj["spec"]):
                if entry is now:
                    self._secrets.setdefault(secret, {})[name] = (claim.get("namespace", ""), claim.get("name", ""))
                elif secret in self._secrets:
                    self._secrets[secret].pop(name, None)
                    if not self._secrets[secret]:
                        del self._secrets[secret]


def _telling(index: Callable[[Entry | None, Entry | None], None]) -> Callable[[str, Entry, Change], None]:
    def deliver(kind: str, entry: Entry, change: Change) -> None:
        index(change.before, change.now)

    return deliver


def _no_fields(_: Entry) -> dict[str, Any]:
    return {}
