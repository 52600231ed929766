"""What nodes may do: a user `system:node:<name>` in the group `system:nodes`.

Most objects a node may read only if they have to do with it: its own Node, Lease and CSINode, the Pods on it, what
these Pods refer to. All else is the same for every node, and is in the rules of the role `system:node`. What a node may
write into an object that it may write is the business of the admission plugin NodeRestriction.
"""

from __future__ import annotations

from collections.abc import Callable

from setpoint.apiserver.filters.authorize import Access, Decision, Rules
from setpoint.apiserver.filters.node_relations import NodeRelations
from setpoint.apiserver.filters.rbac_rules import concerns, permits
from setpoint.kinds.bootstrap.cluster_roles import CLUSTER_ROLES
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.goformat import quote

NODES = "system:nodes"
_USER = "system:node:"
_LEASES = "kube-node-lease"
_ATTACHMENTS, _SLICES, _REQUESTS = (
    "storage.k8s.io/volumeattachments/", "resource.k8s.io/resourceslices/",
    "certificates.k8s.io/podcertificaterequests/",
)  # fmt: skip
_READS = ("get", "list", "watch")
_OWN_VERBS = ("get", "create", "update", "patch", "delete")

_Ruling = tuple[Decision, str]
_ALLOWED: _Ruling = (Decision.ALLOW, "")
_SILENCE: _Ruling = (Decision.NO_OPINION, "")


def node_of(user: UserInfo) -> str | None:
    """None: the user is no node; empty: a node without a name."""
    if user.name.startswith(_USER) and NODES in user.groups:
        return user.name[len(_USER) :]
    return None


def _no(reason: str) -> _Ruling:
    return Decision.NO_OPINION, reason


class NodeAuthorizer:
    name = "node"

    def __init__(self, relations: NodeRelations) -> None:
        self._relations = relations
        self._rules = CLUSTER_ROLES["system:node"]
        self._special: dict[tuple[str, str], Callable[[str, Access], _Ruling]] = {
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

    def authorize(self, access: Access) -> _Ruling:
        user = access.user
        if not user.name.startswith(_USER) or NODES not in user.groups:
            return _SILENCE
        node = user.name[len(_USER) :]
        if not node:
            return _no(f"unknown node for user {quote(user.name)}")
        if access.path is None:
            special = self._special.get((access.group, access.resource))
            if special is not None:
                return special(node, access)
        for rule in self._rules:
            if concerns(rule, access) and permits(rule, access):
                return _ALLOWED
        return _SILENCE

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        if node_of(user) is None:
            return Rules([], [])
        return Rules([], ["node authorizer does not support user rule resolution"], incomplete=True)

    # -- what the Pods of the node refer to -------------------------------------------------------------------------

    def _secret(self, node: str, access: Access) -> _Ruling:
        return _refused_read(access) or _related(
            node, access, lambda: self._relations.secret(node, access.namespace, access.name)
        )

    def _config_map(self, node: str, access: Access) -> _Ruling:
        return _refused_read(access) or self._referred(node, access)

    def _claim(self, node: str, access: Access) -> _Ruling:
        if access.subresource != "status":
            return _refused_get(access) or self._referred(node, access)
        if access.verb not in ("update", "patch"):
            return _no("can only get/update/patch this type")
        return self._referred(node, access)

    def _volume(self, node: str, access: Access) -> _Ruling:
        return _refused_get(access) or _related(node, access, lambda: self._relations.volume(node, access.name))

    def _resource_claim(self, node: str, access: Access) -> _Ruling:
        return _refused_get(access) or self._referred(node, access)

    def _volume_attachment(self, node: str, access: Access) -> _Ruling:
        return _refused_get(access) or self._named(node, access, _ATTACHMENTS)

    def _service_account(self, node: str, access: Access) -> _Ruling:
        if access.verb == "get" and not access.subresource:
            return _refused_read(access) or self._referred(node, access)
        if access.verb != "create" or not access.name:
            return _no("can only create tokens for individual service accounts")
        if access.subresource != "token":
            return _no("can only create token subresource of serviceaccount")
        return self._referred(node, access)

    def _referred(self, node: str, access: Access) -> _Ruling:
        return _related(
            node, access, lambda: self._relations.referred(node, access.resource, access.namespace, access.name)
        )

    def _named(self, node: str, access: Access, prefix: str) -> _Ruling:
        key = f"{access.namespace}/{access.name}" if access.namespace else access.name
        return _related(node, access, lambda: self._relations.named_in(node, prefix, key))

    # -- kinds with rules of their own ------------------------------------------------------------------------------

    def _pod(self, node: str, access: Access) -> _Ruling:
        verb = access.verb
        if access.subresource == "status":
            return _ALLOWED if verb in ("update", "patch") else _SILENCE
        if access.subresource == "eviction":
            return _ALLOWED if verb == "create" else _SILENCE
        if access.subresource or verb not in (*_READS, "create", "delete"):
            return _SILENCE
        if verb in ("create", "delete"):
            return _ALLOWED  # mirror Pods
        if verb != "get":
            if _confined(access, "spec.nodeName", node):
                return _ALLOWED
            if not access.name:
                return _no("can only list/watch pods with spec.nodeName field selector")
        return _related(node, access, lambda: self._relations.pod(node, access.namespace, access.name))

    def _resource_slice(self, node: str, access: Access) -> _Ruling:
        verb = access.verb
        if access.subresource:
            return _no("cannot authorize ResourceSlice subresources")
        if verb == "create":
            return _ALLOWED
        if verb in ("get", "update", "patch", "delete"):
            return self._named(node, access, _SLICES)
        if verb not in ("watch", "list", "deletecollection"):
            return _no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, "
                "delete, deletecollection"
            )
        if _confined(access, "spec.nodeName", node):
            return _ALLOWED
        return _no("can only list/watch/deletecollection resourceslices with nodeName field selector")

    def _pod_certificate_request(self, node: str, access: Access) -> _Ruling:
        verb = access.verb
        if access.subresource:
            return _no("nodes may not access the status subresource of PodCertificateRequests")
        if verb == "create":
            return _ALLOWED
        if verb == "get":
            return self._named(node, access, _REQUESTS)
        if verb not in ("list", "watch"):
            return _no(f"nodes may not {verb} podcertificaterequests")
        if _confined(access, "spec.nodeName", node):
            return _ALLOWED
        return _no("can only list/watch podcertificaterequests with nodeName field selector")


def _node(node: str, access: Access) -> _Ruling:
    verb, name = access.verb, access.name
    if access.subresource == "status":
        return _ALLOWED if verb in ("update", "patch") else _SILENCE
    if access.subresource:
        return _SILENCE
    if verb in ("create", "update", "patch"):
        return _ALLOWED
    if verb not in _READS:
        return _SILENCE
    if name == node:
        return _ALLOWED
    if not name:
        return _no(f"node '{node}' cannot read all nodes, only its own Node object")
    return _no(f"node '{node}' cannot read '{name}', only its own Node object")


def _lease(node: str, access: Access) -> _Ruling:
    if access.verb not in _OWN_VERBS:
        return _no("can only get, create, update, patch, or delete a node lease")
    if access.namespace != _LEASES:
        return _no(f"can only access leases in the {quote(_LEASES)} system namespace")
    # On creation nobody knows the name yet; admission does.
    if access.verb != "create" and access.name != node:
        return _no("can only access node lease with the same name as the requesting node")
    return _ALLOWED


def _csi_node(node: str, access: Access) -> _Ruling:
    if access.subresource == "status":
        return _no("CSINode status access requires CSIVolumeHealth feature")
    if access.subresource:
        return _no("cannot authorize CSINode subresources")
    if access.verb not in _OWN_VERBS:
        return _no("can only get, create, update, patch, or delete a CSINode")
    if access.verb != "create" and access.name != node:
        return _no("can only access CSINode with the same name as the requesting node")
    return _ALLOWED


def _refused_read(access: Access) -> _Ruling | None:
    if access.verb not in _READS:
        return _no("can only read resources of this type")
    if access.subresource:
        return _no("cannot read subresource")
    return None if access.namespace else _no("can only read namespaced object of this type")


def _refused_get(access: Access) -> _Ruling | None:
    if access.verb != "get":
        return _no("can only get individual resources of this type")
    return _no("cannot get subresource") if access.subresource else None


def _related(node: str, access: Access, related: Callable[[], bool]) -> _Ruling:
    if not access.name:
        return _no("No Object name found")
    return _ALLOWED if related() else _no(f"no relationship found between node '{node}' and this object")


def _confined(access: Access, field: str, value: str) -> bool:
    """Whether the request is for objects of which this field has this value, and for no others."""
    return any(
        requirement.key == field and requirement.operator == "=" and requirement.values == (value,)
        for requirement in access.fields
    )
