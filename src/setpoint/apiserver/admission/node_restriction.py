"""NodeRestriction: a node writes what is its own and nothing else."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable

from setpoint.apiserver.admission.node_tokens import NodeTokens
from setpoint.apiserver.admission.plugin import Attributes, Obj, Plugin, Reader
from setpoint.apiserver.admission.service_account import MIRROR
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.filters.node_authorizer import node_of
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.pod_references import UnknownSource, api_reference
from setpoint.meta.errors import NotFound

_USER = "system:node:"
_LEASES = "kube-node-lease"
_NODE_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_OWN_LABELS = frozenset({
    "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type", "kubernetes.io/os", "kubernetes.io/arch",
    "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
})  # fmt: skip
_OWN_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_CLAIM_STATUS = frozenset({"capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"})
_HOUSEKEEPING = frozenset({"resourceVersion", "managedFields"})


class NodeRestriction(Plugin):
    name = "NodeRestriction"

    def __init__(self, reader: Reader, authorizer: AuthorizerChain) -> None:
        self._reader = reader
        self._tokens = NodeTokens(reader, authorizer)
        self._rules: dict[tuple[str, str], Callable[[str, Attributes], Awaitable[None] | None]] = {
            ("", "pods"): self._pod,
            ("", "nodes"): _node,
            ("", "persistentvolumeclaims"): _claim,
            ("", "serviceaccounts"): self._tokens.check_token,
            ("certificates.k8s.io", "podcertificaterequests"): self._tokens.check_certificate,
            ("certificates.k8s.io", "certificatesigningrequests"): _signing_request,
            ("coordination.k8s.io", "leases"): _lease,
            ("storage.k8s.io", "csinodes"): _csi_node,
            ("resource.k8s.io", "resourceslices"): _resource_slice,
        }

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation != "CONNECT" and (resource.group, resource.plural) in self._rules

    async def mutate(self, attrs: Attributes) -> None:
        node = node_of(attrs.user)
        if node is None:
            return
        if not node:
            raise attrs.forbidden(f'could not determine node from user "{attrs.user.name}"')
        pending = self._rules[(attrs.resource.group, attrs.resource.plural)](node, attrs)
        if pending is not None:
            await pending

    # -- Pods -----------------------------------------------------------------------------------------------------

    def _pod(self, node: str, attrs: Attributes) -> None:
        if attrs.subresource == "status":
            _pod_status(node, attrs)
        elif attrs.subresource == "eviction":
            if attrs.operation != "CREATE":
                raise attrs.forbidden(f"unexpected operation {attrs.operation}")
            if self._bound_to(attrs) != node:
                raise attrs.forbidden(f"node {node} can only evict pods with spec.nodeName set to itself")
        elif attrs.subresource:
            raise attrs.forbidden(
                f"unexpected pod subresource \"{attrs.subresource}\", only 'status' and 'eviction' are allowed"
            )
        elif attrs.operation == "CREATE":
            self._mirror_pod(node, attrs)
        elif attrs.operation == "DELETE":
            if self._bound_to(attrs) != node:
                raise attrs.forbidden(f'node "{node}" can only delete pods with spec.nodeName set to itself')
        else:
            raise attrs.forbidden(
                f'unexpected operation "{attrs.operation}", node "{node}" can only create and delete mirror pods'
            )

    def _bound_to(self, attrs: Attributes) -> str:
        """The node of the stored Pod."""
        name = attrs.name or ((attrs.obj or {}).get("metadata") or {}).get("name", "")
        if not name:
            raise attrs.forbidden("could not determine pod from request data")
        pod = self._reader.get("", "pods", attrs.namespace, name)
        if pod is None:
            raise NotFound.of("", "pod", name)
        bound: str = pod["spec"].get("nodeName", "")
        return bound

    def _mirror_pod(self, node: str, attrs: Attributes) -> None:
        assert attrs.obj is not None
        meta, spec = attrs.obj["metadata"], attrs.obj["spec"]
        if MIRROR not in (meta.get("annotations") or {}):
            raise attrs.forbidden(f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods')
        only = f'node "{node}" can only create pods with'
        if spec.get("nodeName", "") != node:
            raise attrs.forbidden(f"{only} spec.nodeName set to itself")
        owners = meta.get("ownerReferences") or []
        if len(owners) > 1:
            raise attrs.forbidden(f"{only} a single owner reference set to itself")
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            raise attrs.forbidden(f"{only} an owner reference set to itself")
        if not owner.get("controller"):
            raise attrs.forbidden(f"{only} a controller owner reference set to itself")
        if owner.get("blockOwnerDeletion"):
            raise attrs.forbidden(f'node "{node}" must not set blockOwnerDeletion on an owner reference')
        found = self._reader.get("", "nodes", "", node)
        if found is None:
            raise NotFound.of("", "node", node)
        if owner.get("uid", "") != found["metadata"]["uid"]:
            why = f"node {node} UID mismatch: expected {owner.get('uid', '')} got {found['metadata']['uid']}"
            raise attrs.forbidden(why)
        try:
            reference = api_reference(spec)
        except UnknownSource as error:
            raise attrs.forbidden(f"error checking mirror pod for API references: {error}") from None
        if reference:
            raise attrs.forbidden(f'node "{node}" can not create pods that reference {reference}')


def _pod_status(node: str, attrs: Attributes) -> None:
    if attrs.operation != "UPDATE":
        raise attrs.forbidden(f'unexpected operation "{attrs.operation}"')
    assert attrs.obj is not None and attrs.old is not None
    if attrs.old["spec"].get("nodeName", "") != node:
        raise attrs.forbidden(f'node "{node}" can only update pod status for pods with spec.nodeName set to itself')
    if (attrs.old["metadata"].get("labels") or {}) != (attrs.obj["metadata"].get("labels") or {}):
        raise attrs.forbidden(f'node "{node}" cannot update labels through pod status')
    now, before = attrs.obj.get("status") or {}, attrs.old.get("status") or {}
    for key, what in (
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
    ):
        if (now.get(key) or None) != (before.get(key) or None):
            raise attrs.forbidden(f'node "{node}" cannot update {what}')


def _node(node: str, attrs: Attributes) -> None:
    if attrs.name != node:
        raise attrs.forbidden(f'node "{node}" is not allowed to modify node "{attrs.name}"')
    if attrs.obj is None:
        return
    spec, labels = attrs.obj.get("spec") or {}, attrs.obj["metadata"].get("labels") or {}
    if attrs.old is None:
        if spec.get("configSource") is not None:
            raise attrs.forbidden(f'node "{node}" is not allowed to create pods with a non-nil configSource')
        forbidden = _forbidden_labels(labels, {})
        if forbidden:
            raise attrs.forbidden(f'node "{node}" is not allowed to set the following labels: {forbidden}')
        return
    old_spec, old_meta = attrs.old.get("spec") or {}, attrs.old["metadata"]
    if spec.get("configSource") is not None and spec["configSource"] != old_spec.get("configSource"):
        raise attrs.forbidden(f'node "{node}" is not allowed to update configSource to a new non-nil configSource')
    if (spec.get("taints") or []) != (old_spec.get("taints") or []):
        raise attrs.forbidden(f'node "{node}" is not allowed to modify taints')
    if (attrs.obj["metadata"].get("ownerReferences") or []) != (old_meta.get("ownerReferences") or []):
        raise attrs.forbidden(f'node "{node}" is not allowed to modify ownerReferences')
    forbidden = _forbidden_labels(labels, old_meta.get("labels") or {})
    if forbidden:
        raise attrs.forbidden(f"is not allowed to modify labels: {forbidden}")


def _forbidden_labels(labels: Obj, old: Obj) -> str:
    """Those that changed and are not the node's to change: with them it could draw Pods to itself."""
    changed = {key for key in labels.keys() | old.keys() if labels.get(key) != old.get(key)}
    return ", ".join(sorted(key for key in changed if not _is_own_label(key)))


def _is_own_label(key: str) -> bool:
    namespace = key.partition("/")[0] if "/" in key else ""
    if _within(namespace, "node-restriction.kubernetes.io"):
        return False
    if not (_within(namespace, "kubernetes.io") or _within(namespace, "k8s.io")):
        return True
    return key in _OWN_LABELS or any(_within(namespace, own) for own in _OWN_NAMESPACES)


def _within(namespace: str, domain: str) -> bool:
    return namespace == domain or namespace.endswith("." + domain)


def _claim(node: str, attrs: Attributes) -> None:
    if attrs.subresource != "status":
        raise attrs.forbidden("may only update PVC status")
    if attrs.operation != "UPDATE":
        raise attrs.forbidden(f'unexpected operation "{attrs.operation}"')
    assert attrs.obj is not None and attrs.old is not None
    now, before = _comparable_claim(attrs.obj), _comparable_claim(attrs.old)
    if now != before:
        changed = ", ".join(sorted(key for key in now.keys() | before.keys() if now.get(key) != before.get(key)))
        raise attrs.forbidden(
            f'node "{node}" is not allowed to update fields other than status.quantity and status.conditions: {changed}'
        )


def _comparable_claim(claim: Obj) -> Obj:
    meta = {key: value for key, value in claim["metadata"].items() if key not in _HOUSEKEEPING}
    status = {key: value for key, value in (claim.get("status") or {}).items() if key not in _CLAIM_STATUS}
    return {**claim, "metadata": meta, "status": status}


def _lease(node: str, attrs: Attributes) -> None:
    if attrs.namespace != _LEASES:
        raise attrs.forbidden(f'can only access leases in the "{_LEASES}" system namespace')
    if attrs.name != node:
        raise attrs.forbidden("can only access node lease with the same name as the requesting node")


def _csi_node(node: str, attrs: Attributes) -> None:
    if attrs.name != node:
        raise attrs.forbidden("can only access CSINode with the same name as the requesting node")
    if attrs.subresource == "status":
        raise attrs.forbidden("CSIVolumeHealth feature gate is disabled")


def _resource_slice(node: str, attrs: Attributes) -> None:
    obj, verb = (attrs.obj, "create") if attrs.operation == "CREATE" else (attrs.old, "delete")
    if attrs.operation == "UPDATE" or obj is None:
        return
    if obj["spec"].get("nodeName") != node:
        raise attrs.forbidden(f"can only {verb} ResourceSlice with the same NodeName as the requesting node")


def _signing_request(node: str, attrs: Attributes) -> None:
    if attrs.operation != "CREATE" or attrs.subresource:
        return
    # Certificates take long to import and are rarely asked for.
    from setpoint.apiserver.admission.request_subject import subject_of

    assert attrs.obj is not None
    spec = attrs.obj["spec"]
    if spec.get("signerName") not in _NODE_SIGNERS:
        return
    try:
        subject = subject_of(b64decode(spec.get("request") or ""))
    except ValueError as error:
        raise attrs.forbidden(f"unable to parse csr: {error}") from None
    if subject.common_name != _USER + node:
        raise attrs.forbidden(f"can only create a node CSR with CN={_USER}{node}")
