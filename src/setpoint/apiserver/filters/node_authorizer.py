"""Authorization of nodes: users `system:node:<name>` in the group `system:nodes`.

A node may read most objects only if they are related to it: its own Node, Lease and CSINode, the Pods that are bound to
it, and what these Pods refer to. Everything else is the same for all nodes, and in the rules of the role `system:node`.
The admission plugin NodeRestriction decides what a node may change in an object that it may write.

    node <- Pod <- Secret, ConfigMap, ServiceAccount, ResourceClaim
    node <- Pod <- PersistentVolumeClaim <- PersistentVolume <- Secret
    node <- VolumeAttachment, ResourceSlice, PodCertificateRequest

Only two indexes are maintained beside the watch caches: the Pods of a node, and the volumes that refer to a Secret.
They are built with the first request of a node. The references of a Pod are computed when its node requests an object
of the Pod's namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.filters.authorize import Access, Decision, Rules, Ruling
from setpoint.apiserver.filters.rbac import covers_request, permits
from setpoint.apiserver.watch_cache import Change, ResourceCache, Watch
from setpoint.kinds.bootstrap.cluster_roles import CLUSTER_ROLES
from setpoint.kinds.core.references import config_map_names, secret_names, volume_secrets
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_PODS, _VOLUMES = "core/pods/", "core/persistentvolumes/"
_MIRROR = "kubernetes.io/config.mirror"

_Reference = tuple[str, str]
"""Plural and name of an object in the Pod's namespace."""
NODES = "system:nodes"
_USER = "system:node:"
_LEASES = "kube-node-lease"
_ATTACHMENTS, _SLICES, _REQUESTS = (
    "storage.k8s.io/volumeattachments/",
    "resource.k8s.io/resourceslices/",
    "certificates.k8s.io/podcertificaterequests/",
)
_READS = ("get", "list", "watch")
_OWN_VERBS = ("get", "create", "update", "patch", "delete")
_ALLOWED: Ruling = (Decision.ALLOW, "")
_NO_OPINION: Ruling = (Decision.NO_OPINION, "")


class _BoundPod:
    """A Pod that is bound to a node."""

    __slots__ = ("_checked", "_references", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._checked: Entry | None = None
        """The revision for which the references were last computed."""
        self._references: tuple[object, frozenset[_Reference]] | None = None

    def refers_to(self, reference: _Reference) -> bool:
        entry, known = self.entry, self._references
        if known is None or self._checked is not entry:
            # Only ephemeral containers of the spec can change; claims are created later.
            state = _mutable_state(entry.obj)
            if known is None or known[0] != state:
                known = self._references = (state, frozenset(_references(entry.obj)))
            self._checked = entry
        return reference in known[1]


def _mutable_state(pod: Obj) -> object:
    status = pod.get("status") or {}
    return (
        pod["metadata"]["uid"],
        pod["spec"].get("ephemeralContainers"),
        status.get("resourceClaimStatuses"),
        status.get("extendedResourceClaimStatus"),
    )


def _references(pod: Obj) -> Iterator[_Reference]:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if _MIRROR in (meta.get("annotations") or {}):
        return  # nodes create mirror Pods, which must grant no access
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
    claim_names = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for wanted in spec.get("resourceClaims") or ():
        name = wanted.get("resourceClaimName")
        if name is None and wanted.get("resourceClaimTemplateName") is not None:
            name = claim_names.get(wanted["name"])
        if name is not None:
            yield "resourceclaims", name
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if extended:
        yield "resourceclaims", extended


class NodeRelations:
    """The relations between nodes and objects."""

    def __init__(self, caches: Mapping[str, ResourceCache]) -> None:
        self._caches = caches
        self._is_following = False
        self._pods: dict[tuple[str, str], dict[str, _BoundPod]] = {}
        """Pods by node and namespace, then by key."""
        self._secrets: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
        """Volumes that refer to a Secret, with their claims, by namespace and name of the Secret."""

    def pod(self, node: str, namespace: str, name: str) -> bool:
        pod = self._object(_PODS, f"{namespace}/{name}")
        return pod is not None and pod["spec"].get("nodeName") == node

    def is_referenced(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Return whether a Pod of the node refers to the object."""
        if not self._is_following and not self._follow():
            return False
        reference = (plural, name)
        pods = self._pods.get((node, namespace))
        return pods is not None and any(pod.refers_to(reference) for pod in pods.values())

    def secret(self, node: str, namespace: str, name: str) -> bool:
        if self.is_referenced(node, "secrets", namespace, name):
            return True
        claims = self._secrets.get((namespace, name))
        return claims is not None and any(self.claim(node, *claim) for claim in claims.values())

    def claim(self, node: str, namespace: str, name: str) -> bool:
        return self.is_referenced(node, "persistentvolumeclaims", namespace, name)

    def volume(self, node: str, name: str) -> bool:
        volume = self._object(_VOLUMES, name)
        claim = volume["spec"].get("claimRef") if volume is not None else None
        return claim is not None and self.claim(node, claim.get("namespace", ""), claim.get("name", ""))

    def names_node(self, node: str, prefix: str, key: str) -> bool:
        """Return whether the spec of this object names the node."""
        obj = self._object(prefix, key)
        return obj is not None and obj["spec"].get("nodeName") == node

    def _object(self, prefix: str, key: str) -> Obj | None:
        cache = self._caches.get(prefix)
        entry = cache.get(prefix + key) if cache is not None else None
        return entry.obj if entry is not None else None

    # -- following the caches -------------------------------------------------------------------------------------

    def _follow(self) -> bool:
        """Build and watch the indexes. Return False while the server is still starting."""
        if any(prefix not in self._caches for prefix in (_PODS, _VOLUMES)):
            return False
        for prefix, index in ((_PODS, self._index_pod), (_VOLUMES, self._index_volume)):
            cache = self._caches[prefix]
            for entry in cache.scan():
                index(None, entry)
            cache.add(Watch.everything(_indexing(index), decoded=True))
        self._is_following = True
        return True

    def _index_pod(self, before: Entry | None, now: Entry | None) -> None:
        if now is not None:
            node = now.obj["spec"].get("nodeName")
            if not node:
                return
            place = (node, now.obj["metadata"]["namespace"])
            pods = self._pods.setdefault(place, {})
            placed = pods.get(now.key)
            if placed is None:
                pods[now.key] = _BoundPod(now)
            else:
                placed.entry = now
        elif before is not None:
            place = (before.obj["spec"].get("nodeName", ""), before.obj["metadata"]["namespace"])
            pods = self._pods.get(place, {})
            pods.pop(before.key, None)
            if not pods:
                self._pods.pop(place, None)

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


def _indexing(index: Callable[[Entry | None, Entry | None], None]) -> Callable[[str, Entry, Change], None]:
    def deliver(kind: str, entry: Entry, change: Change) -> None:
        index(change.before, change.now)

    return deliver


def node_of(user: UserInfo) -> str | None:
    """Return the name of the node, "" for a node without a name, or None if the user is no node."""
    if user.name.startswith(_USER) and NODES in user.groups:
        return user.name[len(_USER) :]
    return None


def _no_opinion(reason: str) -> Ruling:
    return Decision.NO_OPINION, reason


class NodeAuthorizer:
    name = "node"

    def __init__(self, relations: NodeRelations) -> None:
        self._relations = relations
        self._rules = CLUSTER_ROLES["system:node"]
        self._special: dict[tuple[str, str], Callable[[str, Access], Ruling]] = {
            ("", "secrets"): self._secret,
            ("", "configmaps"): self._config_map,
            ("", "persistentvolumeclaims"): self._claim,
            ("", "persistentvolumes"): self._volume,
            ("", "serviceaccounts"): self._service_account,
            ("", "nodes"): _node,
            ("", "pods"): self._pod,
            ("resource.k8s.io", "resourceclaims"): self._resource_claim,
            ("resource.k8s.io", "resourceslices"): self._resource_slice,
            ("storage.k8s.io", "volumeattachments"): self._volume_attachment,
            ("storage.k8s.io", "csinodes"): _csi_node,
            ("coordination.k8s.io", "leases"): _lease,
            ("certificates.k8s.io", "podcertificaterequests"): self._pod_certificate_request,
        }

    def authorize(self, access: Access) -> Ruling:
        user = access.user
        if not user.name.startswith(_USER) or NODES not in user.groups:
            return _NO_OPINION
        node = user.name[len(_USER) :]
        if not node:
            return _no_opinion(f"unknown node for user {quote(user.name)}")
        if access.path is None:
            special = self._special.get((access.group, access.resource))
            if special is not None:
                return special(node, access)
        for rule in self._rules:
            if covers_request(rule, access) and permits(rule, access):
                return _ALLOWED
        return _NO_OPINION

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        if node_of(user) is None:
            return Rules([], [])
        return Rules([], ["node authorizer does not support user rule resolution"], incomplete=True)

    # -- objects that the node's Pods refer to ------------------------------------------------------------------------

    def _secret(self, node: str, access: Access) -> Ruling:
        return _refused_read(access) or _related(
            node, access, lambda: self._relations.secret(node, access.namespace, access.name)
        )

    def _config_map(self, node: str, access: Access) -> Ruling:
        return _refused_read(access) or self._referred(node, access)

    def _claim(self, node: str, access: Access) -> Ruling:
        if access.subresource != "status":
            return _refused_get(access) or self._referred(node, access)
        if access.verb not in ("update", "patch"):
            return _no_opinion("can only get/update/patch this type")
        return self._referred(node, access)

    def _volume(self, node: str, access: Access) -> Ruling:
        return _refused_get(access) or _related(node, access, lambda: self._relations.volume(node, access.name))

    def _resource_claim(self, node: str, access: Access) -> Ruling:
        return _refused_get(access) or self._referred(node, access)

    def _volume_attachment(self, node: str, access: Access) -> Ruling:
        return _refused_get(access) or self._named(node, access, _ATTACHMENTS)

    def _service_account(self, node: str, access: Access) -> Ruling:
        if access.verb == "get" and not access.subresource:
            return _refused_read(access) or self._referred(node, access)
        if access.verb != "create" or not access.name:
            return _no_opinion("can only create tokens for individual service accounts")
        if access.subresource != "token":
            return _no_opinion("can only create token subresource of serviceaccount")
        return self._referred(node, access)

    def _referred(self, node: str, access: Access) -> Ruling:
        return _related(
            node, access, lambda: self._relations.is_referenced(node, access.resource, access.namespace, access.name)
        )

    def _named(self, node: str, access: Access, prefix: str) -> Ruling:
        key = f"{access.namespace}/{access.name}" if access.namespace else access.name
        return _related(node, access, lambda: self._relations.names_node(node, prefix, key))

    # -- kinds with special rules -------------------------------------------------------------------------------------

    def _pod(self, node: str, access: Access) -> Ruling:
        verb = access.verb
        if access.subresource == "status":
            return _ALLOWED if verb in ("update", "patch") else _NO_OPINION
        if access.subresource == "eviction":
            return _ALLOWED if verb == "create" else _NO_OPINION
        if access.subresource or verb not in (*_READS, "create", "delete"):
            return _NO_OPINION
        if verb in ("create", "delete"):
            return _ALLOWED  # mirror Pods
        if verb != "get":
            if _selects_only(access, "spec.nodeName", node):
                return _ALLOWED
            if not access.name:
                return _no_opinion("can only list/watch pods with spec.nodeName field selector")
        return _related(node, access, lambda: self._relations.pod(node, access.namespace, access.name))

    def _resource_slice(self, node: str, access: Access) -> Ruling:
        verb = access.verb
        if access.subresource:
            return _no_opinion("cannot authorize ResourceSlice subresources")
        if verb == "create":
            return _ALLOWED
        if verb in ("get", "update", "patch", "delete"):
            return self._named(node, access, _SLICES)
        if verb not in ("watch", "list", "deletecollection"):
            return _no_opinion(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, "
                "delete, deletecollection"
            )
        if _selects_only(access, "spec.nodeName", node):
            return _ALLOWED
        return _no_opinion("can only list/watch/deletecollection resourceslices with nodeName field selector")

    def _pod_certificate_request(self, node: str, access: Access) -> Ruling:
        verb = access.verb
        if access.subresource:
            return _no_opinion("nodes may not access the status subresource of PodCertificateRequests")
        if verb == "create":
            return _ALLOWED
        if verb == "get":
            return self._named(node, access, _REQUESTS)
        if verb not in ("list", "watch"):
            return _no_opinion(f"nodes may not {verb} podcertificaterequests")
        if _selects_only(access, "spec.nodeName", node):
            return _ALLOWED
        return _no_opinion("can only list/watch podcertificaterequests with nodeName field selector")


def _node(node: str, access: Access) -> Ruling:
    verb, name = access.verb, access.name
    if access.subresource == "status":
        return _ALLOWED if verb in ("update", "patch") else _NO_OPINION
    if access.subresource:
        return _NO_OPINION
    if verb in ("create", "update", "patch"):
        return _ALLOWED
    if verb not in _READS:
        return _NO_OPINION
    if name == node:
        return _ALLOWED
    if not name:
        return _no_opinion(f"node '{node}' cannot read all nodes, only its own Node object")
    return _no_opinion(f"node '{node}' cannot read '{name}', only its own Node object")


def _lease(node: str, access: Access) -> Ruling:
    if access.verb not in _OWN_VERBS:
        return _no_opinion("can only get, create, update, patch, or delete a node lease")
    if access.namespace != _LEASES:
        return _no_opinion(f"can only access leases in the {quote(_LEASES)} system namespace")
    # The name is unknown at creation; admission checks it.
    if access.verb != "create" and access.name != node:
        return _no_opinion("can only access node lease with the same name as the requesting node")
    return _ALLOWED


def _csi_node(node: str, access: Access) -> Ruling:
    if access.subresource == "status":
        return _no_opinion("CSINode status access requires CSIVolumeHealth feature")
    if access.subresource:
        return _no_opinion("cannot authorize CSINode subresources")
    if access.verb not in _OWN_VERBS:
        return _no_opinion("can only get, create, update, patch, or delete a CSINode")
    if access.verb != "create" and access.name != node:
        return _no_opinion("can only access CSINode with the same name as the requesting node")
    return _ALLOWED


def _refused_read(access: Access) -> Ruling | None:
    if access.verb not in _READS:
        return _no_opinion("can only read resources of this type")
    if access.subresource:
        return _no_opinion("cannot read subresource")
    return None if access.namespace else _no_opinion("can only read namespaced object of this type")


def _refused_get(access: Access) -> Ruling | None:
    if access.verb != "get":
        return _no_opinion("can only get individual resources of this type")
    return _no_opinion("cannot get subresource") if access.subresource else None


def _related(node: str, access: Access, related: Callable[[], bool]) -> Ruling:
    if not access.name:
        return _no_opinion("No Object name found")
    return _ALLOWED if related() else _no_opinion(f"no relationship found between node '{node}' and this object")


def _selects_only(access: Access, field: str, value: str) -> bool:
    """Return whether the request selects only objects whose field has this value."""
    return any(
        requirement.key == field and requirement.operator == "=" and requirement.values == (value,)
        for requirement in access.fields
    )
