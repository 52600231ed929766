"""NodeRestriction: a node may write only the objects that belong to it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.apiserver.admission.service_account import MIRROR
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain
from setpoint.apiserver.filters.node_authorizer import node_of
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.references import UnknownSource, api_reference
from setpoint.meta.errors import NotFound, PlainServerError
from setpoint.meta.goformat import aggregate
from setpoint.meta.node_labels import DEPRECATED, HOSTNAME
from setpoint.meta.objects import Obj

_USER = "system:node:"
_LEASES = "kube-node-lease"
_NODE_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
_OWN_LABELS = frozenset({HOSTNAME, *DEPRECATED, *DEPRECATED.values()})
_OWN_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_CLAIM_STATUS = frozenset({"capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"})
_IGNORED_METADATA = frozenset({"resourceVersion", "managedFields"})


class _NodeTokens:
    """Requests of a node on behalf of its Pods: service account tokens and Pod certificates."""

    def __init__(self, reader: Reader, authorizer: AuthorizerChain) -> None:
        self._reader = reader
        self._authorizer = authorizer

    async def check_token(self, node: str, attrs: Attributes) -> None:
        if attrs.operation != "CREATE" or attrs.subresource != "token":
            return
        assert attrs.obj is not None
        spec = attrs.obj.get("spec") or {}
        ref = spec.get("boundObjectRef") or {}
        if (ref.get("apiVersion"), ref.get("kind")) != ("v1", "Pod") or not ref.get("name"):
            raise attrs.forbidden("node requested token not bound to a pod")
        if not ref.get("uid"):
            raise attrs.forbidden("node requested token with a pod binding without a uid")
        pod = self._reader.get("", "pods", attrs.namespace, ref["name"])
        if pod is None:
            raise NotFound.of("", "pod", ref["name"])
        if ref["uid"] != pod["metadata"]["uid"]:
            raise attrs.forbidden(
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record. The object "
                "might have been deleted and then recreated"
            )
        if pod["spec"].get("nodeName", "") != node:
            raise attrs.forbidden("node requested token bound to a pod scheduled on a different node")
        await self._check_audience(attrs, pod, spec.get("audiences") or [])

    async def _check_audience(self, attrs: Attributes, pod: Obj, audiences: list[str]) -> None:
        if len(audiences) > 1:
            raise attrs.forbidden("node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        problems: list[str] = []
        if self._uses_audience(pod, audience, problems):
            return
        if problems:
            raise attrs.forbidden(f'error validating audience "{audience}": {aggregate(problems)}')
        if not await self._may(attrs, "request-serviceaccounts-token-audience", audience, attrs.name):
            raise attrs.forbidden(f'{attrs.user.name} is not authorized to request tokens for audience "{audience}"')

    def _uses_audience(self, pod: Obj, audience: str, problems: list[str]) -> bool:
        """Return whether a volume of the Pod, or its CSI driver, needs tokens for the audience; add lookup errors to
        `problems`."""
        namespace = pod["metadata"].get("namespace", "")
        for volume in pod["spec"].get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                token = source.get("serviceAccountToken")
                if token is not None and token.get("audience", "") == audience:
                    return True
            try:
                driver = self._driver(pod, namespace, volume)
                found = self._reader.get("storage.k8s.io", "csidrivers", "", driver) if driver else None
                if driver and found is None:
                    raise NotFound.of("storage.k8s.io", "csidriver", driver)
            except NotFound as error:
                problems.append(error.message)
                continue
            requests = ((found or {}).get("spec") or {}).get("tokenRequests") or ()
            if any(request.get("audience", "") == audience for request in requests):
                return True
        return False

    def _driver(self, pod: Obj, namespace: str, volume: Obj) -> str:
        if (volume.get("ephemeral") or {}).get("volumeClaimTemplate") is not None:
            claim = f"{pod['metadata']['name']}-{volume['name']}"
        elif volume.get("persistentVolumeClaim") is not None:
            claim = volume["persistentVolumeClaim"].get("claimName", "")
        else:
            return str((volume.get("csi") or {}).get("driver", ""))
        found = self._reader.get("", "persistentvolumeclaims", namespace, claim)
        if found is None:
            raise NotFound.of("", "persistentvolumeclaim", claim)
        name = found["spec"].get("volumeName", "")
        bound = self._reader.get("", "persistentvolumes", "", name) if name else None
        if bound is None:
            raise NotFound.of("", "persistentvolume", name)
        return str((bound["spec"].get("csi") or {}).get("driver", ""))

    async def check_certificate(self, node: str, attrs: Attributes) -> None:
        if attrs.operation != "CREATE":
            raise attrs.forbidden(f"unexpected operation {attrs.operation}")
        if attrs.subresource:
            raise attrs.forbidden(f"unexpected subresource {attrs.subresource}")
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        about = f"{attrs.namespace}/{spec.get('podName', '')}"
        self._check_node(node, attrs, spec, about)
        pod = self._reader.get("", "pods", attrs.namespace, spec.get("podName", ""))
        if pod is None:
            why = NotFound.of("", "pod", spec.get("podName", "")).message
            raise PlainServerError(f'while retrieving pod "{about}" named in the PodCertificateRequest: {why}')
        if spec.get("podUID", "") != pod["metadata"]["uid"]:
            raise PlainServerError(
                f'PodCertificateRequest for pod "{about}" contains pod UID ("{spec.get("podUID", "")}") which differs '
                f'from running pod "{pod["metadata"]["uid"]}"'
            )
        if pod["spec"].get("nodeName", "") != spec.get("nodeName", ""):
            raise attrs.forbidden(
                f'pod "{about}" is not running on node "{spec.get("nodeName", "")}" named in the PodCertificateRequest'
            )
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            raise attrs.forbidden(f'pod "{about}" is a mirror pod')
        self._check_account(attrs, spec, pod, about)
        signer = spec.get("signerName", "")
        if _mounts_certificate(pod, signer):
            return
        # Resource names cannot contain slashes.
        resource, account = signer.replace("/", ":"), spec.get("serviceAccountName", "")
        if not await self._may(attrs, "request-serviceaccounts-podcertificate-signer", resource, account):
            raise attrs.forbidden(
                f'pod "{about}" does not mount a podCertificate projected volume for signer "{signer}"'
            )

    def _check_node(self, node: str, attrs: Attributes, spec: Obj, about: str) -> None:
        named = spec.get("nodeName", "")
        if named != node:
            raise attrs.forbidden(
                f'PodCertificateRequest.Spec.NodeName="{named}", which is not the requesting node "{node}"'
            )
        found = self._reader.get("", "nodes", "", node)
        if found is None:
            why = NotFound.of("", "node", node).message
            raise PlainServerError(f'while retrieving node "{node}" named in the PodCertificateRequest: {why}')
        if found["metadata"]["uid"] != spec.get("nodeUID", ""):
            raise PlainServerError(
                f'PodCertificateRequest for pod "{about}" names node UID "{spec.get("nodeUID", "")}", inconsistent '
                f'with the running node ("{found["metadata"]["uid"]}")'
            )

    def _check_account(self, attrs: Attributes, spec: Obj, pod: Obj, about: str) -> None:
        name, running = spec.get("serviceAccountName", ""), pod["spec"].get("serviceAccountName", "")
        if name != running:
            raise attrs.forbidden(
                f'PodCertificateRequest for pod "{about}" contains serviceAccountName ("{name}") that differs from '
                f'running pod ("{running}")'
            )
        account = self._reader.get("", "serviceaccounts", attrs.namespace, name)
        if account is None:
            why = NotFound.of("", "serviceaccount", name).message
            raise PlainServerError(
                f'while retrieving service account "{attrs.namespace}/{name}" named in the PodCertificateRequest: {why}'
            )
        if spec.get("serviceAccountUID", "") != account["metadata"]["uid"]:
            raise PlainServerError(
                f'PodCertificateRequest for pod "{about}" names service account UID '
                f'"{spec.get("serviceAccountUID", "")}", which differs from the running service account '
                f'("{account["metadata"]["uid"]}")'
            )

    async def _may(self, attrs: Attributes, verb: str, resource: str, name: str) -> bool:
        access = Access(
            attrs.user,
            verb,
            attrs.resource.group,
            attrs.resource.version,
            resource,
            namespace=attrs.namespace,
            name=name,
        )
        return await self._authorizer.allows(access)


def _mounts_certificate(pod: Obj, signer: str) -> bool:
    return any(
        (source.get("podCertificate") or {}).get("signerName") == signer
        for volume in pod["spec"].get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    )


class NodeRestriction(Plugin):
    name = "NodeRestriction"

    def __init__(self, reader: Reader, authorizer: AuthorizerChain) -> None:
        self._reader = reader
        self._tokens = _NodeTokens(reader, authorizer)
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
        """Return the node of the stored Pod."""
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
    """Return the changed labels that a node may not change: with them it could attract Pods."""
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
    meta = {key: value for key, value in claim["metadata"].items() if key not in _IGNORED_METADATA}
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
    # Certificates are slow to import and rarely needed.
    from setpoint.kinds.certificates.requests import subject_of

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
